"""What loading and checking a file costs: work and memory grow with its size, not faster."""

from __future__ import annotations

import cProfile
import tracemalloc
from collections.abc import Callable

import pytest

from rules import ruleset
from rules.errors import ConfigError
from rules.findings import Finding
from rules.lint import check, check_sharing

pytestmark = pytest.mark.slow

PODS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"


def rule(query: str = "m", *, series: str = "m", resources: str = PODS, more: str = "") -> str:
    return (
        f"rules:\n- seriesQuery: '{series}'\n  resources: {resources}\n{more}"
        f"  metricsQuery: '{query}'\n"
    )


def overrides(size: int) -> str:
    namespaces = [f"n{number}: {{resource: namespace}}" for number in range(size)]
    pods = [f"p{number}: {{resource: pod}}" for number in range(size)]
    return "{overrides: {" + ", ".join((*namespaces, *pods)) + "}}"


def templates(size: int) -> str:
    chain = (f"<<define `t{n}`>><<template `t{n + 1}` .>><<end>>" for n in range(size))
    return "".join(chain) + "<<template `t0` .>>"


FILES: dict[str, Callable[[int], str]] = {
    "operands": lambda size: rule("+".join(["a"] * size)),
    "selectors": lambda size: rule(" or ".join(["<<.Series>>{<<.LabelMatchers>>}"] * (size // 4))),
    "functions": lambda size: rule("abs(" * size + "a" + ")" * size),
    "regular expressions": lambda size: rule("m{" + ",".join([r'b=~"\\\\pL{90}"'] * size) + "}"),
    "overrides": lambda size: rule(resources=overrides(size)),
    "overrides and functions": lambda size: rule(
        "abs(" * 100 + "a" + ")" * 100, resources=overrides(size)
    ),
    "name of a metric": lambda size: rule(
        series="m" * 30 * size, more=f"  name: {{as: '{'$0' * 30 * size}'}}\n"
    ),
    "unknown fields": lambda size: rule("<<.x>>" * 8 * size),
    "values of labels": lambda size: rule(
        "m{" + ",".join(['pod="<<index .LabelValuesByName `pod`>>"'] * size) + "}"
    ),
    "templates": lambda size: rule(templates(size)),
    "invalid rules": lambda size: "rules:\n" + "- {seriesQuery: [a], metricsQuery: <<}\n" * size,
    "long line": lambda size: rule("a" * 100 * size + "<<nope>>"),
}


def findings(text: str) -> tuple[Finding, ...]:
    try:
        loaded = ruleset.load([("f.yaml", text)])
    except ConfigError as error:
        return error.problems
    return (*loaded.problems, *check.warnings(loaded), *check_sharing.notes(loaded))


def calls(text: str) -> int:
    profile = cProfile.Profile()
    with profile:
        findings(text)
    return sum(entry.callcount for entry in profile.getstats())


def memory(text: str) -> int:
    tracemalloc.start()
    findings(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize("kind", FILES)
def test_work_and_memory_are_linear_in_the_size_of_a_file(kind):
    findings(FILES[kind](10))  # what is computed once
    small, large = FILES[kind](100), FILES[kind](400)

    assert calls(large) < 6 * calls(small)
    assert memory(large) < 6 * memory(small)


@pytest.mark.parametrize("kind", FILES)
def test_what_is_said_about_a_file_is_short(kind):
    said = findings(FILES[kind](400))

    assert len(said) <= 25
    assert all(len(str(each)) < 3000 for each in said)
    assert len(str(ConfigError(said))) < 9000
