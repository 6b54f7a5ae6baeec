"""Metrics of the adapter itself, registered on a registry that the caller passes in."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    UnknownMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from adapter.counters import Counts, Durations

_PREFIX = "gpu_metrics_adapter"
_USERNAMES = frozenset(
    {"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"}
)
"""Users that Kubernetes' compressUsername keeps as label values."""


_VERBS = {
    **{each.lower(): each for each in ("GET", "LIST", "WATCH", "HEAD", "POST", "PUT", "PATCH")},
    "create": "POST",
    "update": "PUT",
    "delete": "DELETE",
    "deletecollection": "DELETECOLLECTION",
}
"""Verb of a request, or method of one that is for no resource -> label, as in Kubernetes."""
_LAGS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5)
_STALLS_KEPT = 60.0


class RequestMetrics:
    """Metrics of the requests to the adapter, named as in Kubernetes API servers.

    Labels have few values whatever clients send: `apis` are the groups and versions that are named.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/metrics/metrics.go
    """

    def __init__(
        self, registry: CollectorRegistry, apis: Container[tuple[str, str]] = frozenset()
    ) -> None:
        self._apis = apis
        labels = ("verb", "group", "version", "scope")
        self._total = Counts(
            CounterMetricFamily,
            "apiserver_request",
            "Requests by verb, API group and version, scope (resource, namespace, cluster, or "
            "empty for a path that is not a resource) and HTTP code.",
            (*labels, "code"),
            registry,
        )
        self._duration = Durations(
            "apiserver_request_duration_seconds",
            "Duration of requests until the response is ready, by the same labels.",
            labels,
            registry,
        )
        in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Requests that are being served, by kind: readOnly or mutating.",
            ["request_kind"],
            registry=registry,
        )
        self._in_flight = {True: 0, False: 0}
        in_flight.labels("readOnly").set_function(lambda: self._in_flight[True])
        in_flight.labels("mutating").set_function(lambda: self._in_flight[False])

    def in_flight(self, *, read_only: bool, change: int) -> None:
        """Count the beginning (1) or the end (-1) of a request."""
        self._in_flight[read_only] += change

    def ended(
        self, verb: str, group: str, version: str, *, scope: str, code: int, seconds: float
    ) -> None:
        """Count a request by its response."""
        if (group, version) not in self._apis:
            group = version = ""
        labels = (_VERBS.get(verb, "OTHER"), group, version, scope)
        self._total.inc(*labels, str(code))
        self._duration.observe(labels, seconds)


class PrometheusRequestMetrics:
    """Metrics of the requests to Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._duration = Histogram(
            f"{_PREFIX}_prometheus_request_duration_seconds",
            "Duration of requests to Prometheus until the whole response is read, "
            "by source (default, or its name in the rules), API path and outcome (ok, Partial if "
            "it lacks data, or the kind of error).",
            ["source", "path", "outcome"],
            registry=registry,
        )
        self._bytes = Counter(
            f"{_PREFIX}_prometheus_response_bytes",
            "Bytes of Prometheus responses on the wire, by source and API path.",
            ["source", "path"],
            registry=registry,
        )

    def ended(self, path: str, *, source: str, outcome: str, seconds: float, received: int) -> None:
        """Count a request; `outcome` is `ok`, `Partial` or the class name of the BackendError."""
        self._duration.labels(source, path, outcome).observe(seconds)
        self._bytes.labels(source, path).inc(received)


@dataclass(frozen=True, slots=True, kw_only=True)
class _EvaluationCounts:
    """Metrics of the evaluations of one rule."""

    merged: Counter
    alone: Counter
    shared: Counter
    refused: Counter
    duration: Histogram


class EvaluationMetrics:
    """Metrics of the evaluation of rules, by rule (`rules[3]`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._evaluations = Counter(
            f"{_PREFIX}_evaluations",
            "Evaluations of a rule by how they were shared: merged (a query for the objects of "
            "several requests), alone (a query for one request), shared (a request answered "
            "without a query), refused (a merged query that failed).",
            ["rule", "result"],
            registry=registry,
        )
        self._duration = Histogram(
            f"{_PREFIX}_evaluation_duration_seconds",
            "Durations of the evaluations of a rule, until their samples were read.",
            ["rule"],
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30),
            registry=registry,
        )
        self._of_rules: dict[str, _EvaluationCounts] = {}

    def of_rule(self, rule: str) -> _EvaluationCounts:
        """Return the metrics of a rule; the same ones each time."""
        counts = self._of_rules.get(rule)
        if counts is None:
            counts = self._of_rules[rule] = _EvaluationCounts(
                merged=self._evaluations.labels(rule, "merged"),
                alone=self._evaluations.labels(rule, "alone"),
                shared=self._evaluations.labels(rule, "shared"),
                refused=self._evaluations.labels(rule, "refused"),
                duration=self._duration.labels(rule),
            )
        return counts

    def retain(self, rules: Container[str]) -> None:
        """Remove the metrics of all other rules."""
        self._of_rules = {rule: each for rule, each in self._of_rules.items() if rule in rules}
        _retain(rules, self._evaluations, self._duration)


def _retain(rules: Container[str], *metrics: Counter | Gauge | Histogram) -> None:
    """Remove the label values of all other rules than `rules`; `rule` is the first label."""
    for metric in metrics:
        for each in metric.collect():
            for rule in {sample.labels["rule"] for sample in each.samples}:
                if rule not in rules:
                    metric.remove_by_labels({"rule": rule})


class RelistMetrics:
    """Metrics of the relist, by rule (`rules[3]`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counter(
            f"{_PREFIX}_relists",
            "Attempts to list the series of a rule, by outcome (ok, Partial if series may be "
            "missing, or the kind of error).",
            ["rule", "outcome"],
            registry=registry,
        )
        self._last_success = Gauge(
            f"{_PREFIX}_relist_last_success_timestamp_seconds",
            "Unix time of the last successful relist of a rule.",
            ["rule"],
            registry=registry,
        )
        self._series_names = Gauge(
            f"{_PREFIX}_relist_series_names",
            "Number of distinct series names that the last successful relist of a rule returned.",
            ["rule"],
            registry=registry,
        )

    def retain(self, rules: Container[str]) -> None:
        """Remove the metrics of all other rules."""
        _retain(rules, self._attempts, self._last_success, self._series_names)

    def listed(self, rule: str, *, names: int, at: float) -> None:
        """Count a successful relist at Unix time `at`."""
        self._attempts.labels(rule, "ok").inc()
        self._last_success.labels(rule).set(at)
        self._series_names.labels(rule).set(names)

    def failed(self, rule: str, *, outcome: str) -> None:
        """Count a failed relist; `outcome` is the class name of the BackendError."""
        self._attempts.labels(rule, outcome).inc()


class LoopMetrics:
    """How long the event loop served nobody. `clock` is monotonic."""

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lag = Histogram(
            f"{_PREFIX}_event_loop_lag_seconds",
            "How late a task was resumed that is due four times a second.",
            buckets=_LAGS,
            registry=registry,
        )
        self._stall = Gauge(
            f"{_PREFIX}_event_loop_stall_seconds",
            "Longest time within the last minute or two in which no request was served, because "
            "something else was computed.",
            registry=registry,
        )
        self._clock = clock
        self._before = self._longest = 0.0
        self._ends = clock() + _STALLS_KEPT

    def late(self, seconds: float) -> None:
        """Note how late the event loop was."""
        self._lag.observe(seconds)
        now = self._clock()
        if now >= self._ends:
            self._before, self._longest, self._ends = self._longest, 0.0, now + _STALLS_KEPT
        self._longest = max(self._longest, seconds)
        self._stall.set(max(self._before, self._longest))


class ReloadMetrics:
    """Metrics of the files of the rules, in the form of those of Prometheus' own configuration."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.successful = Gauge(
            f"{_PREFIX}_rules_last_reload_successful",
            "1 if the rules in use are those of their files, 0 if the files have errors.",
            registry=registry,
        )


class TeamRulesMetrics:
    """ConfigMaps with rules of teams."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._config_maps = Gauge(
            f"{_PREFIX}_team_config_maps",
            "ConfigMaps with rules of teams, by their state: in_use, refused or unread.",
            ["state"],
            registry=registry,
        )
        self.postponed = Counter(
            f"{_PREFIX}_team_config_maps_postponed_total",
            "How often a ConfigMap was read later, because its namespace has many changes.",
            registry=registry,
        )

    def show(self, counts: Mapping[str, int]) -> None:
        """Set the number of ConfigMaps in each state."""
        for state, number in counts.items():
            self._config_maps.labels(state).set(number)


class DetectionMetrics:
    """The presets that `--preset=auto` has chosen."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._chosen = Gauge(
            f"{_PREFIX}_detected_preset",
            "1 for each preset that --preset=auto uses now.",
            ["preset"],
            registry=registry,
        )

    def chosen(self, presets: Iterable[str]) -> None:
        """Set the presets in use."""
        self._chosen.clear()
        for preset in presets:
            self._chosen.labels(preset).set(1)


class AutoscalerMetrics(Collector):
    """Whether each HPA gets its metrics, and how many replicas they propose."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._shown: Sequence[tuple[str, str, str, str]] = ()
        self._proposed: Mapping[tuple[str, str, str], int] = {}
        self._left_out = Gauge(
            f"{_PREFIX}_hpa_metrics_left_out",
            "Metrics of HPAs that are not watched, by the limit (docs/security.md), `unreadable`, "
            "or `unlisted` (--scale-targets lacks the kind).",
            ["reason"],
            registry=registry,
        )
        registry.register(self)

    def show(
        self,
        states: Sequence[tuple[str, str, str, str]],
        proposed: Mapping[tuple[str, str, str], int],
    ) -> None:
        """Set all states: namespace, HPA, metric, and the reason, empty if there is a value.

        `proposed` are replicas by namespace, HPA and metric.
        """
        self._shown, self._proposed = states, proposed

    def leave_out(self, numbers: Mapping[str, int]) -> None:
        """Set the numbers of metrics that are not watched, by reason."""
        self._left_out.clear()
        for reason, number in numbers.items():
            self._left_out.labels(reason).set(number)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        gauge = GaugeMetricFamily(
            f"{_PREFIX}_hpa_metric_resolvable",
            "1 if the HPA gets a value of the metric, 0 if not, for the reason.",
            labels=["namespace", "hpa", "metric", "reason"],
        )
        for namespace, hpa, metric, reason in self._shown:
            gauge.add_metric([namespace, hpa, metric, reason], 0.0 if reason else 1.0)
        yield gauge
        gauge = GaugeMetricFamily(
            f"{_PREFIX}_autoscaler_proposed_replicas",
            "Replicas that the metric proposed at its last request, before limits and "
            "stabilization; the controller takes the highest of an HPA.",
            labels=["namespace", "name", "metric"],
        )
        for key, replicas in self._proposed.items():
            gauge.add_metric(key, replicas)
        yield gauge


class CauseMetrics:
    """Answers without a value, by reason."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.answers = Counter(
            f"{_PREFIX}_answers_without_value",
            "Answers 404 and empty lists, by the reason of the most specific cause.",
            ["reason"],
            registry=registry,
        )


class HealthMetrics:
    """States of the health checks of /readyz."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state = Gauge(
            f"{_PREFIX}_health_check_state",
            "1 for the state of a check of /readyz: ok, degraded (something does not work, and the "
            "pod stays ready) or failed (the pod is not ready).",
            ["check", "state"],
            registry=registry,
        )
        self._states: dict[str, str] = {}

    def checked(self, check: str, state: str) -> None:
        """Set the state of a check."""
        if (previous := self._states.get(check)) not in {None, state}:
            self._state.remove(check, previous)
        self._states[check] = state
        self._state.labels(check, state).set(1)


class WatchCacheMetrics:
    """Metrics of the watch caches, by resource (`deployments.apps`)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._state = Gauge(
            f"{_PREFIX}_watch_cache_state",
            "1 for the state of a watch cache: syncing, watched, broken (the last good state is "
            "served), forbidden or too_many. In the other three, each request is a list.",
            ["resource", "state"],
            registry=registry,
        )
        self.objects = Gauge(
            f"{_PREFIX}_watch_cache_objects",
            "Number of objects in a watch cache.",
            ["resource"],
            registry=registry,
        )
        self.last_response = Gauge(
            f"{_PREFIX}_watch_cache_last_response_timestamp_seconds",
            "Unix time of the last event, bookmark or accepted request of a watch.",
            ["resource"],
            registry=registry,
        )
        self.lists = Counter(
            f"{_PREFIX}_object_lists",
            "Requests that need a list from the API server, by the state of the watch cache.",
            ["resource", "state"],
            registry=registry,
        )
        self.unreadable = Counter(
            f"{_PREFIX}_unreadable_objects",
            "Objects that were left out of a watch cache, because their document cannot be read.",
            ["resource"],
            registry=registry,
        )
        self._states: dict[str, str] = {}

    def entered(self, resource: str, state: str) -> None:
        """Set the state of a cache."""
        if previous := self._states.get(resource):
            self._state.remove(resource, previous)
        self._states[resource] = state
        self._state.labels(resource, state).set(1)

    def emptied(self, resource: str) -> None:
        """Remove the gauges of a cache's objects: it has none, and its age does not matter."""
        for gauge in (self.objects, self.last_response):
            gauge.remove(resource)

    def stopped(self, resource: str) -> None:
        """Remove the gauges of a cache."""
        if state := self._states.pop(resource, None):
            self._state.remove(resource, state)
        self.emptied(resource)


class CertificateMetrics:
    """Metrics of the serving certificate and of the CA that issues it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.serving_expiry = Gauge(
            f"{_PREFIX}_serving_certificate_expiry_timestamp_seconds",
            "Unix time at which the serving certificate expires.",
            registry=registry,
        )
        self.ca_expiry = Gauge(
            f"{_PREFIX}_serving_ca_expiry_timestamp_seconds",
            "Unix time at which the CA that the adapter manages for its serving certificates "
            "expires; 0 if the certificate comes from files.",
            registry=registry,
        )
        self.reconciles = Counter(
            f"{_PREFIX}_serving_certificate_reconciles",
            "Reconciliations of the Secret that holds the serving CA, by outcome (ok or failed).",
            ["outcome"],
            registry=registry,
        )


class AuthMetrics:
    """Metrics of authentication and authorization, named as in Kubernetes API servers.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/filters/metrics.go
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._attempts = Counts(
            UnknownMetricFamily,
            "authentication_attempts",
            "Counter of authentication attempts by result: success, or error for a 401.",
            ("result",),
            registry,
            ("success", "error"),
        )
        self._users = Counts(
            UnknownMetricFamily,
            "authenticated_user_requests",
            "Counter of authenticated requests by username; most users are counted as 'other'.",
            ("username",),
            registry,
        )
        self._decisions = Counts(
            CounterMetricFamily,
            "authorization_attempts",
            "Counter of authorization attempts by result: allowed, denied, no-opinion or error.",
            ("result",),
            registry,
            ("allowed", "denied", "no-opinion", "error"),
        )

    def authenticated(self, name: str) -> None:
        """Count an authenticated or anonymous request of the user `name`."""
        self._attempts.inc("success")
        if name not in _USERNAMES:
            name = "email_id" if "@" in name else "other"
        self._users.inc(name)

    def unauthenticated(self) -> None:
        """Count a request answered with 401."""
        self._attempts.inc("error")

    def authorized(self, result: str) -> None:
        """Count a decision: `allowed`, `denied`, `no-opinion` or `error`."""
        self._decisions.inc(result)


class _Cache(Protocol):
    """Cache that counts its lookups."""

    hits: int
    misses: int


class CacheMetrics(Collector):
    """Lookups of the caches of the request path, by the name of the cache."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._caches: dict[str, _Cache] = {}
        self._label = "cache"
        registry.register(self)

    def add(self, name: str, cache: _Cache) -> None:
        """Report the lookups of `cache` under `name`."""
        self._caches[name] = cache

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counters."""
        for outcome, text in (
            ("hits", "Lookups that found a value, by cache."),
            ("misses", "Lookups that found no value, by cache."),
        ):
            family = CounterMetricFamily(f"{_PREFIX}_cache_{outcome}", text, labels=[self._label])
            for name, cache in self._caches.items():
                family.add_metric([name], getattr(cache, outcome))
            yield family
