"""Limits of a team's rules: each at its edge, on both sides, and how far real rules are from it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rules import limits, presets, promql, ruleset, syntax, teams
from rules.document import config
from rules.errors import ConfigError, PlanError
from rules.limits import Limits
from rules.query import plan
from rules.query.catalog import Source, Step
from rules.query.label_binding import LabelBinding
from rules.query.plan import SelectedObjects
from rules.ruleset import CompiledRule, RuleSet
from rules.selectors.selectors import Selector
from rules.teams import ConfigMap
from tests.rules.lint import configurations
from tests.rules.team_edges import EDGES, of_query, text

BINDING = LabelBinding(resource="pod", namespace="namespace")


def load(*rules: str, limited: Limits = limits.DEFAULT) -> RuleSet:
    data = (("r.yaml", "rules:\n" + "".join(rules)),)
    return teams.load(ConfigMap(namespace="a", name="n", data=data), label="ns", limits=limited)


@pytest.mark.slow
@pytest.mark.parametrize("name", EDGES)
def test_a_limit_refuses_what_is_beyond_it_and_nothing_else(name):
    value, rules = EDGES[name]

    assert getattr(limits.DEFAULT, name) == value
    load(*rules(value))
    with pytest.raises(ConfigError) as raised:
        load(*rules(value + 1))

    flag = f"--limit={limits.name_of(name)}={value + 1}"
    message = str(raised.value)
    assert f"has {value + 1} " in message
    assert f" is {value}: " in message
    assert flag in message
    more = limits.DEFAULT.with_values({limits.name_of(name): value + 1})
    load(*rules(value + 1), limited=more)


def test_values_that_aliases_repeat_are_limited():
    rule = "- &rule {seriesQuery: m, metricsQuery: m, resources: {namespaced: false}}\n"
    rules = [rule, *["- *rule\n"] * 9]
    limited = Limits(team_values=75)

    with pytest.raises(ConfigError, match=r"more than 75 values: .*--limit=team-values=NUMBER"):
        load(*rules, limited=limited)
    load(*rules, limited=Limits(team_values=150))


def test_steps_of_a_template_are_limited():
    query = "<<range $i, $e := .GroupBySlice>><<$e>><<$e>><<end>>"
    (rule,) = load(text(query=query)).rules
    objects = SelectedObjects(namespaces=("a",), names=("p",))
    few = load(text(query=query), limited=Limits(team_template_steps=3)).rules[0]

    assert plan.unconfined(step_of(rule), objects, Selector()).text == "podpod"
    with pytest.raises(PlanError, match="more than 3 steps"):
        plan.unconfined(step_of(few), objects, Selector())


@pytest.mark.slow
def test_patterns_beyond_the_memory_of_a_namespace_are_refused():
    rule = text(pattern=r"\pL{9}")
    one = load(rule).pattern_memory
    fitting = limits.DEFAULT.team_pattern_memory // one

    assert 16 <= fitting < 100
    assert load(*[rule] * fitting).pattern_memory == fitting * one
    with pytest.raises(ConfigError, match="pattern too large: the namespace has more than 4194304"):
        load(*[rule] * (fitting + 1))
    load(*[rule] * (fitting + 1), limited=Limits(team_pattern_memory=5 << 20))


def test_matching_takes_no_memory_beyond_what_is_counted():
    pattern = "(?:a|b)*a(?:a|b){12}"
    (rule,) = load(text(series='{__name__=~"a.*"}', pattern=pattern)).rules

    assert rule.namer.matches.regexp.options.max_mem == rule.namer.matches.memory < 8 << 10


def step_of(rule: CompiledRule, series: str = "m") -> Step:
    source = Source(rule=rule, series=series, bindings=(BINDING,))
    return Step(source=source, binding=BINDING)


def objects(count: int) -> SelectedObjects:
    return SelectedObjects(
        namespaces=("a",), names=tuple(f"pod-{number}" for number in range(count))
    )


def test_names_of_a_request_do_not_count():
    own = step_of(load(of_query(16 << 10)).rules[0])

    assert len(plan.render(own, objects(5000), Selector())) > 30_000


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("<<if gt (len .LabelMatchers) 99>>" + "m or " * 4000 + "<<end>>m", "has 20001 characters"),
        ("m<<if gt (len .LabelMatchers) 99>>" + " + m" * 50 + "<<end>>", "has 51 levels"),
    ],
)
def test_a_query_that_exceeds_a_limit_only_for_some_requests_is_refused_then(query, message):
    own = step_of(load(text(query=query)).rules[0])

    assert plan.render(own, objects(1), Selector())
    with pytest.raises(PlanError, match=f"{message}; the limit .* --limit=team-query"):
        plan.render(own, objects(100), Selector())


@pytest.mark.parametrize("failure", [RecursionError, MemoryError, AssertionError, KeyError])
def test_whatever_fails_while_a_config_map_is_loaded_refuses_it(monkeypatch, failure):
    def fail(*_args: object, **_named: object) -> None:
        raise failure

    monkeypatch.setattr(ruleset, "compile", fail)

    with pytest.raises(ConfigError, match=rf"cannot be loaded \({failure.__name__}\)"):
        load(text())


def real_rules() -> Iterator[tuple[str, str]]:
    """Yield name and text of the presets, and of files that stand for public ones."""
    for name in presets.names():
        yield f"preset {name}", presets.text(name)
    for name in configurations.NAMES:
        yield name, (configurations.FOLDER / f"{name}.yaml").read_text()
    walkthroughs = Path(__file__).parents[1] / "walkthroughs"
    for path in sorted(walkthroughs.rglob("*.yaml")):
        yield path.name, path.read_text()


def uses(name: str, content: str) -> Iterator[tuple[str, int]]:
    """Yield the limits that one file of rules uses, and how much of each."""
    parsed, _ = config.parse(content, file=name)
    if parsed is None or not (every := (*parsed.rules, *parsed.external_rules)):
        return
    yield "team_rules", len(every)
    yield "team_text", len(content)
    for each in every:
        for limit, _, size in teams.sizes(each):
            yield limit, size
    team = ruleset.Team(namespace="a", label="ns")
    try:
        compiled = ruleset.compile([(name, (parsed, ()))], team=team)
    except ConfigError:
        return
    yield "team_pattern_memory", compiled.pattern_memory
    for rule in compiled.all:
        series = rule.pinned_series or "series"
        yield "team_metric_name", len(rule.metric(series) or "")
        try:
            query = plan.unconfined(step_of(rule, series), objects(1), Selector())
            tree = promql.parse(query.text)
        except PlanError:
            continue
        yield "team_query", query.own_size()
        yield "team_query_depth", syntax.depth(tree)


def test_a_team_may_copy_the_three_largest_presets():
    every = sorted(map(presets.text, presets.names()), key=len)
    data = tuple((f"{number}.yaml", text) for number, text in enumerate(every[-3:]))

    own = teams.load(ConfigMap(namespace="a", name="n", data=data), label="ns")

    assert 50 < len(own.all) < limits.DEFAULT.team_rules


@pytest.mark.slow
def test_real_rules_are_far_below_each_limit():
    largest: dict[str, tuple[int, str]] = {}
    for name, content in real_rules():
        for limit, size in uses(name, content):
            largest[limit] = max(largest.get(limit, (0, "")), (size, name))

    for limit, (size, name) in largest.items():
        print(
            f"{limits.name_of(limit):24} {size:>8} of {getattr(limits.DEFAULT, limit):>9}  {name}"
        )
    assert largest.keys() >= EDGES.keys() | {"team_pattern_memory"}
    assert all(3 * size <= getattr(limits.DEFAULT, limit) for limit, (size, _) in largest.items())
