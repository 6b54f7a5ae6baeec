"""Compiles the rules of several files: templates, patterns and label mappings.

`rules.document` parses the files. `rules.mapping` resolves the resources of a rule in a cluster.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from rules import errors, limits, mapping, naming, patterns, presets, promql, template
from rules.document import config, yaml
from rules.document.sources import DEFAULT, PrometheusSource
from rules.document.where import Where
from rules.findings import Finding, Place, State
from rules.kinds import PODS, Kinds
from rules.syntax import Matcher

QUERY_FIELDS: Mapping[str, type] = {
    "Series": str,
    "LabelMatchers": str,
    "LabelValuesByName": dict,
    "GroupBy": str,
    "GroupBySlice": list,
}
"""Fields of the data of a query template, each with its type."""

_TEMPLATE = "resources.template"
_T = TypeVar("_T")


def uses(query: template.Template, *fields: str) -> bool:
    """Return whether a template of a query uses one of `fields`."""
    rest = {name: type_ for name, type_ in QUERY_FIELDS.items() if name not in fields}
    return bool(query.unknown_fields(rest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """A namespace to which rules are confined."""

    namespace: str
    label: str
    """Label of all series whose value is their namespace."""
    limits: limits.Limits = field(default=limits.DEFAULT, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledRule:
    """One entry of `rules` or `externalRules`, or one query of `resourceRules`.

    Rules of several sets are equal if they mean the same, wherever they are in their files.
    """

    index: int
    """Position in the RuleSet, counted from 0; the first external rule follows the last rule, and
    the rules of teams follow all others. -1 for a query of `resourceRules`."""
    section: Literal["rules", "externalRules", "resourceRules"]
    config: config.Rule
    content: str
    """What the rule means: everything that files say about it and its source, without positions."""
    matchers: tuple[Matcher, ...] = ()
    """Of `seriesQuery`; empty if it does not parse, or if `or` joins alternatives."""
    pinned_series: str | None = None
    """The series name that `seriesQuery` requires by equality; None without one."""
    filters: tuple[naming.Filter, ...] = ()
    namer: naming.Namer
    mapping: mapping.LabelMapping
    query: template.Template
    team: Team | None = None
    """Whose rule this is: it reads series of the team's namespace only, and is served only there.

    None for a rule of all namespaces."""

    def __eq__(self, other: object) -> bool:
        """Return whether the other rule means the same."""
        return isinstance(other, CompiledRule) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)

    @property
    def preset(self) -> str:
        """The name of the preset that the rule is from; empty if it is from a file."""
        file = self.config.where.file
        return file.removeprefix(presets.FILE) if presets.is_preset(file) else ""

    def reading(self, source: str) -> CompiledRule:
        """Return the same rule with another source, one of the flags."""
        if source == self.config.source:
            return self
        content = sys.intern(f"{self.content} from {source}")
        return replace(self, config=replace(self.config, source=source), content=content)

    @property
    def selects(self) -> bool:
        """Whether the query uses what a request selects, such as its metric selector."""
        return uses(self.query, "LabelMatchers", "LabelValuesByName")

    def accepts(self, series: str) -> bool:
        """Return whether a series' name passes every filter."""
        return all(each.accepts(series) for each in self.filters)

    def metric(self, series: str) -> str | None:
        """Return the metric's name for a series' name.

        Returns None if a filter or `matches` rejects the series, or if the name is too long.
        """
        return self.namer.metric(series) if self.accepts(series) else None

    @property
    def pattern_memory(self) -> int:
        """Bytes that the regular expressions of the rule take."""
        label = self.mapping.template
        return (
            self.namer.matches.memory
            + sum(each.pattern.memory for each in self.filters)
            + (label.shape.memory if label else 0)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledResourceRule:
    """`resourceRules.cpu` or `.memory`."""

    config: config.ResourceRule
    mapping: mapping.LabelMapping
    container_query: template.Template
    node_query: template.Template


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledResourceRules:
    """`resourceRules`."""

    cpu: CompiledResourceRule
    memory: CompiledResourceRule
    window_ns: int
    where: Where


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleSet:
    """The rules of all files, in order."""

    sources: tuple[PrometheusSource, ...] = ()
    """The Prometheus servers that rules name, without the one of the flags."""
    rules: tuple[CompiledRule, ...] = ()
    external: tuple[CompiledRule, ...] = ()
    resource_rules: CompiledResourceRules | None = None
    problems: tuple[Finding, ...] = ()
    """Warnings from loading; `rules.lint.check` finds more."""
    teams: Mapping[str, RuleSet] = field(default_factory=dict)
    """The rules of teams, by the namespace to which they are confined."""

    @property
    def all(self) -> tuple[CompiledRule, ...]:
        """The rules and the external rules, by `CompiledRule.index`; without those of teams."""
        return (*self.rules, *self.external)

    @property
    def every(self) -> tuple[CompiledRule, ...]:
        """The rules and the external rules, also of teams, by `CompiledRule.index`."""
        return (*self.all, *(rule for team in self.teams.values() for rule in team.all))

    @property
    def pattern_memory(self) -> int:
        """Bytes that the regular expressions of the rules take; without those of teams."""
        return sum(rule.pattern_memory for rule in self.all)

    def rule_at(self, place: Place) -> CompiledRule:
        """Return the rule that begins there."""
        return next(rule for rule in self.all if rule.config.where.place == place)

    def of(self, namespace: str) -> RuleSet:
        """Return the rules that count for requests in a namespace that has a team."""
        team = self.teams[namespace]
        return replace(
            self,
            rules=(*self.rules, *team.rules),
            external=(*self.external, *team.external),
            teams={},
        )

    @property
    def presets(self) -> frozenset[str]:
        """The presets that rules are from."""
        return frozenset(rule.preset for rule in self.all if rule.preset)

    def reading(self, source_of: Callable[[CompiledRule], str]) -> RuleSet:
        """Return the same rules, each with the source that `source_of` returns for it."""

        def moved(rules: tuple[CompiledRule, ...]) -> tuple[CompiledRule, ...]:
            return tuple(rule.reading(source_of(rule)) for rule in rules)

        return replace(
            self,
            rules=moved(self.rules),
            external=moved(self.external),
            teams={name: each.reading(source_of) for name, each in self.teams.items()},
        )


def content_of(kind: str, rule: config.Rule | config.ResourceRule, source: object = None) -> str:
    """Return what a rule means, to compare it with others; `source` is what it queries."""
    # Interned, so that equal ones are compared by their address.
    return sys.intern(repr((kind, rule, source)))


def load(sources: Sequence[tuple[str, str | bytes]]) -> RuleSet:
    """Load the rules of several files, given as pairs of name and content, into one set.

    Raises ConfigError with all problems of all files if one of them is an error.
    """
    return compile([(name, config.parse(content, file=name)) for name, content in sources])


def compile(  # noqa: A001 (ruleset.compile reads as re.compile does)
    parsed: Sequence[tuple[str, config.Parsed]], *, team: Team | None = None
) -> RuleSet:
    """Compile the parsed rules of several files, given with their names, into one set.

    Those of a team stay within its limits. Raises ConfigError as `load` does.
    """
    configs = [config for _, (config, _) in parsed if config is not None]
    problems = [problem for _, (_, found) in parsed for problem in found]
    resource_rules = [each.resource_rules for each in configs if each.resource_rules]
    own = [each for each in resource_rules if not presets.is_preset(each.where.file)]
    resource_rules = own or resource_rules  # those of files replace those of presets
    for repeated in resource_rules[1:]:
        message = f"already set in {resource_rules[0].where.file}: remove one of the two"
        problems.append(repeated.where.problem(State.FAILURE, "", message))
    sources = tuple(source for each in configs for source in each.sources)
    compiler = _Compiler(problems, _known_sources(sources, problems), team)
    rules = [rule for each in configs for rule in each.rules]
    external = [rule for each in configs for rule in each.external_rules]
    ruleset = RuleSet(
        sources=sources,
        rules=compiler.rules(rules, "rules", 0),
        external=compiler.rules(external, "externalRules", len(rules)),
        resource_rules=compiler.resource_rules(resource_rules[0]) if resource_rules else None,
        problems=compiler.problems([file for file, _ in parsed]),
    )
    if any(problem.state is State.FAILURE for problem in ruleset.problems):
        raise errors.ConfigError(ruleset.problems)
    return ruleset


def _known_sources(
    sources: Iterable[PrometheusSource], problems: list[Finding]
) -> Mapping[str, PrometheusSource | None]:
    """Return the sources that rules can name, and add an error for each that is given twice."""
    known: dict[str, PrometheusSource | None] = {DEFAULT: None}
    for source in sources:
        first = known.setdefault(source.name, source)
        if first is not None and first is not source:
            message = f"already set in {first.where.file}: remove one of the two"
            problems.append(source.where.problem(State.FAILURE, "", message))
    return known


class _Compiler:
    """Compiles rules and collects problems; a rule with an error is left out."""

    def __init__(
        self,
        problems: list[Finding],
        sources: Mapping[str, PrometheusSource | None],
        team: Team | None,
    ) -> None:
        self._problems = problems
        self._sources = sources
        self._patterns: patterns.PatternBudget | None = None  # each pattern has one of its own
        if team is None:
            self._max_name, self._share = naming.MAX_NAME, 1.0
        else:
            self._patterns = patterns.PatternBudget(
                team.limits.team_pattern_memory,
                minimal=True,
                beyond=f"the namespace {team.limits.exceeded('team_pattern_memory')}",
            )
            self._max_name = team.limits.team_metric_name
            self._share = team.limits.team_template_steps / template.MAX_STEPS
        self._invalid = {
            (problem.where.file, ancestor)
            for problem in problems
            if problem.state is State.FAILURE
            for ancestor in _ancestors(problem.where.path)
        }
        """Files and paths with an error at or below them; their values are not compiled."""

    def problems(self, files: Sequence[str]) -> tuple[Finding, ...]:
        """Return all problems in the order of the files, and in each file from top to bottom."""
        order = {name: index for index, name in enumerate(files)}

        def place(found: Finding) -> tuple[int, int, int]:
            return order[found.where.file], found.where.line, found.where.column

        return tuple(sorted(self._problems, key=place))

    def rules(
        self, rules: Sequence[config.Rule], section: Literal["rules", "externalRules"], start: int
    ) -> tuple[CompiledRule, ...]:
        """Compile the rules of one section, whose indexes begin at `start`."""
        compiled = (self._rule(rule, index, section) for index, rule in enumerate(rules, start))
        return tuple(rule for rule in compiled if rule)

    def resource_rules(self, rules: config.ResourceRules) -> CompiledResourceRules | None:
        """Compile `resourceRules`; None after an error."""
        cpu, memory = self._resource_rule(rules.cpu), self._resource_rule(rules.memory)
        if cpu is None or memory is None:
            return None
        return CompiledResourceRules(
            cpu=cpu, memory=memory, window_ns=rules.window_ns, where=rules.where
        )

    def _rule(
        self, rule: config.Rule, index: int, section: Literal["rules", "externalRules"]
    ) -> CompiledRule | None:
        matchers = self._matchers(rule)
        filters = [
            self._attempt(
                rule.where,
                f"seriesFilters[{index}]",
                partial(naming.compile_filter, entry, self._patterns),
            )
            for index, entry in enumerate(rule.series_filters)
        ]
        namer = self._attempt(
            rule.where,
            "name.matches" if rule.name.matches else "name",
            lambda: naming.compile(
                rule.name.matches, rule.name.as_, self._patterns, limit=self._max_name
            ),
        )
        labels = self._labels(rule.where, rule.resources)
        query = self._query(rule.where, "metricsQuery", rule.metrics_query)
        self._check_source(rule)
        if labels is not None:
            if rule.min_pod_age is not None:
                self._check_pods(rule, "minPodAge", section, labels)
            if rule.workloads is not None:
                self._check_pods(rule, "workloads", section, labels)
            if rule.ahead is not None:
                self._check_pods(rule, "ahead", section, labels)
        if None in filters or namer is None or labels is None or query is None:
            return None
        return CompiledRule(
            index=index,
            section=section,
            config=rule,
            content=content_of(section, rule, self._sources.get(rule.source)),
            matchers=matchers,
            pinned_series=promql.pinned_name(matchers),
            filters=tuple(filter(None, filters)),
            namer=namer,
            mapping=labels,
            query=query,
        )

    def _check_source(self, rule: config.Rule) -> None:
        if rule.source not in self._sources:
            near = difflib.get_close_matches(rule.source, self._sources, n=1)
            meant = f"did you mean {near[0]}?" if near else f"known: {', '.join(self._sources)}"
            message = f"there is no source {rule.source!r}: {meant}"
            self._problems.append(rule.where.problem(State.FAILURE, "source", message))

    def _check_pods(
        self, rule: config.Rule, key: str, section: str, labels: mapping.LabelMapping
    ) -> None:
        """Add an error if the rule has no pods to which its `key` could apply."""
        if section == "externalRules":
            message = "external metrics do not describe pods: remove it, or make this a rule"
        elif not labels.bind(Kinds.builtin()).labels(PODS):
            message = "the rule maps no label to pods: add an override for pod, or remove it"
        else:
            return
        self._problems.append(rule.where.problem(State.FAILURE, key, message))

    def _labels(
        self, where: Where, resources: config.ResourceMapping
    ) -> mapping.LabelMapping | None:
        return self._attempt(
            where, _TEMPLATE, lambda: mapping.compile(resources, self._patterns, share=self._share)
        )

    def _resource_rule(self, rule: config.ResourceRule) -> CompiledResourceRule | None:
        labels = self._labels(rule.where, rule.resources)
        container = self._query(rule.where, "containerQuery", rule.container_query)
        node = self._query(rule.where, "nodeQuery", rule.node_query)
        if labels is None or container is None or node is None:
            return None
        return CompiledResourceRule(
            config=rule, mapping=labels, container_query=container, node_query=node
        )

    def _query(self, where: Where, path: str, source: str) -> template.Template | None:
        parsed = self._attempt(where, path, lambda: template.parse(source, share=self._share))
        if parsed is None:
            return None
        unknown = parsed.unknown_fields(QUERY_FIELDS)
        for each in unknown[: errors.MAX_PROBLEMS + 1]:  # the position of each takes time
            known = ", ".join(f".{name}" for name in QUERY_FIELDS)
            message = f"unknown template field {each.name}: the fields are {known}"
            self._problems.append(where.problem(State.FAILURE, path, message, offset=each.offset))
        return None if unknown else parsed

    def _matchers(self, rule: config.Rule) -> tuple[Matcher, ...]:
        """Return the matchers of `seriesQuery`; none, with a warning, if it does not parse."""
        if not rule.series_query:
            return ()
        try:
            return promql.selector(rule.series_query)
        except errors.PlanError as error:
            message = f"{error}; if Prometheus rejects it too, the rule has no metrics"
            self._problems.append(rule.where.problem(State.WARNING, "seriesQuery", message))
            return ()

    def _attempt(self, where: Where, path: str, function: Callable[[], _T]) -> _T | None:
        """Call `function` for the value at `path`; None, with a problem, if that is invalid."""
        if (where.file, yaml.join(where.path, path)) in self._invalid:
            return None
        offset = None
        try:
            return function()
        except errors.TemplateSyntaxError as error:
            message, offset = f"invalid template: {error}", error.offset
        except (errors.TemplateError, errors.PatternError, errors.MappingError) as error:
            message = str(error)
        self._problems.append(where.problem(State.FAILURE, path, message, offset=offset))
        return None


def _ancestors(path: str) -> Iterator[str]:
    """Yield `path` and every path above it: `rules[0].name`, `rules[0]`, `rules`."""
    while path:
        yield path
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
