"""A configuration, compiled: templates, patterns and mappings, ready for use.

Or every reason why one is not, each with its place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from rules import mapping, naming, promql, template
from rules.document import config, yaml
from rules.errors import (
    ConfigError,
    MappingError,
    PatternError,
    PlanError,
    Problem,
    TemplateError,
    TemplateSyntaxError,
)

QUERY_FIELDS: Mapping[str, type] = {
    "Series": str,
    "LabelMatchers": str,
    "LabelValuesByName": dict,
    "GroupBy": str,
    "GroupBySlice": list,
}
"""What a query's template may name."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledRule:
    """One rule of `rules` or `externalRules`, ready for use."""

    index: int
    """Its place in the RuleSet, which no other rule has: external rules count on from `rules`."""
    section: Literal["rules", "externalRules"]
    config: config.Rule
    filters: naming.Filters
    namer: naming.Namer
    mapping: mapping.LabelMapping
    query: template.Template


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledResourceRule:
    """`resourceRules.cpu` or `.memory`, ready for use."""

    config: config.ResourceRule
    mapping: mapping.LabelMapping
    container_query: template.Template
    node_query: template.Template


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledResourceRules:
    """`resourceRules`, ready for use."""

    cpu: CompiledResourceRule
    memory: CompiledResourceRule
    window_ns: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleSet:
    """All rules, in the order of the files."""

    rules: tuple[CompiledRule, ...] = ()
    external: tuple[CompiledRule, ...] = ()
    resource_rules: CompiledResourceRules | None = None
    problems: tuple[Problem, ...] = ()
    """Warnings that reading and compiling gave; rules.check has more."""


def load(sources: Sequence[tuple[str, str | bytes]]) -> RuleSet:
    """The rules of several files, given as name and text, as one set.

    Raises ConfigError with everything that is wrong in any of them.
    """
    configs: list[config.Config] = []
    problems: list[Problem] = []
    for name, text in sources:
        parsed, found = config.parse(text, file=name)
        problems += found
        if parsed is not None:
            problems += _repeated(configs, parsed)
            configs.append(parsed)
    return _compiled(config.merge(configs), problems, [name for name, _ in sources])


def compile(whole: config.Config) -> RuleSet:  # noqa: A001 (ruleset.compile, as re.compile)
    """The rules of a configuration. Raises ConfigError with everything that is wrong in them."""
    files = [rule.where.file for rule in (*whole.rules, *whole.external_rules)]
    if whole.resource_rules:
        files.append(whole.resource_rules.where.file)
    return _compiled(whole, [], files)


def _repeated(before: Sequence[config.Config], parsed: config.Config) -> list[Problem]:
    first = next((each.resource_rules for each in before if each.resource_rules), None)
    if first is None or parsed.resource_rules is None:
        return []
    message = f"resourceRules are already given in {first.where.file}: keep one of them"
    return [parsed.resource_rules.where.problem("error", "", message)]


def _compiled(whole: config.Config, problems: list[Problem], order: Sequence[str]) -> RuleSet:
    """`order` is that of the files, in which problems are told."""
    compiler = _Compiler(problems)
    rules = [compiler.rule(rule, index, "rules") for index, rule in enumerate(whole.rules)]
    external = [
        compiler.rule(rule, index, "externalRules")
        for index, rule in enumerate(whole.external_rules, len(whole.rules))
    ]
    resource_rules = compiler.resource_rules(whole.resource_rules)
    problems.sort(key=lambda each: (order.index(each.file), each.line, each.column))
    if any(problem.severity == "error" for problem in problems):
        raise ConfigError(problems)
    return RuleSet(
        rules=tuple(rule for rule in rules if rule),
        external=tuple(rule for rule in external if rule),
        resource_rules=resource_rules,
        problems=tuple(problems),
    )


class _Compiler:
    """Compiles rules and collects what is wrong; a rule with an error comes out as None."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self._broken = {
            (problem.file, problem.path) for problem in problems if problem.severity == "error"
        }
        """Where reading found errors, so that the values are not what was meant."""

    def rule(
        self, rule: config.Rule, index: int, section: Literal["rules", "externalRules"]
    ) -> CompiledRule | None:
        self._check_selector(rule)
        filters = self._filters(rule)
        name = "name.matches" if rule.name.matches else "name"
        namer = self._attempt(
            rule.where, name, partial(naming.compile, rule.name.matches, rule.name.as_)
        )
        labels = self._mapping(rule.where, rule.resources)
        query = self._query(rule.where, "metricsQuery", rule.metrics_query)
        if filters is None or namer is None or labels is None or query is None:
            return None
        return CompiledRule(
            index=index,
            section=section,
            config=rule,
            filters=filters,
            namer=namer,
            mapping=labels,
            query=query,
        )

    def resource_rules(self, rules: config.ResourceRules | None) -> CompiledResourceRules | None:
        if rules is None:
            return None
        cpu, memory = self._resource_rule(rules.cpu), self._resource_rule(rules.memory)
        if cpu is None or memory is None:
            return None
        return CompiledResourceRules(cpu=cpu, memory=memory, window_ns=rules.window_ns)

    def _resource_rule(self, rule: config.ResourceRule) -> CompiledResourceRule | None:
        labels = self._mapping(rule.where, rule.resources)
        container = self._query(rule.where, "containerQuery", rule.container_query)
        node = self._query(rule.where, "nodeQuery", rule.node_query)
        if labels is None or container is None or node is None:
            return None
        return CompiledResourceRule(
            config=rule, mapping=labels, container_query=container, node_query=node
        )

    def _filters(self, rule: config.Rule) -> naming.Filters | None:
        each = [
            self._attempt(
                rule.where, f"seriesFilters[{index}]", partial(naming.Filters.of, [entry])
            )
            for index, entry in enumerate(rule.series_filters)
        ]
        return None if None in each else naming.Filters.of(rule.series_filters)

    def _mapping(
        self, where: config.Where, resources: config.ResourceMapping
    ) -> mapping.LabelMapping | None:
        return self._attempt(where, "resources.template", partial(mapping.compile, resources))

    def _query(self, where: config.Where, path: str, source: str) -> template.Template | None:
        parsed = self._attempt(where, path, partial(template.parse, source))
        if parsed is None:
            return None
        unknown = parsed.unknown_fields(QUERY_FIELDS)
        for field in unknown:
            known = ", ".join(f".{name}" for name in QUERY_FIELDS)
            message = f"the template has no field {field.name}: there are {known}"
            self.problems.append(where.problem("error", path, message, offset=field.offset))
        return None if unknown else parsed

    def _check_selector(self, rule: config.Rule) -> None:
        if not rule.series_query:
            return
        try:
            promql.selector(rule.series_query)
        except PlanError as error:
            message = f"{error}; if Prometheus refuses it too, the rule produces no metric"
            self.problems.append(rule.where.problem("warning", "seriesQuery", message))

    def _is_broken(self, where: config.Where, path: str) -> bool:
        whole = yaml.join(where.path, path)
        return any(
            file == where.file
            and (broken == whole or broken.startswith((f"{whole}.", f"{whole}[")))
            for file, broken in self._broken
        )

    def _attempt(self, where: config.Where, path: str, made: Callable[[], _T]) -> _T | None:
        if self._is_broken(where, path):
            return None
        offset = None
        try:
            return made()
        except TemplateSyntaxError as error:
            message, offset = f"the template does not parse: {error}", error.offset
        except (TemplateError, PatternError, MappingError) as error:
            message = str(error)
        self.problems.append(where.problem("error", path, message, offset=offset))
        return None
