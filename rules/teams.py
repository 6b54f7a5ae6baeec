"""Rules of teams: rules files that each count in one namespace, and can read no other.

All users who may write a ConfigMap in a namespace may write them: they are trusted with no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rules import ruleset
from rules.document import config, yaml
from rules.document.config import Config, Rule
from rules.document.sources import DEFAULT
from rules.errors import ConfigError, PlanError
from rules.findings import Finding, State, in_file
from rules.limits import DEFAULT as DEFAULT_LIMITS
from rules.limits import Key, Limits
from rules.query import confined, plan
from rules.query.catalog import Catalog, Listing, Source, Step
from rules.query.label_binding import LabelBinding
from rules.query.plan import SelectedObjects
from rules.ruleset import CompiledRule, RuleSet, Team
from rules.selectors.selectors import Selector

SOURCE = "teams"
"""Name of the client of Prometheus that has limits of its own, so that it delays no other rules."""
QUERY_TIMEOUT = 5.0
"""Seconds."""
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMap:
    """A ConfigMap with rules: its place, and the texts of its files by their names."""

    namespace: str
    name: str
    data: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def read(document: Mapping[str, Any]) -> ConfigMap:
    """Return the rules files of the ConfigMap in a complete JSON document."""
    metadata, data = document["metadata"], document.get("data") or {}
    return ConfigMap(
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        data=tuple(sorted((str(key), str(data[key])) for key in data if is_rules_file(str(key)))),
    )


def is_rules_file(key: str) -> bool:
    """Return whether a key of a ConfigMap is the name of a rules file."""
    return key.endswith(_SUFFIXES)


def load(config_map: ConfigMap, *, label: str, limits: Limits = DEFAULT_LIMITS) -> RuleSet:
    """Return the rules of a ConfigMap, confined to its namespace; their indexes begin at 0.

    `label` is that of all series with their namespace. Raises ConfigError, whatever goes wrong:
    what somebody writes into one ConfigMap affects no other.
    """
    team = Team(namespace=config_map.namespace, label=label, limits=limits)
    try:
        return _load(config_map, team)
    except ConfigError:
        raise
    except Exception as error:
        message = f"cannot be loaded ({type(error).__name__}): simplify its rules"
        raise _refused(message) from error


def _load(config_map: ConfigMap, team: Team) -> RuleSet:
    files = [(name, text) for name, text in config_map.data if is_rules_file(name)]
    if not files:
        raise _refused(f"has no rules file: name one *{_SUFFIXES[0]}")
    if (size := sum(len(text) for _, text in files)) > team.limits.team_text:
        raise _refused(team.limits.exceeded("team_text", size))
    parsed = [(name, _parse(text, name, team)) for name, text in files]
    configs = [config for _, (config, _) in parsed if config]
    if (size := sum(map(_size, configs))) > team.limits.team_rules:
        raise _refused(team.limits.exceeded("team_rules", size))
    compiled = ruleset.compile(parsed, team=team)
    own = replace(
        compiled,
        rules=tuple(_owned(rule, team, config_map) for rule in compiled.rules),
        external=tuple(_owned(rule, team, config_map) for rule in compiled.external),
    )
    if problems := tuple(_problems(own)):
        raise ConfigError((*compiled.problems, *problems))
    return own


def merge(cluster: RuleSet, in_use: Mapping[Key, RuleSet]) -> RuleSet:
    """Return the rules of the cluster with those of the ConfigMaps of teams that are in use.

    A namespace has its rules in the order of the names of its ConfigMaps.
    """
    index, teams = len(cluster.all), dict[str, RuleSet]()
    for (namespace, _), own in sorted(in_use.items(), key=lambda each: each[0]):
        rules, index = _numbered(own.rules, index)
        external, index = _numbered(own.external, index)
        present = teams.get(namespace, RuleSet())
        teams[namespace] = RuleSet(
            rules=(*present.rules, *rules), external=(*present.external, *external)
        )
    return replace(cluster, teams=teams)


def too_wide(rule: CompiledRule, listings: Mapping[int, Listing]) -> str:
    """Return why a rule of a team produces no metrics: it reads too many series; else empty."""
    assert rule.team is not None
    count = len(listings[rule.index].series) if rule.index in listings else 0
    if count <= rule.team.limits.team_series:
        return ""
    return f"{rule.config.where}: seriesQuery {rule.team.limits.exceeded('team_series', count)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamMetric:
    """A metric that a rule of a team produces."""

    rule: CompiledRule
    name: str
    """With its resource: `pods/queue_length`, `external/queue_length`."""
    hidden: bool
    """Whether the rules of the cluster produce it, too: then theirs is served."""


def metrics(view: Catalog) -> Iterator[TeamMetric]:
    """Yield the metrics of the team in the catalog that its namespace sees."""
    if view.cluster is None:
        return
    for entry in view.entries:
        hidden = view.cluster.entry(entry.resource, entry.metric) is not None
        rule = entry.sources[-1].rule
        yield TeamMetric(rule=rule, name=f"{entry.resource}/{entry.metric}", hidden=hidden)
    for name, external in view.external.items():
        hidden = view.cluster.external_entry(name) is not None
        yield TeamMetric(rule=external.source.rule, name=f"external/{name}", hidden=hidden)


def _parse(text: str, file: str, team: Team) -> config.Parsed:
    node, invalid = yaml.load(
        text, file=file, max_nodes=team.limits.team_values, way_back="--limit=team-values=NUMBER"
    )
    if node is None and invalid:
        return None, invalid
    parsed, problems = config.parse_node(node, file=file, problems=invalid)
    assert parsed is not None
    found = list(problems)
    if beyond := tuple(_beyond(parsed, team.limits)):
        return None, (*found, *beyond)
    if parsed.sources:
        found.append(
            parsed.sources[0].where.problem(State.FAILURE, "", "a team cannot have `sources`")
        )
    if (resource := parsed.resource_rules) is not None:
        found.append(
            resource.where.problem(State.FAILURE, "", "a team cannot have `resourceRules`")
        )
    return (
        Config(
            rules=tuple(_confined(rule, team, found) for rule in parsed.rules),
            external_rules=tuple(_confined(rule, team, found) for rule in parsed.external_rules),
            resource_rules=None,
        ),
        tuple(found),
    )


def _size(parsed: Config) -> int:
    return len(parsed.rules) + len(parsed.external_rules)


def _beyond(parsed: Config, limits: Limits) -> Iterator[Finding]:
    """Yield an error for each part of a rule that exceeds a limit, before anything is compiled."""
    for rule in (*parsed.rules, *parsed.external_rules):
        for name, path, size in sizes(rule):
            if size > getattr(limits, name):
                yield rule.where.problem(State.FAILURE, path, limits.exceeded(name, size))


def sizes(rule: Rule) -> Iterator[tuple[str, str, int]]:
    """Yield the limit of each part of a rule, the path of the part, and its size."""
    resources, template = rule.resources, rule.resources.template
    yield "team_overrides", "resources.overrides", len(resources.overrides)
    yield "team_filters", "seriesFilters", len(rule.series_filters)
    yield "team_name", "name.as", len(rule.name.as_)
    yield "team_query", "seriesQuery", len(rule.series_query)
    yield "team_pattern", "name.matches", len(rule.name.matches)
    yield "team_pattern", "resources.template", len(template)
    for index, each in enumerate(rule.series_filters):
        yield "team_pattern", f"seriesFilters[{index}]", max(len(each.is_), len(each.is_not))
    yield "team_template_actions", "resources.template", template.count("<<")
    yield "team_template_actions", "metricsQuery", rule.metrics_query.count("<<")


def _confined(rule: Rule, team: Team, problems: list[Finding]) -> Rule:
    """Return the rule with a `seriesQuery` that selects series of the namespace only."""
    if rule.source != DEFAULT:
        message = "a team cannot choose the Prometheus: remove it"
        problems.append(rule.where.problem(State.FAILURE, "source", message))
    if rule.ahead is not None:
        message = "a team cannot read days of the past each minute: remove it, or let the operator"
        message += " write the rule"
        problems.append(rule.where.problem(State.FAILURE, "ahead", message))
    try:
        selector = confined.confine_selector(rule.series_query, team.label, team.namespace)
    except PlanError as error:
        problems.append(rule.where.problem(State.FAILURE, "seriesQuery", str(error)))
        return replace(rule, source=DEFAULT)
    return replace(rule, series_query=selector, source=DEFAULT)


def _owned(rule: CompiledRule, team: Team, config_map: ConfigMap) -> CompiledRule:
    """Return the rule as one of the team, with a place that is its alone in metrics and logs."""
    where = rule.config.where
    placed = replace(where, path=f"{config_map}: {where.path}")
    owned = replace(rule.config, source=SOURCE, where=placed)
    content = ruleset.content_of(rule.section, owned, team)
    return replace(rule, config=owned, team=team, content=content)


def _problems(own: RuleSet) -> Iterator[Finding]:
    """Yield an error for each query that cannot be confined."""
    for rule in own.all:
        assert rule.team is not None
        series = rule.pinned_series
        if series and rule.accepts(series) and (size := rule.namer.size(series)) > rule.namer.limit:
            message = rule.team.limits.exceeded("team_metric_name", size)
            yield rule.config.where.problem(State.FAILURE, "name.as", message)
        name = "" if rule.section == "externalRules" else "pod"
        binding = LabelBinding(resource=name, namespace="namespace")
        source = Source(rule=rule, series=series or "series", bindings=(binding,))
        step = Step(source=source, binding=binding)
        objects = SelectedObjects(namespaces=("namespace",), names=("name",))
        try:
            query = plan.unconfined(step, objects, Selector())
        except PlanError:
            continue  # it may depend on the names, and is said for each request
        try:
            plan.confine(query, rule.team)
        except PlanError as error:
            yield rule.config.where.problem(State.FAILURE, "metricsQuery", str(error))


def _numbered(rules: Iterable[CompiledRule], first: int) -> tuple[tuple[CompiledRule, ...], int]:
    """Return the rules with indexes from `first` on, and the next index."""
    numbered = tuple(replace(rule, index=index) for index, rule in enumerate(rules, first))
    return numbered, first + len(numbered)


def _refused(message: str) -> ConfigError:
    return ConfigError([in_file(State.FAILURE, message)])
