"""What the adapter measures of itself, on a registry that is passed in."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import UnknownMetricFamily
from prometheus_client.registry import Collector

_PREFIX = "gpu_metrics_adapter"
_TOLD_APART = frozenset(
    {"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}
)


class Requests:
    """How Prometheus was asked, and what that cost."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            f"{_PREFIX}_prometheus_request_duration_seconds",
            "Time until Prometheus' whole answer was read, by API path and outcome.",
            ["path", "outcome"],
            registry=registry,
        )
        self._bytes = Counter(
            f"{_PREFIX}_prometheus_response_bytes",
            "Bytes of Prometheus' answers, as they came over the wire, by API path.",
            ["path"],
            registry=registry,
        )

    def ended(self, path: str, *, outcome: str, seconds: float, received: int) -> None:
        """One request, whole or failed; `outcome` is `ok` or the name of the BackendError."""
        self._seconds.labels(path, outcome).observe(seconds)
        self._bytes.labels(path).inc(received)


class Relists:
    """How the listing of series goes, by rule (`rules[3]`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            f"{_PREFIX}_relists",
            "Attempts to list the series of a rule, by outcome.",
            ["rule", "outcome"],
            registry=registry,
        )
        self._success = Gauge(
            f"{_PREFIX}_relist_last_success_timestamp_seconds",
            "When the series of a rule were last listed.",
            ["rule"],
            registry=registry,
        )
        self._series = Gauge(
            f"{_PREFIX}_relist_series_names",
            "Series names that the last good listing of a rule has.",
            ["rule"],
            registry=registry,
        )

    def listed(self, rule: str, *, names: int, at: float) -> None:
        self._attempts.labels(rule, "ok").inc()
        self._success.labels(rule).set(at)
        self._series.labels(rule).set(names)

    def failed(self, rule: str, *, outcome: str) -> None:
        self._attempts.labels(rule, outcome).inc()


class Certificates:
    """What is served, and how the work on it goes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._serving = Gauge(
            f"{_PREFIX}_serving_certificate_expiry_timestamp_seconds",
            "When the certificate that is served expires.",
            registry=registry,
        )
        self._authority = Gauge(
            f"{_PREFIX}_authority_certificate_expiry_timestamp_seconds",
            "When the authority that issues our certificates expires; 0 where it is not ours.",
            registry=registry,
        )
        self._looks = Counter(
            f"{_PREFIX}_identity_looks",
            "Looks at the Secret that replicas share, by outcome.",
            ["outcome"],
            registry=registry,
        )

    def serving(self, until: float) -> None:
        self._serving.set(until)

    def authority(self, until: float) -> None:
        self._authority.set(until)

    def looked(self, outcome: str) -> None:
        self._looks.labels(outcome).inc()


class Access:
    """Who was let in, by the names that the metrics of Kubernetes' API servers have.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/filters/metrics.go
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = _Counts(
            "authentication_attempts",
            "Requests whose sender was looked for, by result: success, or error for a 401.",
            "result",
            ("success", "error"),
        )
        self._users = _Counts(
            "authenticated_user_requests",
            "Requests whose sender is known, by name, as far as the API servers tell names apart.",
            "username",
        )
        registry.register(self._attempts)
        registry.register(self._users)
        verdicts = Counter(
            "authorization_attempts",
            "Requests for which leave was asked, by result: allowed, denied, no-opinion or error.",
            ["result"],
            registry=registry,
        )
        results = ("allowed", "denied", "no-opinion", "error")
        self._verdicts = {each: verdicts.labels(each) for each in results}

    def authenticated(self, name: str) -> None:
        self._attempts.count("success")
        if name not in _TOLD_APART:
            name = "email_id" if "@" in name else "other"
        self._users.count(name)

    def unauthenticated(self) -> None:
        self._attempts.count("error")

    def authorized(self, result: str) -> None:
        self._verdicts[result].inc()


class _Counts(Collector):
    """A counter by one label, under a name that prometheus_client's own would add `_total` to."""

    def __init__(self, name: str, text: str, label: str, values: tuple[str, ...] = ()) -> None:
        self._name, self._text, self._label = name, text, label
        self._values = dict.fromkeys(values, 0)

    def count(self, value: str) -> None:
        self._values[value] = self._values.get(value, 0) + 1

    def collect(self) -> Iterator[UnknownMetricFamily]:
        family = UnknownMetricFamily(self._name, self._text, labels=[self._label])
        for value, count in self._values.items():
            family.add_metric([value], count)
        yield family
