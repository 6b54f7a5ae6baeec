"""The views: what each page, its JSON and its text show, from what the console reads."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from adapter import errors, settings
from adapter.cache import SingleFlightCache
from adapter.cli.console import autoscalers as seen
from adapter.cli.console import history, replays
from adapter.cli.console.rows import Row
from adapter.cli.doctor import autoscaler, checks, installation, replay, report
from adapter.cli.doctor.client import Client
from adapter.clients import detection
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from rules.causes import explanation_text
from rules.errors import UnreadableError
from rules.findings import State
from rules.hpa import reading, replay_report
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.report import explains
from rules.metrics_apis import CUSTOM, EXTERNAL
from rules.quoting import counted, escaped

Document = Mapping[str, Any]
T = TypeVar("T")

_TTL = {"decision": 10.0, "metrics": 15.0, "adapter": 15.0, "numbers": 15.0, "replay": 900.0}
"""Kind of answer -> seconds for which it is kept, and with it what it was requested for."""
_OTHERS = 60.0
"""The same for explanations, which send a dozen queries, and for doctor and exporters."""
_MAX_ANSWERS = 200
_DAY = "1d"
"""Period that is replayed if the address has none."""
_MAX_EVENTS = 50
_NUMBERS = {
    "requests to Prometheus per minute": (
        "sum(rate(gpu_metrics_adapter_prometheus_request_duration_seconds_count[5m])) * 60"
    ),
    "relists per minute": "sum(rate(gpu_metrics_adapter_relists_total[5m])) * 60",
    "relists that failed per minute": (
        'sum(rate(gpu_metrics_adapter_relists_total{outcome!="ok"}[5m])) * 60'
    ),
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
_EXTERNAL = "external"
"""What stands for the resource in the address of an external metric."""
_EVENTS = "/api/v1/namespaces/{}/events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a request asks of a view, beside its address."""

    search: str = ""
    namespace: str = ""
    since: str = ""
    """Period to replay."""
    target: str = ""
    """Comma-separated targets to replay."""
    visible: tuple[str, ...] = ()
    """Keys of the rows that are on the screen."""

    @property
    def words(self) -> list[str]:
        """Words of the search, in lower case."""
        return self.search.lower().split()


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one address shows."""

    title: str
    template: str
    document: Document
    """For JSON, and the variables of the template."""
    lines: Sequence[str]
    """The text, before control characters are escaped."""
    more: Document = field(default_factory=dict)
    """Further variables of the template, which only HTML needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What doctor checks."""

    kubeconfig: str | None
    namespace: str
    service: str
    prometheus: settings.Prometheus | None


class Views:
    """The views of one cluster. Each raises UnreadableError if there is nothing to show."""

    def __init__(
        self, kube: Kube, installation: Installation, prometheus: Prometheus | None
    ) -> None:
        self.autoscalers_seen = seen.Autoscalers(kube)
        self._kube = kube
        self._client = Client(kube)
        self._installation = installation
        self._prometheus = prometheus
        self._answers: SingleFlightCache[str, Any] = SingleFlightCache(
            ttl=lambda key, _: _TTL.get(key.partition(" ")[0], _OTHERS), max_size=_MAX_ANSWERS
        )

    async def autoscalers(self, query: Query) -> View:
        """Return all autoscalers that match the search, errors first."""
        every = await self._rows()
        rows = [each for each in every if each.matches(query.words)]
        known = {each.key for each in rows}
        visible = [key for key in query.visible if key in known] or [each.key for each in rows]
        self.autoscalers_seen.show(visible[: seen.MAX_SHOWN])
        now = time.time()
        counts = {state: sum(each.state is state for each in every) for state in State}
        summary = (
            f"{counted(len(every), 'autoscaler')}: {counted(counts[State.FAILURE], 'failure')}, "
            f"{counted(counts[State.WARNING], 'warning')}"
        )
        if query.search:
            summary += f"; {len(rows)} match the search"
        documents = [each.document(now) for each in rows]
        return View(
            title="Autoscalers",
            template="autoscalers.html",
            document={"summary": summary, "search": query.search, "items": documents},
            lines=[summary, *_table(map(_cells, documents))],
        )

    async def autoscaler(self, _query: Query, namespace: str, name: str) -> View:
        """Return one autoscaler: its decision, history, Events and queries."""
        key = f"{namespace}/{name}"
        explained = await self._cached(
            f"decision {key}", lambda: autoscaler.explain(self._client, namespace, name)
        )
        hpa = explained.observed.hpa
        events = await self._events(hpa)
        samples, source = await self._history(hpa, events)
        requests = explained.observed.requests
        queries = await self._cached(f"queries {requests}", lambda: self._queries(requests))
        return View(
            title=key,
            template="autoscaler.html",
            document={
                **explained.document(),
                "events": events,
                "history": [each.document() for each in samples],
                "historySource": source,
            },
            lines=[
                *explained.lines(),
                "",
                "Queries",
                *(f"  {each['metric']}, {each['rule']}: {each['promql']}" for each in queries),
                "",
                "Events",
                *map(_event_line, events),
            ],
            more={
                "steps": list(explained.lines())[:-1],
                "charts": history.charts(hpa, samples),
                "replays": self._prometheus is not None,
                "queries": queries,
            },
        )

    async def replay(self, query: Query, namespace: str, name: str) -> View:
        """Return what an autoscaler would have done in the past with other targets."""
        prometheus = self._needed_prometheus()
        try:
            since = replay.period(query.since or _DAY)
        except ValueError as error:
            raise UnreadableError(f"since={query.since}: {error}", status=400) from error
        targets = tuple(each.strip() for each in query.target.split(",") if each.strip())
        wanted = replay.Wanted(since=since, targets=targets)

        async def load() -> View:
            found = await replay.run(self._client, prometheus, namespace, name, wanted)
            return View(
                title=f"Replay of {namespace}/{name}",
                template="replay.html",
                document=replay_report.document(found),
                lines=list(replay_report.lines(found)),
                more={
                    **replays.variables(found),
                    "since": query.since or _DAY,
                    "target": ",".join(targets),
                },
            )

        return await self._cached(f"replay {namespace}/{name} {wanted}", load)

    async def doctor(self, _query: Query) -> View:
        """Return the findings of doctor."""
        place = self._installation
        _, findings = await self._cached(
            "doctor",
            lambda: checks.examine(
                place.kubeconfig,
                service=place.service,
                namespace=place.namespace,
                prometheus=place.prometheus,
            ),
        )
        *_, summary = lines = list(report.lines(findings))
        document = orjson.loads(report.as_json(findings))
        return View(
            title="Doctor",
            template="doctor.html",
            document={"summary": summary, **document},
            lines=lines,
        )

    async def metrics(self, query: Query) -> View:
        """Return the metrics that the API server lists."""
        items = [
            each
            for each in await self._metrics()
            if all(word in f"{each['metric']} {' '.join(each['objects'])}" for word in query.words)
        ]
        summary = counted(len(items), "metric")
        return View(
            title="Metrics",
            template="metrics.html",
            document={"summary": summary, "search": query.search, "items": items},
            lines=[
                summary,
                *_table((each["metric"], ", ".join(each["objects"])) for each in items),
            ],
        )

    async def metric(self, query: Query, resource: str, metric: str) -> View:
        """Return how the values of a metric come about, for the objects of one namespace."""
        users = [
            each
            for each in await self._rows()
            if any(value.metric.name == metric for value in each.values)
        ]
        namespace = query.namespace or next((each.namespace for each in users), "default")
        if resource == _EXTERNAL:
            parts: tuple[str, ...] = (namespace,)
        elif resource == "namespaces":
            parts = (resource, namespace)
        else:
            listed = {each["metric"]: each for each in await self._metrics()}
            scoped = listed.get(metric, {}).get("namespaced", {}).get(resource, True)
            parts = (namespace, resource, "*") if scoped else (resource, "*")
        explained = await self._explanation(await self._client.request(parts, metric))
        return View(
            title=f"{metric} of {resource}",
            template="metric.html",
            document={**explained, "autoscalers": [each.key for each in users]},
            lines=list(explanation_text.lines(explained)),
            more={"metric": metric, "resource": resource, "namespace": namespace},
        )

    async def exporters(self, _query: Query) -> View:
        """Return the exporters, model servers and gateways in Prometheus, with findings."""
        prometheus = self._needed_prometheus()
        try:
            found = await self._cached("exporters", lambda: detection.report(prometheus))
        except errors.BackendError as error:
            raise UnreadableError(f"Prometheus did not answer: {error}") from error
        summary = f"{counted(len(found.exporters), 'exporter')}; flags that fit: "
        summary += " ".join(found.flags) or "none"
        items = [
            {
                "title": each.generation.title,
                "release": each.release,
                "presets": list(each.presets),
                "metrics": list(each.metrics),
                "pods": list(each.pods),
                "findings": [finding.sentence for finding in each.findings],
            }
            for each in found.exporters
        ]
        findings = [each.sentence for each in found.findings]
        return View(
            title="Exporters",
            template="exporters.html",
            document={"summary": summary, "items": items, "findings": findings},
            lines=[summary, *found.sentences],
        )

    async def adapter(self, _query: Query) -> View:
        """Return the pods of the adapter with their health checks, and numbers of its work."""
        try:
            pods = await self._cached("adapter", self._pods)
        except errors.BackendError as error:
            raise UnreadableError(f"the pods of the adapter cannot be read: {error}") from error
        numbers = await self._cached("numbers", self._numbers)
        checks = [each for pod in pods for each in pod["checks"]]
        wrong = sum(each["state"] != State.OK for each in checks)
        summary = f"{counted(len(pods), 'pod')}, {counted(wrong, 'health check')} not ok"
        return View(
            title="Adapter",
            template="adapter.html",
            document={"summary": summary, "pods": pods, "numbers": numbers},
            lines=[
                summary,
                *(f"{each['name']}: {each['value']}" for each in numbers),
                *(f"{each['state']:<8}{each['name']}: {each['text']}" for each in checks),
            ],
        )

    def _needed_prometheus(self) -> Prometheus:
        if self._prometheus is None:
            message = "the URL of Prometheus is not known. Start the console with --prometheus-url"
            raise UnreadableError(message, status=404)
        return self._prometheus

    async def _rows(self) -> tuple[Row, ...]:
        try:
            return await self.autoscalers_seen.rows()
        except errors.BackendError as error:
            raise UnreadableError(f"autoscalers cannot be listed: {error}") from error

    async def _cached(self, key: str, load: Callable[[], Coroutine[Any, Any, T]]) -> T:
        value: T = await self._answers.get(key, load)
        return value

    async def _metrics(self) -> list[Document]:
        return await self._cached("metrics", self._list_metrics)

    async def _list_metrics(self) -> list[Document]:
        """Return each metric with its kinds of objects. Raises UnreadableError."""
        kinds: dict[str, dict[str, bool]] = {}
        problems = []
        for api, resource in ((CUSTOM, ""), (EXTERNAL, _EXTERNAL)):
            try:
                version = await self._client.version() if api is CUSTOM else ""
                listed = await self._kube.get(api.path(version))
            except (UnreadableError, errors.BackendError) as error:
                problems.append(str(error))
                continue
            for each in listed.get("resources") or ():
                kind, _, metric = each["name"].rpartition("/")
                kinds.setdefault(metric, {})[kind or resource] = bool(each["namespaced"])
        if not kinds:
            raise UnreadableError(problems[0] if problems else "no metric is listed")
        return [
            {"metric": metric, "objects": sorted(found), "namespaced": found}
            for metric, found in sorted(kinds.items())
        ]

    async def _pods(self) -> list[Document]:
        installed = installation.Installed(
            api=self._kube,
            service=self._installation.service,
            namespace=self._installation.namespace,
            user="",
        )
        found = []
        for pod in await installed.pods():
            reply = await installation.readyz(installed, pod)
            found.append(_pod(pod, reply.body.decode(errors="replace"), reply.status))
        return found

    async def _numbers(self) -> list[Document]:
        """Return the numbers of the adapter's own metrics, if Prometheus has them."""
        if self._prometheus is None:
            return [{"name": "numbers", "value": "not known without --prometheus-url"}]
        found: list[Document] = []
        for name, query in _NUMBERS.items():
            try:
                result = await self._prometheus.query(query)
            except errors.BackendError as error:
                return [{"name": "numbers", "value": str(error)}]
            if result.samples and math.isfinite(value := result.samples[0].value):
                found.append({"name": name, "value": f"{value:.4g}"})
        return found or [{"name": "numbers", "value": "Prometheus does not scrape the adapter"}]

    async def _history(
        self, hpa: Autoscaler, events: Iterable[Document]
    ) -> tuple[Sequence[seen.Sample], str]:
        """Return what is recorded elsewhere, then what was seen here, and a sentence about both."""
        own = self.autoscalers_seen.samples(f"{hpa.namespace}/{hpa.name}")
        past, missing = await self._recorded(hpa)
        source = "From kube-state-metrics"
        if not past:
            past, source = history.rescales(events), "Desired replicas from Events"
        before = [each for each in past if not own or each.time < own[0].time]
        here = "as seen since the console was started"
        sentence = f"{source}, and {here}" if before else here.capitalize()
        return [*before, *own], "; ".join(filter(None, (sentence, missing)))

    async def _recorded(self, hpa: Autoscaler) -> tuple[Sequence[seen.Sample], str]:
        """Return the history in Prometheus; what is missing if there is none."""
        prometheus = self._prometheus
        if prometheus is None:
            return (), "--prometheus-url allows more"

        async def load() -> Sequence[seen.Sample]:
            query, now = history.query(hpa.namespace, hpa.name), time.time()
            start = now - history.SECONDS
            found = await prometheus.query_range(query, start, now, history.STEP)
            return history.samples(hpa, found.content)

        try:
            past = await self._cached(f"history {hpa.namespace}/{hpa.name}", load)
        except errors.BackendError as error:
            return (), f"Prometheus: {error}"
        if not past:
            return (), "Prometheus has no series of kube-state-metrics about this autoscaler"
        return past, ""

    async def _queries(self, requests: Iterable[reading.Request | None]) -> list[Document]:
        """Return the queries of the metrics that the adapter explains."""
        found: list[Document] = []
        for request in requests:
            if request is None or not explains(request):
                continue
            with contextlib.suppress(UnreadableError):
                explained = await self._explanation(request)
                metric = explained["request"]["metric"]
                found += [{"metric": metric, **each} for each in explained["queries"]]
        return found

    async def _explanation(self, request: reading.Request) -> Document:
        return await self._cached(
            f"explanation {request}", lambda: self._client.explanation(request)
        )

    async def _events(self, hpa: Autoscaler) -> Sequence[Document]:
        """Return the Events of an autoscaler, newest first; one that says why if there are none.

        Those of a former autoscaler of the same name have another uid.
        """
        selector = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.uid={hpa.uid}"
        try:
            listed = await self._kube.get(
                _EVENTS.format(hpa.namespace), {"fieldSelector": selector, "limit": "500"}
            )
        except errors.BackendError as error:
            return [_event({"reason": "Unreadable", "message": str(error), "type": "Warning"})]
        found = [_event(each) for each in listed.get("items") or ()]
        return sorted(found, key=lambda each: str(each["time"]), reverse=True)[:_MAX_EVENTS]


def _event(document: Document) -> Document:
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


def _event_line(event: Document) -> str:
    return (
        f"  {event['time']}  {event['type']}  {event['reason']} x{event['count']}: "
        f"{' '.join(str(event['message']).split())}"
    )


def _pod(pod: Document, text: str, status: int) -> Document:
    """Return what is shown of a pod of the adapter; `text` is its answer to /readyz?verbose."""
    found = pod.get("status") or {}
    containers = found.get("containerStatuses") or ()
    states = {"[+]": State.OK, "[!]": State.WARNING, "[-]": State.FAILURE}
    checks = [
        {"state": states[line[:3]], "name": line[3:].split(" ", 1)[0], "text": line[3:]}
        for line in text.splitlines()
        if line[:3] in states
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


def _cells(row: Document) -> tuple[str, ...]:
    """Return the cells of a row of the list as text."""
    metrics = ", ".join(
        f"{each['name']} {each['current'] or '<unknown>'}/{each['target']}"
        for each in row["metrics"]
    )
    return (
        row["state"],
        f"{row['namespace']}/{row['name']}",
        row["target"],
        metrics,
        "->".join(
            "?" if each is None else str(each)
            for each in (row["currentReplicas"], row["desiredReplicas"])
        ),
        " ".join(row["sentence"].split()),
    )


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns; control characters are escaped before the alignment."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
