"""What a live server answers under a rules file: the judge of what `check` says.

The catalog is from a relist of a real Prometheus, the requests go over HTTP through the router, and
each value is evaluated by that Prometheus. Only the objects are from a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.server.cluster.manifests import FileObjects
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.series.relist import Relist
from rules.document.sources import DEFAULT
from rules.kinds import NAMESPACES, NODES, PODS, Kinds
from rules.query import resource
from rules.query.catalog import Entry
from rules.ruleset import CompiledRule, RuleSet
from tests.adapter import wired
from tests.rules.lint import series

_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_RESOURCE = "/apis/metrics.k8s.io/v1beta1"
_OTHER = "elsewhere"
"""A namespace with objects of the same names and without series."""


@dataclass(slots=True, kw_only=True)
class Observed:
    """What the server answers for the metrics of one rule."""

    series: int = 0
    """Names of series that the rule takes."""
    metrics: int = 0
    """Metrics that it makes of them."""
    served: int = 0
    """Those that are requested with the query of this rule, not with that of another one."""
    answers: dict[str, str] = field(default_factory=dict)
    """Resource, or `external` -> `value`, `no value` (404, and an empty list) or `error` (500)."""
    leaks: bool = False
    """Whether objects in a namespace without series get values, too."""

    documents: dict[str, tuple[int, tuple[object, ...]]] = field(default_factory=dict)
    """Path -> status and values of each answer."""

    def note(self, resource: str, outcome: str) -> None:
        """Keep the outcome, unless another request failed already."""
        if self.answers.get(resource, "value") == "value":
            self.answers[resource] = outcome


async def observe(
    rules: RuleSet, url: str, folder: Path, *, at: float | None = None
) -> tuple[list[Observed], dict[str, int]]:
    """Return what is observed for each rule, in order, and how many pods and nodes have usage.

    `folder` is where the file of the objects is written, `at` the Unix seconds for which queries
    are evaluated, by default the time at the server.
    """
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*_items(rules)]}))
    objects = FileObjects([file])
    async with aiohttp.ClientSession() as session:
        clients = {DEFAULT: Prometheus(session, url, clock=None if at is None else lambda: at)}
        relist = Relist(rules, clients, lambda: objects.kinds, interval=600.0, max_age=600.0)
        await relist.once()
        evaluation = Evaluation(
            clients, metrics=telemetry.EvaluationMetrics(CollectorRegistry()), freshness=0.0
        )
        compiled = resource.compile(rules.resource_rules) if rules.resource_rules else None
        router = wired.build_router(
            relist.generation.catalog, objects, evaluation, resources=compiled
        )
        try:
            async with wired.listening(router) as port:
                every = [await _observed(rule, relist, port, objects.kinds) for rule in rules.all]
                usage = {
                    path: len((await _get(port, f"{_RESOURCE}/{path}"))[1])
                    for path in ("pods", "nodes")
                    if compiled
                }
        finally:
            await evaluation.close()
    return every, usage


async def _observed(rule: CompiledRule, relist: Relist, port: int, kinds: Kinds) -> Observed:
    generation = relist.generation
    by_metric = generation.series_by_metric.get(rule.index, {})
    listing = generation.listings.get(rule.index)
    found = Observed(series=len(listing.series) if listing else 0, metrics=len(by_metric))
    if rule.section == "externalRules":
        external = [
            each for each in generation.catalog.external.values() if each.source.rule is rule
        ]
        found.served = len(external)
        namespace = series.own_namespace(rule, kinds)
        for each in external:
            if each.source.series not in series.names(rule):
                continue
            path = f"{_EXTERNAL}/namespaces/{{}}/{each.metric}"
            found.note("external", await _outcome(port, path.format(namespace), found))
            if each.namespaced:
                found.leaks |= await _outcome(port, path.format(_OTHER), found) == "value"
        return found
    named, own = series.objects(rule, kinds), series.names(rule)
    entries = [each for each in generation.catalog.entries if each.sources[0].rule is rule]
    found.served = len({each.metric for each in entries})
    for entry in entries:
        if entry.sources[0].series not in own or entry.resource not in named:
            continue  # another configuration has these series, for other objects
        namespace, name = named[entry.resource]
        for requested in (name, "*"):
            outcome = await _outcome(port, _path(entry, namespace, requested), found)
            found.note(str(entry.resource), outcome)
        if entry.namespaced:
            found.leaks |= await _outcome(port, _path(entry, _OTHER, name), found) == "value"
    return found


def _path(entry: Entry, namespace: str, name: str) -> str:
    if entry.resource == NAMESPACES:
        return f"{_CUSTOM}/namespaces/{name}/metrics/{entry.metric}"
    place = f"namespaces/{namespace}/" if entry.namespaced else ""
    return f"{_CUSTOM}/{place}{entry.resource}/{name}/{entry.metric}"


async def _outcome(port: int, path: str, found: Observed) -> str:
    status, items = await _get(port, path)
    found.documents[path] = (status, tuple(each["value"] for each in items))
    if status == 200:
        return "value" if items else "no value"
    return {404: "no value", 500: "error"}.get(status, str(status))


async def _get(port: int, path: str) -> tuple[int, list[dict[str, object]]]:
    reply = await wired.fetch(port, path)
    document = json.loads(reply.body)
    return reply.status, document.get("items") or []


def _items(rules: RuleSet) -> Iterator[Mapping[str, object]]:
    """Yield the objects that the series describe, and those of the same names elsewhere."""
    kinds = Kinds.builtin()
    named = {PODS: {(series.NAMESPACE, series.OBJECT)}, NODES: {("", series.OBJECT)}}
    for rule in rules.rules:
        for each, place_and_name in series.objects(rule, kinds).items():
            named.setdefault(each, set()).add(place_and_name)
        for custom in rule.mapping.bind(kinds).unknown:
            metadata = {"namespace": series.NAMESPACE, "name": series.OBJECT}
            kind = custom.resource.capitalize()
            yield {"apiVersion": f"{custom.group}/v1", "kind": kind, "metadata": metadata}
    for each, places in named.items():
        resolved = kinds.resolve(each.resource, each.group)
        for namespace, name in sorted(places):
            for place in (namespace, _OTHER) if resolved.namespaced else ("",):
                metadata = {"name": name, **({"namespace": place} if place else {})}
                yield {
                    "apiVersion": resolved.api_version,
                    "kind": resolved.kind,
                    "metadata": metadata,
                }
