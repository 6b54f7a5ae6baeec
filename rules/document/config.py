"""A rules file as typed values, each of which knows where it stands in the file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, cast, get_args

from rules.document import schema, yaml
from rules.document.scalars import Scalar
from rules.document.schema import Fields, Record
from rules.document.yaml import Node, Table
from rules.errors import Problem, Severity

Aggregate = Literal["avg", "max", "min", "sum", "error"]
OnNaN = Literal["missing", "zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The place of a rule in its file, and of everything below it."""

    file: str = ""
    path: str = ""
    """`rules[3]`"""
    positions: Mapping[str, tuple[int, int]] = field(default_factory=lambda: MappingProxyType({}))
    """Relative path ("" for the rule itself, `name.matches`) -> line and column, from 1."""

    scalars: Mapping[str, Scalar] = field(default_factory=lambda: MappingProxyType({}))
    """Relative path -> the text as it is written there."""

    def problem(
        self, severity: Severity, path: str, message: str, *, offset: int | None = None
    ) -> Problem:
        """A problem at `path` below this place, or at the nearest place above it that is known.

        With `offset` it stands at that character of the text at `path`.
        """
        known = path
        while known and known not in self.positions:
            known = known.rpartition(".")[0]
        line, column = self.positions.get(known, (0, 0))
        if offset is not None and known in self.scalars:
            line, column = self.scalars[known].place(offset)
        return Problem(
            severity=severity,
            message=message,
            path=yaml.join(self.path, path),
            file=self.file,
            line=line,
            column=column,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesFilter:
    """One entry of `seriesFilters`: exactly one of the two is not empty."""

    is_: str = ""
    is_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """One entry of `resources.overrides`: this label holds names of that resource."""

    label: str
    group: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceMapping:
    """`resources`: how labels stand for Kubernetes resources."""

    template: str = ""
    overrides: tuple[Override, ...] = ()
    """In the file's order, which decides where several labels stand for one resource."""
    namespaced: bool | None = None
    """External rules only; None is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameMapping:
    """`name`: how a metric's name is made of a series' name."""

    matches: str = ""
    as_: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnMissing:
    """What stands for an object that was asked for and has no sample."""

    value: float | None = None
    """A constant; None leaves the object out (`onMissing: error`)."""
    last_known: float | None = None
    """Seconds for which the object's last value may stand in; None for not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One entry of `rules` or `externalRules`."""

    series_query: str = ""
    series_filters: tuple[SeriesFilter, ...] = ()
    resources: ResourceMapping = ResourceMapping()
    name: NameMapping = NameMapping()
    metrics_query: str = ""
    aggregate: Aggregate = "avg"
    on_missing: OnMissing = OnMissing()
    on_nan: OnNaN = "missing"
    merge: bool = False
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRule:
    """`resourceRules.cpu` or `.memory`."""

    container_query: str = ""
    node_query: str = ""
    resources: ResourceMapping = ResourceMapping()
    container_label: str = ""
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRules:
    """`resourceRules`: the rules of metrics.k8s.io."""

    cpu: ResourceRule = ResourceRule()
    memory: ResourceRule = ResourceRule()
    window_ns: int = 0
    where: Where = Where()


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A whole file, or several in the order in which they were given."""

    rules: tuple[Rule, ...] = ()
    external_rules: tuple[Rule, ...] = ()
    resource_rules: ResourceRules | None = None


_FILE = ("rules", "externalRules", "resourceRules")
_RULE = (
    "seriesQuery",
    "seriesFilters",
    "resources",
    "name",
    "metricsQuery",
    "aggregate",
    "onMissing",
    "onNaN",
    "merge",
)
_PLANNED = ("maxSampleAge", "freshness", "source", "workloads", "minPodAge")


def parse(text: str | bytes, *, file: str) -> tuple[Config | None, tuple[Problem, ...]]:
    """A rules file, with everything that is wrong or odd in it.

    None when the file is no rules file at all. Otherwise what could be read: use it only if none of
    the problems is an error.
    """
    node, found = yaml.load(text, file=file)
    problems = list(found)
    if node is None and any(problem.severity == "error" for problem in found):
        return None, found
    nodes = () if node is None else (node,)
    top = Fields(Record(file, "", problems), nodes, known=_FILE, planned=("sources",))
    config = Config(
        rules=tuple(_rules(top, "rules")),
        external_rules=tuple(_rules(top, "externalRules")),
        resource_rules=_resource_rules(top),
    )
    return config, tuple(problems)


def merge(configs: Sequence[Config]) -> Config:
    """The rules of all files in their order; `resourceRules` of the last file that has them."""
    resource_rules = [each.resource_rules for each in configs if each.resource_rules]
    return Config(
        rules=tuple(rule for each in configs for rule in each.rules),
        external_rules=tuple(rule for each in configs for rule in each.external_rules),
        resource_rules=resource_rules[-1] if resource_rules else None,
    )


def _rules(top: Fields, key: str) -> Iterable[Rule]:
    for path, node in top.items(key):
        record = top.record.below(path)
        rule = Fields(record, (node,), known=_RULE, planned=_PLANNED)
        yield Rule(
            series_query=rule.text("seriesQuery"),
            series_filters=tuple(_filter(record, *each) for each in rule.items("seriesFilters")),
            resources=_resources(rule),
            name=_name(rule),
            metrics_query=rule.text("metricsQuery"),
            aggregate=cast("Aggregate", rule.choice("aggregate", get_args(Aggregate))),
            on_missing=_on_missing(rule),
            on_nan=cast("OnNaN", rule.choice("onNaN", get_args(OnNaN))),
            merge=bool(rule.flag("merge")),
            where=_where(record),
        )
        _warn_of_missing(rule, node)


def _warn_of_missing(rule: Fields, node: Node) -> None:
    if schema.is_null(node):
        message = "is an empty rule, which produces no metric: remove it, or the - before it"
        rule.record.report("warning", "", node, message)
        return
    for key, consequence in (
        ("seriesQuery", "Prometheus refuses the empty selector, so the rule produces no metric"),
        ("metricsQuery", "every request for the rule's metrics fails"),
    ):
        if not rule.given(key):
            rule.record.report("warning", "", node, f"has no {key}: {consequence}")


def _filter(record: Record, path: str, node: Node) -> SeriesFilter:
    fields = Fields(record, (node,), path, known=("is", "isNot"))
    found = SeriesFilter(is_=fields.text("is"), is_not=fields.text("isNot"))
    if fields.given("is") and fields.given("isNot") and bool(found.is_) != bool(found.is_not):
        empty = "isNot" if found.is_ else "is"
        record.report("warning", path, node, f"{empty} is empty, which means absent: leave it out")
    return found


def _resources(rule: Fields) -> ResourceMapping:
    fields = rule.fields("resources", known=("template", "overrides", "namespaced"))
    overrides = []
    for label, path, node in fields.named("overrides"):
        target = Fields(fields.record, (node,), path, known=("group", "resource"))
        overrides.append(
            Override(label=label, group=target.text("group"), resource=target.text("resource"))
        )
    return ResourceMapping(
        template=fields.text("template"),
        overrides=tuple(overrides),
        namespaced=fields.flag("namespaced"),
    )


def _name(rule: Fields) -> NameMapping:
    fields = rule.fields("name", known=("matches", "as"))
    return NameMapping(matches=fields.text("matches"), as_=fields.text("as"))


def _on_missing(rule: Fields) -> OnMissing:
    nodes = rule.values.get("onMissing", [])
    if not rule.given("onMissing"):
        return OnMissing()
    if isinstance(nodes[-1], Scalar):
        if rule.text("onMissing") != "error":
            message = "must be error, {value: NUMBER} or {lastKnown: DURATION}"
            rule.record.report("error", "onMissing", nodes[-1], message)
        return OnMissing()
    fields = rule.fields("onMissing", known=("value", "lastKnown"))
    value, last_known = fields.number("value"), fields.duration("lastKnown")
    if isinstance(nodes[-1], Table) and len(fields.values) != 1:
        message = "takes exactly one of value and lastKnown"
        rule.record.report("error", "onMissing", nodes[-1], message)
    if last_known == 0:
        message = "must be longer than 0s: leave onMissing out to have no last value"
        rule.record.report("error", "onMissing.lastKnown", fields.values["lastKnown"][-1], message)
    return OnMissing(value=value, last_known=last_known / 1e9 if last_known else None)


def _resource_rules(top: Fields) -> ResourceRules | None:
    nodes = top.values.get("resourceRules", [])
    if not nodes or (isinstance(nodes[-1], Scalar) and nodes[-1].is_absent):
        return None
    record = top.record.below("resourceRules")
    fields = Fields(record, nodes, known=("cpu", "memory", "window"))
    rules = ResourceRules(
        cpu=_resource_rule(fields, "cpu"),
        memory=_resource_rule(fields, "memory"),
        window_ns=fields.duration("window") or 0,
        where=_where(record),
    )
    if not rules.window_ns:
        message = "has no window: metrics.k8s.io answers will say 0s, which clients read as unknown"
        record.report("warning", "window", nodes[-1], message)
    return rules


def _resource_rule(rules: Fields, key: str) -> ResourceRule:
    record = rules.record.below(key)
    nodes = rules.values.get(key, [])
    fields = Fields(
        record, nodes, known=("containerQuery", "nodeQuery", "resources", "containerLabel")
    )
    for query, whose in (("containerQuery", "pods"), ("nodeQuery", "nodes")):
        if not fields.given(query) and (holder := nodes or rules.nodes):
            message = f"has no {query}: the {key} of {whose} cannot be asked, nor can their metrics"
            record.report("warning", "", holder[-1], message)
    return ResourceRule(
        container_query=fields.text("containerQuery"),
        node_query=fields.text("nodeQuery"),
        resources=_resources(fields),
        container_label=fields.text("containerLabel"),
        where=_where(record),
    )


def _where(record: Record) -> Where:
    return Where(
        file=record.file,
        path=record.path,
        positions=MappingProxyType(record.positions),
        scalars=MappingProxyType(record.scalars),
    )
