"""The views: what each page, its JSON and its text show, from what the console reads."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from adapter import yaml_encoding
from adapter.cli import output
from adapter.cli.console import autoscalers as seen
from adapter.cli.console import chart, listing
from adapter.cli.console import history as past
from adapter.cli.console.listing import RowQuery
from adapter.cli.console.reader import ClusterReader
from adapter.cli.console.rows import STATES, label
from adapter.cli.doctor import advise, replay, report
from adapter.cli.doctor.client import EXTERNAL_RESOURCE
from adapter.settings.flag import PERIOD
from rules import quantity
from rules.causes import explanation_text
from rules.document.ahead import parse as parse_ahead
from rules.errors import UnreadableError
from rules.findings import State
from rules.hpa import advice_report, replay_report
from rules.hpa.proposal import Proposal
from rules.quoting import counted

Document = Mapping[str, Any]

_MAX_NOTES = 3
"""Missing rights to read metrics that a page names."""
_DAY = "1d"
"""Period that is replayed if the address has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery(RowQuery):
    """What a request asks of a view, beside its address."""

    since: str = ""
    """Period to replay."""
    target: str = ""
    """Comma-separated targets to replay."""
    ahead: str = ""
    """SEASON:HORIZON of a forecast to replay."""
    objective: str = ""
    """METRIC < LIMIT, to advise on."""
    range: str = ""
    """Time range of charts."""
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
    state: str = ""
    """What the verdict says, for its colour; empty if it is neither good nor bad."""


Show = Callable[..., Coroutine[Any, Any, View]]
"""Takes the query, and the parts of the address by name."""


class Views:
    """The views of one cluster. Each raises UnreadableError if there is nothing to show."""

    def __init__(self, reader: ClusterReader) -> None:
        self.reader = reader
        self.by_address: Mapping[str, Show] = {
            "autoscalers": self.autoscalers,
            "autoscalers/{namespace}/{name:[^/]+?}": self.autoscaler,
            "autoscalers/{namespace}/{name:[^/]+}/replay": self.replay,
            "autoscalers/{namespace}/{name:[^/]+}/advise": self.advise,
            "metrics": self.metrics,
            "metrics/{resource}/{metric:[^/]+?}": self.metric,
            "rules": self.rules,
            "exporters": self.exporters,
            "doctor": self.doctor,
            "adapter": self.adapter,
        }
        """In the order of the navigation, which has those of one word."""

    async def autoscalers(self, query: PageQuery) -> View:
        """Return the autoscalers that match, errors first."""
        found = listing.page(await self.reader.rows(), query)
        known = [each.key for each in found.rows]
        visible = [key for key in query.visible if key in known] or known
        self.reader.autoscalers.show(visible[: seen.MAX_SHOWN])
        now = time.time()
        documents = [each.document(now) for each in found.rows]
        unread = dict.fromkeys(each.denied for each in found.rows if each.denied)
        notes = [*self.reader.autoscalers.denied, *list(unread)[:_MAX_NOTES]]
        return View(
            title="Autoscalers",
            template="autoscalers.html",
            document={"summary": found.summary, "matching": found.matching, "notes": notes}
            | {"items": documents},
            lines=[found.summary, *notes, *output.table(map(_cells, documents))],
            more={"found": found, "shown": query},
        )

    async def autoscaler(self, query: PageQuery, namespace: str, name: str) -> View:
        """Return one autoscaler: its decision, history, Events and queries."""
        key = f"{namespace}/{name}"
        within = listing.choice("range", query.range or past.RANGE, tuple(past.RANGES))
        try:
            explained = await self.reader.decision(namespace, name)
        except UnreadableError as error:
            row = self.reader.autoscalers.row(namespace, name)
            if row is None or not row.sentence or not error.status:
                raise
            return View(
                title=key,
                template="problem.html",
                document={"error": row.sentence, "state": row.label},
                lines=[key, row.sentence],
                state=row.label,
            )
        hpa = explained.observed.hpa
        events = await self.reader.events(hpa)
        samples, source = await self.reader.history(hpa, events, past.RANGES[within])
        state = self.reader.state(explained)
        requests = explained.observed.requests
        queries = await self.reader.queries(requests)
        document = explained.document()
        seconds = [each["seconds"] for each in document["reaction"]["terms"]]
        return View(
            title=key,
            template="autoscaler.html",
            document={
                **document,
                "state": label(state),
                "events": events,
                "history": [each.document() for each in samples],
                "historySource": source,
                "values": _values_of_pods(explained.observed.proposals),
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
                "charts": chart.of_samples(hpa, samples),
                "begins": [*itertools.accumulate(seconds, initial=0.0)],
                "replays": self.reader.prometheus is not None,
                "since": _DAY,
                "range": within,
                "ranges": tuple(past.RANGES),
                "queries": queries,
            },
            state=label(state),
        )

    async def replay(self, query: PageQuery, namespace: str, name: str) -> View:
        """Return what an autoscaler would have done in the past with other targets."""
        prometheus = self.reader.needed_prometheus()
        since = _period(query.since)
        targets = tuple(each.strip() for each in query.target.split(",") if each.strip())
        try:
            of_forecast = parse_ahead(query.ahead)
        except ValueError as error:
            raise UnreadableError(f"ahead={query.ahead}: {error}", status=400) from error
        wanted = replay.ReplayOptions(since=since, targets=targets, ahead=of_forecast)

        async def load() -> View:
            found = await replay.run(self.reader.client, prometheus, namespace, name, wanted)
            return View(
                title=f"Replay of {namespace}/{name}",
                template="replay.html",
                document=replay_report.document(found),
                lines=list(replay_report.lines(found)),
                more={
                    **replay_variables(found),
                    "since": query.since or _DAY,
                    "target": ",".join(targets),
                    "ahead": query.ahead,
                },
            )

        return await self.reader.cached(f"replay {namespace}/{name} {wanted}", load)

    async def advise(self, query: PageQuery, namespace: str, name: str) -> View:
        """Return the target by which an autoscaler keeps an objective."""
        prometheus = self.reader.needed_prometheus()
        wanted = advise.AdviseOptions(objective=query.objective, since=_period(query.since))

        async def load() -> View:
            found = await advise.run(self.reader.client, prometheus, namespace, name, wanted)
            more = advise_variables(found)
            return View(
                title=f"Advice for {namespace}/{name}",
                template="advise.html",
                document=advice_report.document(found),
                lines=[*advice_report.lines(found), "", *more["yaml"].splitlines()],
                more={**more, "since": query.since or _DAY, "given": query.objective},
            )

        return await self.reader.cached(f"advise {namespace}/{name} {wanted}", load)

    async def doctor(self, _query: PageQuery) -> View:
        """Return the findings of doctor."""
        findings = await self.reader.findings()
        *_, summary = lines = list(report.lines(findings))
        document = report.document(findings)
        return View(
            title="Doctor",
            template="doctor.html",
            document={"summary": summary, **document},
            lines=lines,
            state=_worst(each.state for each in findings),
        )

    async def metrics(self, query: PageQuery) -> View:
        """Return the metrics that the API server lists."""
        items = [
            each
            for each in await self.reader.metrics()
            for text in [f"{each['metric']} {' '.join(each['objects'])}".lower()]
            if all(word in text for word in query.words)
        ]
        summary = counted(len(items), "metric")
        return View(
            title="Metrics",
            template="metrics.html",
            document={"summary": summary, "search": query.search, "items": items},
            lines=[
                summary,
                *output.table((each["metric"], ", ".join(each["objects"])) for each in items),
            ],
        )

    async def metric(self, query: PageQuery, resource: str, metric: str) -> View:
        """Return how the values of a metric come about, for the objects of one namespace."""
        users = [
            each
            for each in await self.reader.rows()
            if any(value.metric.name == metric for value in each.values)
        ]
        namespace = query.namespace or next((each.namespace for each in users), "default")
        if resource == EXTERNAL_RESOURCE:
            parts: tuple[str, ...] = (namespace,)
        elif resource == "namespaces":
            parts = (resource, namespace)
        else:
            listed = {each["metric"]: each for each in await self.reader.metrics()}
            scoped = listed.get(metric, {}).get("namespaced", {}).get(resource, True)
            parts = (namespace, resource, "*") if scoped else (resource, "*")
        explained = await self.reader.explanation(await self.reader.client.request(parts, metric))
        return View(
            title=f"{metric} of {resource}",
            template="metric.html",
            document={**explained, "autoscalers": [each.key for each in users]},
            lines=list(explanation_text.lines(explained)),
            more={"metric": metric, "resource": resource, "namespace": namespace},
            state="failure" if explained["causes"] else "ok",
        )

    async def rules(self, query: PageQuery) -> View:
        """Return the rules in use that match the search: the rows of the command `rules`."""
        notes, every = await self.reader.rules()
        rows = [
            row
            for row in every
            if all(word in " ".join(row.values()).lower() for word in query.words)
        ]
        summary = counted(len(rows), "rule")
        relists = await self.reader.relists()
        return View(
            title="Rules",
            template="rules.html",
            document={"summary": summary, "notes": notes, "relists": relists, "items": rows},
            lines=[summary, *relists, *notes, *output.table(tuple(each.values()) for each in rows)],
            more={"search": query.search},
        )

    async def exporters(self, _query: PageQuery) -> View:
        """Return the exporters, model servers and gateways in Prometheus, with findings."""
        found = await self.reader.exporters()
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
            state=_worst(
                finding.state
                for finding in (*found.findings, *(f for e in found.exporters for f in e.findings))
            ),
        )

    async def adapter(self, _query: PageQuery) -> View:
        """Return the pods of the adapter with their health checks, and numbers of its work."""
        pods, numbers = await self.reader.pods(), await self.reader.numbers()
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
            state=_worst(each["state"] for each in checks),
        )


def _period(text: str) -> float:
    """Return the seconds of a period. Raises UnreadableError."""
    try:
        return PERIOD.parse(text or _DAY)
    except ValueError as error:
        raise UnreadableError(f"since={text}: {error}", status=400) from error


def advise_variables(advised: advice_report.Advice) -> Document:
    """Return what the page of advice shows beside the document."""
    manifest = advised.manifest
    return {
        "yaml": yaml_encoding.encode(manifest).decode() if manifest else "",
        "curve_columns": advice_report.CURVES,
        "curve_rows": [
            (each.metric.name, advice_report.curve_cells(each)) for each in advised.curves
        ],
        "columns": advice_report.COLUMNS,
        "rows": [(title, cells) for title, *cells in advice_report.result_rows(advised)],
        "charts": chart.of_advice(advised),
    }


def replay_variables(replayed: replay_report.Replay) -> Document:
    """Return what the page of a replay shows beside the document."""
    return {
        "columns": replay_report.COLUMNS,
        "rows": [(each.title, replay_report.cells(each)) for each in replayed.results],
        "week": replay_report.WEEK,
        "of_week": replay_report.OF_WEEK,
        "week_columns": replay_report.WEEK_COLUMNS,
        "week_rows": [
            (begin, cells) for begin, *cells in map(replay_report.week_cells, replayed.weeks)
        ],
        "charts": chart.of_replay(replayed),
    }


def _values_of_pods(proposals: Sequence[Proposal]) -> list[Document]:
    """Return each pod with its values, or why it has none, by metrics of pods."""
    found: dict[str, dict[str, str]] = {}
    for each in proposals:
        groups, unit = each.groups, each.metric.unit
        texts = {
            **dict.fromkeys(groups.missing, "no value"),
            **{pod: quantity.readable(one.value, unit) for pod, one in each.values.items()},
            **dict.fromkeys(groups.unready, "not ready: does not count"),
            **dict.fromkeys(groups.ignored, "ends or failed: does not count"),
        }
        for pod, text in texts.items():
            found.setdefault(pod, {})[each.metric.name] = text
    return [{"pod": pod, "metrics": texts} for pod, texts in sorted(found.items())]


def _worst(states: Iterable[State]) -> str:
    found = set(states)
    return next((str(each) for each in STATES if each in found), "")


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
        "->".join(
            "?" if each is None else str(each)
            for each in (row["currentReplicas"], row["desiredReplicas"])
        ),
        " ".join(row["sentence"].split()),
    )
