"""What the pages show of the cluster and of Prometheus, and for how long it is kept.

`views` says how it is shown.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yarl

from adapter import errors, settings
from adapter.cache import SingleFlightCache
from adapter.cli.console import autoscalers as seen
from adapter.cli.console import history as past
from adapter.cli.console.api_server import ApiServerProbe
from adapter.cli.console.rows import Row
from adapter.cli.doctor import autoscaler, checks, installation, registration
from adapter.cli.doctor.autoscaler import Explained
from adapter.cli.doctor.client import ApiClient, default_namespace
from adapter.clients import detection
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from rules import rbac
from rules.errors import RulesError, UnreadableError
from rules.exporters import detect
from rules.findings import Finding, State
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.reading import ApiRequest

Document = Mapping[str, Any]
T = TypeVar("T")

_TTL = {"decision": 10.0, "metrics": 15.0, "adapter": 15.0, "numbers": 15.0}
_TTL |= {"replay": 900.0, "advise": 900.0, "events": 5.0}
"""Kind of answer -> seconds for which it is kept, and with it what it was requested for."""
_OTHERS = 60.0
"""The same for explanations, which send a dozen queries, and for doctor and exporters."""
_MAX_ANSWERS = 200
_MAX_EVENTS = 50
LAST_RELIST = "seconds since the oldest last relist of a rule"
_NUMBERS = {
    "requests to Prometheus per minute": (
        "sum(rate(gpu_metrics_adapter_prometheus_request_duration_seconds_count[5m])) * 60"
    ),
    "relists per minute": "sum(rate(gpu_metrics_adapter_relists_total[5m])) * 60",
    "relists that failed per minute": (
        'sum(rate(gpu_metrics_adapter_relists_total{outcome!="ok"}[5m])) * 60'
    ),
    LAST_RELIST: "max(time() - gpu_metrics_adapter_relist_last_success_timestamp_seconds)",
    "part of evaluations that were shared": (
        'sum(rate(gpu_metrics_adapter_evaluations_total{result="shared"}[5m]))'
        " / sum(rate(gpu_metrics_adapter_evaluations_total[5m]))"
    ),
    "part of lookups that a cache answered": (
        "sum(rate(gpu_metrics_adapter_cache_hits_total[5m])) / (sum(rate("
        "gpu_metrics_adapter_cache_hits_total[5m])) + sum(rate("
        "gpu_metrics_adapter_cache_misses_total[5m])))"
    ),
}
"""What is shown of the adapter's own metrics, if Prometheus scrapes them, and its query."""
UsedRules = tuple[Sequence[str], Sequence[Mapping[str, str]]]
"""What was read, and a row for each rule."""
_EVERY = NamespaceSettings()
_EVENTS = "/api/v1/namespaces/{}/events"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCluster:
    """What doctor checks."""

    kubeconfig: KubectlSettings
    prometheus: settings.PrometheusSettings | None
    namespaces: NamespaceSettings = _EVERY
    """Whose autoscalers are shown."""
    rules: Callable[[], Coroutine[Any, Any, UsedRules]] | None = None
    """Reads the rules in use, as the command `rules` does; None in tests without adapters."""


class ClusterReader:
    """What is read of one cluster."""

    def __init__(self, kube: Kube, cluster: ShownCluster, prometheus: Prometheus | None) -> None:
        self.api_server = ApiServerProbe(kube)
        namespaces = cluster.namespaces
        every = namespaces.all or namespaces.names
        self.autoscalers = seen.AutoscalerList(
            kube,
            self.api_server,
            namespaces=namespaces.names or ("",),
            fallback="" if every else default_namespace(cluster.kubeconfig),
        )
        self._kube = kube
        self.client = ApiClient(kube)
        self._cluster = cluster
        self.prometheus = prometheus
        self._answers: SingleFlightCache[str, Any] = SingleFlightCache(
            ttl=lambda key, _: _TTL.get(key.partition(" ")[0], _OTHERS), max_size=_MAX_ANSWERS
        )

    async def decision(self, namespace: str, name: str) -> Explained:
        """Return the decision about an autoscaler, with its steps. Raises UnreadableError."""
        return await self.cached(
            f"decision {namespace}/{name}",
            lambda: autoscaler.explain(self.client, namespace, name),
        )

    async def findings(self) -> tuple[Finding, ...]:
        """Return the findings of doctor."""
        cluster = self._cluster
        return await self.cached(
            "doctor",
            lambda: checks.examine(
                cluster.kubeconfig,
                prometheus=cluster.prometheus,
                namespaces=cluster.namespaces,
            ),
        )

    async def exporters(self) -> detect.Detection:
        """Return the exporters in Prometheus. Raises UnreadableError."""
        prometheus = self.needed_prometheus()
        try:
            return await self.cached("exporters", lambda: detection.report(prometheus))
        except errors.BackendError as error:
            raise UnreadableError(f"Prometheus did not answer: {error}") from error

    async def rules(self) -> UsedRules:
        """Return the rules that the adapters use. Raises UnreadableError."""
        load = self._cluster.rules
        assert load is not None
        try:
            return await self.cached("rules", load)
        except (RulesError, errors.BackendError, errors.StartError) as error:
            raise UnreadableError(str(error), status=getattr(error, "status", 0)) from error

    async def relists(self) -> list[str]:
        """Return what is known of the last relists: from health checks, and from own metrics."""
        found = [each for each in await self.numbers() if each["name"] == LAST_RELIST]
        facts = [f"{LAST_RELIST}: {each['value']}" for each in found]
        try:
            pods = await self.pods()
        except UnreadableError as error:
            return [*facts, str(error)]
        checks = ((pod["name"], each) for pod in pods for each in pod["checks"])
        said = [f"{pod}: {each['text']}" for pod, each in checks if each["name"] == "rules"]
        return facts + (said or ["no pod of the adapter says when it listed series last"])

    def needed_prometheus(self) -> Prometheus:
        """Return the client of Prometheus. Raises UnreadableError without a URL."""
        if self.prometheus is None:
            message = "the URL of Prometheus is not known. Start the console with --prometheus-url"
            raise UnreadableError(message, status=404)
        return self.prometheus

    async def rows(self) -> tuple[Row, ...]:
        """Return the autoscalers. Raises UnreadableError."""
        try:
            return await self.autoscalers.rows()
        except errors.BackendError as error:
            raise UnreadableError(f"autoscalers cannot be listed: {error}") from error

    def state(self, explained: Explained) -> State:
        """Return the state of an explained autoscaler: that of its row, unless that is ok."""
        hpa = explained.observed.hpa
        row = self.autoscalers.row(hpa.namespace, hpa.name)
        if row is not None and row.state is not State.OK:
            return row.state
        if explained.complete:
            return State.OK
        unread = {0, *rbac.STATUSES}
        known = unread.isdisjoint(each.status for each in explained.observed.replies)
        return State.FAILURE if known else State.SKIPPED

    def graph(self, promql: str) -> str:
        """Return the address of a query in the pages of Prometheus; empty without Prometheus."""
        if self._cluster.prometheus is None:
            return ""
        url = yarl.URL(self._cluster.prometheus.url).with_user(None).with_fragment(None)
        query = {"g0.expr": promql, "g0.tab": "0", "g0.range_input": "1h"}
        return str((url / "graph").with_query(query))

    async def cached(self, key: str, load: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `load` returned for this key; the first word of a key is its kind."""
        value: T = await self._answers.get(key, load)
        return value

    async def metrics(self) -> list[Document]:
        """Return each metric with its kinds of objects. Raises UnreadableError."""
        return await self.cached("metrics", self._list_metrics)

    async def _list_metrics(self) -> list[Document]:
        return [
            {"metric": metric, "objects": sorted(found), "namespaced": found}
            for metric, found in sorted((await self.client.metrics()).items())
        ]

    async def pods(self) -> list[Document]:
        """Return the pods of the adapter with their health checks. Raises UnreadableError."""
        try:
            return await self.cached("adapter", self._pods)
        except errors.BackendError as error:
            raise UnreadableError(f"the pods of the adapter cannot be read: {error}") from error

    async def _pods(self) -> list[Document]:
        installed = await registration.find(self._kube, user="")
        found = []
        for pod in await installed.pods():
            reply = await installation.readyz(installed, pod)
            found.append(_pod(pod, reply.body.decode(errors="replace"), reply.status))
        return found

    async def numbers(self) -> list[Document]:
        """Return the numbers of the adapter's own metrics, if Prometheus has them."""
        return await self.cached("numbers", self._numbers)

    async def _numbers(self) -> list[Document]:
        if self.prometheus is None:
            return [{"name": "numbers", "value": "not known without --prometheus-url"}]
        found: list[Document] = []
        for name, query in _NUMBERS.items():
            try:
                result = await self.prometheus.query(query)
            except errors.BackendError as error:
                return [{"name": "numbers", "value": str(error)}]
            if result.samples and math.isfinite(value := result.samples[0].value):
                found.append({"name": name, "value": f"{value:.4g}"})
        return found or [{"name": "numbers", "value": "Prometheus does not scrape the adapter"}]

    async def history(
        self, hpa: Autoscaler, events: Iterable[Document], seconds: float
    ) -> tuple[Sequence[seen.ReplicaSample], str]:
        """Return what is recorded elsewhere, then what was seen here, and a sentence about both.

        Of the last `seconds`.
        """
        own = self.autoscalers.samples(f"{hpa.namespace}/{hpa.name}")
        found, missing = await self._recorded(hpa, seconds)
        source = "From kube-state-metrics"
        if not found:
            found, source = past.rescales(events), "Desired replicas from Events"
        before = [each for each in found if not own or each.time < own[0].time]
        here = "as seen since the console was started"
        sentence = f"{source}, and {here}" if before else here.capitalize()
        since = time.time() - seconds
        samples = [each for each in (*before, *own) if each.time >= since]
        return samples, "; ".join(filter(None, (sentence, missing)))

    async def _recorded(
        self, hpa: Autoscaler, seconds: float
    ) -> tuple[Sequence[seen.ReplicaSample], str]:
        """Return the history in Prometheus; what is missing if there is none."""
        prometheus = self.prometheus
        if prometheus is None:
            return (), "--prometheus-url allows more"

        async def load() -> Sequence[seen.ReplicaSample]:
            query, now = past.query(hpa.namespace, hpa.name), time.time()
            found = await prometheus.query_range(
                query, now - seconds, now, max(15.0, seconds / past.POINTS)
            )
            return past.samples(hpa, found.content)

        try:
            samples = await self.cached(f"history {seconds} {hpa.namespace}/{hpa.name}", load)
        except errors.BackendError as error:
            return (), f"Prometheus: {error}"
        if not samples:
            return (), "Prometheus has no series of kube-state-metrics about this autoscaler"
        return samples, ""

    async def queries(self, requests: Sequence[ApiRequest | None]) -> list[Document]:
        """Return the queries of the metrics that the adapter explains."""
        return await self.cached(f"queries {requests}", lambda: self._queries(requests))

    async def _queries(self, requests: Sequence[ApiRequest | None]) -> list[Document]:
        found: list[Document] = []
        for request in requests:
            if request is None or not request.is_explained:
                continue
            with contextlib.suppress(UnreadableError):
                explained = await self.explanation(request)
                metric = explained["request"]["metric"]
                found += [{"metric": metric, **each} for each in explained["queries"]]
        return found

    async def explanation(self, request: ApiRequest) -> Document:
        """Return the explanation of a metric. Raises UnreadableError."""
        return await self.cached(f"explanation {request}", lambda: self.client.explanation(request))

    async def events(self, hpa: Autoscaler) -> Sequence[Document]:
        """Return the Events of an autoscaler, newest first; one that says why if there are none.

        Those of a former autoscaler of the same name have another uid.
        """
        return await self.cached(f"events {hpa.uid}", lambda: self._events(hpa))

    async def _events(self, hpa: Autoscaler) -> Sequence[Document]:
        selector = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.uid={hpa.uid}"
        try:
            listed = await self._kube.get(
                _EVENTS.format(hpa.namespace), {"fieldSelector": selector, "limit": "500"}
            )
        except errors.BackendError as error:
            return [event({"reason": "Unreadable", "message": str(error), "type": "Warning"})]
        found = [event(each) for each in listed.get("items") or ()]
        return sorted(found, key=lambda each: str(each["time"]), reverse=True)[:_MAX_EVENTS]


def event(document: Document) -> Document:
    """Return what is shown of an Event."""
    series = document.get("series") or {}
    return {
        "time": document.get("lastTimestamp")
        or series.get("lastObservedTime")
        or document.get("eventTime")
        or "",
        "type": document.get("type") or "",
        "reason": document.get("reason") or "",
        "count": document.get("count") or series.get("count") or 1,
        "message": document.get("message") or "",
    }


def _pod(pod: Document, text: str, status: int) -> Document:
    """Return what is shown of a pod of the adapter; `text` is its answer to /readyz?verbose."""
    found = pod.get("status") or {}
    containers = found.get("containerStatuses") or ()
    checks = [
        {"state": each.state, "name": each.subject, "text": each.fact}
        for each in installation.health_checks(text)
    ]
    unread = {"state": State.SKIPPED, "name": "readyz", "text": f"not read: status {status}"}
    return {
        "name": pod["metadata"]["name"],
        "node": (pod.get("spec") or {}).get("nodeName") or "",
        "phase": found.get("phase") or "",
        "restarts": sum(each.get("restartCount") or 0 for each in containers),
        "images": [each.get("image") or "" for each in containers],
        "checks": checks or [unread],
    }
