"""What the adapter measures of itself, on a registry that is passed in."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_PREFIX = "gpu_metrics_adapter"


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
