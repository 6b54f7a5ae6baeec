"""The views: what each page, its JSON and its text show, from what the console reads."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from adapter import errors, settings
from adapter.cache import SingleFlightCache
from adapter.clients.kubernetes import Kube
from adapter.console import autoscalers as seen
from adapter.console import chart
from adapter.console.autoscalers import Autoscalers
from adapter.console.chart import Chart, Series
from adapter.doctor import autoscaler, checks, report
from adapter.doctor.autoscaler import Explained
from adapter.doctor.client import CannotTellError, Client
from adapter.doctor.report import Finding, State
from rules.quoting import counted, escaped

Document = Mapping[str, Any]

_EXPLAINED = 10.0
"""Seconds for which an explanation, and with it all requests for it, is kept."""
_MAX_EXPLAINED = 100
_CHECKED = 60.0
"""Seconds for which the findings of doctor are kept."""
_MAX_EVENTS = 50
_EVENTS = "/api/v1/namespaces/{}/events"


class NoViewError(Exception):
    """There is nothing to show; the message says why and what to do."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What a request asks of a view, beside its address."""

    search: str = ""
    visible: tuple[str, ...] = ()
    """Keys of the rows that are on the screen."""


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
    """The views of one cluster. Each raises NoViewError if there is nothing to show."""

    def __init__(self, kube: Kube, installation: Installation) -> None:
        self.autoscalers_seen = Autoscalers(kube)
        self._kube = kube
        self._client = Client(kube)
        self._installation = installation
        self._explained: SingleFlightCache[str, Explained] = SingleFlightCache(
            ttl=lambda *_: _EXPLAINED, max_size=_MAX_EXPLAINED
        )
        self._checked: SingleFlightCache[str, tuple[Finding, ...]] = SingleFlightCache(
            ttl=lambda *_: _CHECKED, max_size=1
        )

    async def autoscalers(self, query: Query) -> View:
        """Return all autoscalers that match the search, errors first."""
        try:
            every = await self.autoscalers_seen.rows()
        except errors.BackendError as error:
            raise NoViewError(502, f"autoscalers cannot be listed: {error}") from error
        words = query.search.lower().split()
        rows = [each for each in every if each.matches(words)]
        known = {each.key for each in rows}
        visible = [key for key in query.visible if key in known] or [each.key for each in rows]
        self.autoscalers_seen.show(visible[: seen.MAX_SHOWN])
        now = time.time()
        counts = {state: sum(each.state is state for each in every) for state in State}
        summary = (
            f"{counted(len(every), 'autoscaler')}: {counted(counts[State.FAILURE], 'failure')}, "
            f"{counted(counts[State.WARNING], 'warning')}"
        )
        if words:
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
        explained = await self._explain(key)
        events = await self._events(namespace, name)
        samples = self.autoscalers_seen.samples(key)
        history = [
            {
                "time": round(each.time, 3),
                "currentReplicas": each.present,
                "desiredReplicas": each.wanted,
                "metrics": list(each.values),
            }
            for each in samples
        ]
        document = {**explained.document(), "events": events, "seen": history}
        lines = [*explained.lines(), "", "Events", *(_event_line(each) for each in events)]
        return View(
            title=key,
            template="autoscaler.html",
            document=document,
            lines=lines,
            more={
                "steps": list(explained.lines())[:-1],
                "charts": _charts(explained, samples),
                "queries": _queries(explained),
            },
        )

    async def doctor(self, _query: Query) -> View:
        """Return the findings of doctor."""
        findings = await self._checked.get("", self._check)
        *_, summary = lines = list(report.lines(findings))
        document = orjson.loads(report.as_json(findings))
        return View(
            title="Doctor",
            template="doctor.html",
            document={"summary": summary, **document},
            lines=lines,
        )

    async def _explain(self, key: str) -> Explained:
        namespace, _, name = key.partition("/")
        try:
            return await self._explained.get(
                key, lambda: autoscaler.explain(self._client, namespace, name, every=True)
            )
        except CannotTellError as error:
            raise NoViewError(error.status if error.status == 404 else 502, str(error)) from error

    async def _events(self, namespace: str, name: str) -> Sequence[Document]:
        """Return the Events of an autoscaler, newest first; one that says why if there are none."""
        selector = f"involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name}"
        try:
            listed = await self._kube.get(
                _EVENTS.format(namespace), {"fieldSelector": selector, "limit": "500"}
            )
        except errors.BackendError as error:
            return [_event({"reason": "Unreadable", "message": str(error), "type": "Warning"})]
        found = [_event(each) for each in listed.get("items") or ()]
        return sorted(found, key=lambda each: str(each["time"]), reverse=True)[:_MAX_EVENTS]

    async def _check(self) -> tuple[Finding, ...]:
        installation = self._installation
        _, findings = await checks.examine(
            installation.kubeconfig,
            service=installation.service,
            namespace=installation.namespace,
            prometheus=installation.prometheus,
        )
        return findings


def _queries(explained: Explained) -> list[Document]:
    """Return the queries of all metrics that the adapter explains."""
    return [
        {"metric": each["request"]["metric"], **query}
        for each in explained.explanations.values()
        for query in each.get("queries") or ()
    ]


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
        f"{row['currentReplicas']}->{row['desiredReplicas']}",
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


def _charts(explained: Explained, samples: Sequence[seen.Sample]) -> list[Chart]:
    """Return a chart of each metric with its target, and one of replicas."""
    found = []
    for index, metric in enumerate(explained.observed.hpa.metrics):
        unit = 1.0 if metric.target == "Utilization" else 1000.0
        known = [each for each in samples if index < len(each.values)]
        points = [
            (each.time, None if (value := each.values[index]) is None else value / unit)
            for each in known
        ]
        target = [(each.time, metric.value / unit) for each in known]
        found.append(
            chart.draw(
                str(metric),
                [
                    Series(label="target", style="target", points=target),
                    Series(label="value", style="value", points=points),
                ],
            )
        )
    present = [(each.time, float(each.present)) for each in samples]
    wanted = [(each.time, float(each.wanted)) for each in samples]
    found.append(
        chart.draw(
            "Replicas",
            [
                Series(label="wanted", style="target", points=wanted, steps=True),
                Series(label="present", style="value", points=present, steps=True),
            ],
        )
    )
    return [each for each in found if each is not None]
