"""Parses a rules file into frozen values that carry their position in the file.

Templates and patterns stay text here; `rules.ruleset` compiles them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from rules.document import ahead, schema, sources, yaml
from rules.document.ahead import Ahead
from rules.document.schema import Fields, SchemaPath
from rules.document.sources import DEFAULT, PrometheusSource
from rules.document.where import Where, where_of
from rules.document.yaml import MappingEntry, MappingNode, Node, Scalar
from rules.findings import Finding, State, in_file

Aggregate = Literal["avg", "max", "min", "sum", "error"]
OnNaN = Literal["missing", "zero"]
Workloads = Literal["avg", "max", "min", "sum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFilter:
    """One entry of `seriesFilters`; `naming` checks that exactly one of the two is set."""

    is_: str = ""
    is_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One entry of `resources.overrides`: the label whose values are names of a resource."""

    label: str
    group: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMapping:
    """`resources`: which labels name Kubernetes resources."""

    template: str = ""
    overrides: tuple[Override, ...] = ()
    """In the order of the file: of several labels for one resource, the first has priority."""
    namespaced: bool | None = None
    """External rules only; None means true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMapping:
    """`name`: how the name of a series becomes the name of a metric."""

    matches: str = ""
    as_: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMissing:
    """`onMissing`: the value of a requested object that has no sample."""

    value: float | None = None
    """A constant; None for `onMissing: error`, which omits the object."""
    last_known: float | None = None
    """Seconds for which the last value of the object is used; None disables this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of `rules` or `externalRules`."""

    series_query: str
    series_filters: tuple[SeriesFilter, ...] = ()
    resources: ResourceMapping
    name: NameMapping = NameMapping()
    metrics_query: str
    aggregate: Aggregate = "avg"
    on_missing: OnMissing = OnMissing()
    on_nan: OnNaN | Literal["keep"] = "missing"
    """`keep`, which no file can say, is for the queries of `resourceRules`."""
    freshness: float | None = None
    """Seconds for which an evaluation answers later requests; None for the server's setting."""
    max_sample_age: float | None = None
    """Seconds after which an object whose series have no sample any more is missing, or None."""
    min_pod_age: float | None = None
    """Seconds for which a pod must have been Ready, or None."""
    workloads: Workloads | None = None
    """How values of pods become one of their workload, or None."""
    ahead: Ahead | None = None
    merge: bool = False
    source: str = DEFAULT
    """Name of the Prometheus that is queried."""
    allow_partial_response: bool | None = None
    """Whether partial responses count as whole ones; None for the server's setting."""
    where: Where = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRule:
    """`resourceRules.cpu` or `.memory`."""

    container_query: str
    node_query: str
    resources: ResourceMapping
    container_label: str
    where: Where = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """`resourceRules`: the rules of metrics.k8s.io."""

    cpu: ResourceRule
    memory: ResourceRule
    window_ns: int
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The content of a rules file."""

    sources: tuple[PrometheusSource, ...] = ()
    rules: tuple[Rule, ...]
    external_rules: tuple[Rule, ...]
    resource_rules: ResourceRules | None


SECTIONS = ("rules", "externalRules", "resourceRules")
"""Keys of a rules file."""
_RULE = (
    "seriesQuery",
    "seriesFilters",
    "resources",
    "name",
    "metricsQuery",
    "aggregate",
    "onMissing",
    "onNaN",
    "freshness",
    "maxSampleAge",
    "minPodAge",
    "workloads",
    "ahead",
    "merge",
    "source",
    "allowPartialResponse",
)
_RESOURCE_RULE = ("containerQuery", "nodeQuery", "resources", "containerLabel")


Parsed = tuple[Config | None, tuple[Finding, ...]]
"""The configuration, None for invalid YAML, and every problem. Use it only without errors."""


def parse(text: str | bytes, *, file: str) -> Parsed:
    """Parse a rules file; `file` is its name in problems."""
    node, problems = yaml.load(text, file=file)
    if node is None and any(problem.state is State.FAILURE for problem in problems):
        return None, problems
    return parse_node(node, file=file, problems=problems)


def parse_node(node: Node | None, *, file: str, problems: Sequence[Finding] = ()) -> Parsed:
    """Parse the root of a rules file; `problems` are those of its YAML."""
    found = list(problems)
    top = Fields(SchemaPath(file, "", found), node, known=(*SECTIONS, "sources"))
    if not found and not any(map(top.get, (*SECTIONS, "sources"))):
        message = f"contains no rules: the keys for rules are {', '.join(SECTIONS)}"
        found.append(in_file(State.WARNING, message, file=file))
    return parse_sections(top, *SECTIONS)


def parse_sections(top: Fields, rules: str, external: str, resource: str) -> Parsed:
    """Parse `sources`, and rules, external rules and resource rules at these keys of `top`."""
    config = Config(
        sources=sources.parse(top),
        rules=tuple(_rules(top, rules)),
        external_rules=tuple(_rules(top, external)),
        resource_rules=_resource_rules(top, resource),
    )
    return config, tuple(top.record.problems)


def _rules(top: Fields, key: str) -> Iterator[Rule]:
    for path, node in top.items(key):
        record = top.record.below(path)
        rule = Fields(record, node, known=_RULE)
        yield Rule(
            series_query=rule.text("seriesQuery"),
            series_filters=tuple(_filter(record, *each) for each in rule.items("seriesFilters")),
            resources=_resources(rule),
            name=_name(rule),
            metrics_query=rule.text("metricsQuery"),
            aggregate=cast("Aggregate", rule.choice("aggregate", get_args(Aggregate))),
            on_missing=_on_missing(rule),
            on_nan=cast("OnNaN", rule.choice("onNaN", get_args(OnNaN))),
            freshness=_seconds(rule.duration("freshness")),
            max_sample_age=_positive(rule, "maxSampleAge"),
            min_pod_age=_positive(rule, "minPodAge"),
            workloads=_workloads(rule),
            ahead=_ahead(rule),
            merge=bool(rule.flag("merge")),
            source=rule.text("source") or DEFAULT,
            allow_partial_response=rule.flag("allowPartialResponse"),
            where=where_of(record, node),
        )
        _warn_of_absent(rule, node)


def _workloads(rule: Fields) -> Workloads | None:
    if rule.get("workloads") is None:
        return None
    return cast("Workloads", rule.choice("workloads", get_args(Workloads)))


def _ahead(rule: Fields) -> Ahead | None:
    if rule.get("ahead") is None:
        return None
    fields = rule.fields("ahead", known=("season", "horizon"))
    season, horizon = _seconds(fields.duration("season")), _positive(fields, "horizon")
    if fields.get("season") is None:
        rule.error("ahead", "has no season: write after which time the load repeats, such as 7d")
    elif season is not None and (problem := ahead.problem(season, horizon)):
        fields.error(*problem)
    return Ahead(season=season or 0.0, horizon=horizon)


def _warn_of_absent(rule: Fields, node: Node) -> None:
    if yaml.is_null(node):
        message = "is an empty rule, which produces no metric: remove it"
        rule.record.report(State.WARNING, "", node, message)
        return
    for key, consequence in (
        ("seriesQuery", "Prometheus rejects an empty selector, so the rule produces no metric"),
        ("metricsQuery", "every request for the rule's metrics fails"),
    ):
        if rule.get(key) is None:
            rule.record.report(State.WARNING, "", node, f"has no {key}: {consequence}")


def _filter(record: SchemaPath, path: str, node: Node) -> SeriesFilter:
    fields = Fields(record, node, path, known=("is", "isNot"))
    entry = SeriesFilter(is_=fields.text("is"), is_not=fields.text("isNot"))
    if fields.get("is") and fields.get("isNot") and bool(entry.is_) != bool(entry.is_not):
        empty = "isNot" if entry.is_ else "is"
        record.report(State.WARNING, path, node, f"{empty} is empty and has no effect: remove it")
    return entry


def _resources(rule: Fields) -> ResourceMapping:
    fields = rule.fields("resources", known=("template", "overrides", "namespaced"))
    overrides = [_override(fields.record, *each) for each in fields.entries("overrides")]
    return ResourceMapping(
        template=fields.text("template"),
        overrides=tuple(override for override in overrides if override.label),
        namespaced=fields.flag("namespaced"),
    )


def _override(record: SchemaPath, path: str, entry: MappingEntry) -> Override:
    label = entry.key.text
    schema.warn_of_type(record, path, entry.key)
    if not label:
        message = "the label of an override is empty, so it is ignored: write the label's name"
        record.report(State.WARNING, path, entry.key, message)
    fields = Fields(record, entry.value, path, known=("group", "resource"))
    return Override(label=label, group=fields.text("group"), resource=fields.text("resource"))


def _name(rule: Fields) -> NameMapping:
    fields = rule.fields("name", known=("matches", "as"))
    return NameMapping(matches=fields.text("matches"), as_=fields.text("as"))


def _on_missing(rule: Fields) -> OnMissing:
    node = rule.get("onMissing")
    if isinstance(node, Scalar):
        if node.text != "error":
            rule.error("onMissing", "must be error, {value: NUMBER} or {lastKnown: DURATION}")
        return OnMissing()
    fields = rule.fields("onMissing", known=("value", "lastKnown"))
    value, last_known = fields.number("value"), fields.duration("lastKnown")
    if isinstance(node, MappingNode) and bool(fields.get("value")) == bool(fields.get("lastKnown")):
        rule.error("onMissing", "must have exactly one of value and lastKnown")
    if last_known == 0:
        fields.error("lastKnown", "must be longer than 0s: to use no last value, remove onMissing")
    return OnMissing(value=value, last_known=_seconds(last_known or None))


def _positive(fields: Fields, key: str) -> float | None:
    """Return a duration in seconds that must not be 0; None when absent."""
    duration = fields.duration(key)
    if duration == 0:
        fields.error(key, "must be longer than 0s: to set no limit, remove it")
    return _seconds(duration or None)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _resource_rules(top: Fields, key: str) -> ResourceRules | None:
    node = top.get(key)
    if node is None:
        return None
    record = top.record.below(yaml.join(top.path, key))
    fields = Fields(record, node, known=("cpu", "memory", "window"))
    rules = ResourceRules(
        cpu=_resource_rule(fields, "cpu", node),
        memory=_resource_rule(fields, "memory", node),
        window_ns=fields.duration("window") or 0,
        where=where_of(record, node),
    )
    if not rules.window_ns:
        message = "is not set: metrics.k8s.io reports a window of 0s, which means unknown"
        record.report(State.WARNING, "window", node, message)
    return rules


def _resource_rule(rules: Fields, key: str, parent: Node) -> ResourceRule:
    record = rules.record.below(key)
    node = rules.get(key) or parent
    fields = Fields(record, rules.get(key), known=_RESOURCE_RULE)
    for query, objects in (("containerQuery", "pods"), ("nodeQuery", "nodes")):
        if fields.get(query) is None:
            message = f"has no {query}: metrics.k8s.io serves no metrics of {objects}"
            record.report(State.WARNING, "", node, message)
    return ResourceRule(
        container_query=fields.text("containerQuery"),
        node_query=fields.text("nodeQuery"),
        resources=_resources(fields),
        container_label=fields.text("containerLabel"),
        where=where_of(record, node),
    )
