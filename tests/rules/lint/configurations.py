"""What `check` says about configurations of the public, and what that predicts.

The files are in the folder `configurations`: the constructs of public files in our own words, with
our own names. `sources.json` has the repository and the path of each public file. Files that no
public file stands for are listed under `own`.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from adapter.cli.commands import check_inputs
from adapter.settings import RulesSource
from rules import ruleset
from rules.errors import ConfigError
from rules.findings import Finding
from rules.kinds import Kinds
from rules.lint import check
from rules.ruleset import CompiledRule, RuleSet
from tests.rules.lint import series
from tests.rules.lint.live import Observed
from tools.real.prometheus import Client

FOLDER = Path(__file__).with_name("configurations")
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml"))
SOURCES = json.loads((FOLDER / "sources.json").read_text())

_CONSEQUENCES = {
    "the rule produces no metric": {"not listed"},
    "every request fails with 404": {"no value"},
    "requests for them get 404 or an empty list": {"no value"},
    "every request fails with 500": {"error"},
    "every request for the rule's metrics fails": {"error", "no value"},
    "objects of the same name in other namespaces get the same value": {"leaks"},
    "every namespace gets the same series": {"leaks"},
    "only the last one listed is served": {"fewer metrics than series"},
    "matches nearly every series": {"broad"},
}
"""What a warning of `check` says -> which observations it predicts, one of them at least."""
_BROAD = 50
"""Names of series. All configurations together have about 90."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A configuration, and what `check` says about it without Prometheus."""

    rules: RuleSet | None
    """None if a server would not start with it."""
    problems: tuple[Finding, ...]

    @property
    def every_rule(self) -> tuple[CompiledRule, ...]:
        """The rules, then the external rules."""
        return self.rules.all if self.rules else ()

    def of_rule(self, rule: CompiledRule) -> list[Finding]:
        """Return the problems of one rule."""
        where = rule.config.where
        paths = (where.path, f"{where.path}.")
        return [
            each
            for each in self.problems
            if each.where.file == where.file
            and (each.where.path == paths[0] or each.where.path.startswith(paths[1]))
        ]


@functools.cache
def checked(name: str) -> Checked:
    """Return what `check` says about a configuration."""
    try:
        inputs = check_inputs.read([RulesSource(kind="config", name=str(FOLDER / f"{name}.yaml"))])
        rules = ruleset.compile(inputs.parsed)
    except ConfigError as error:
        return Checked(rules=None, problems=tuple(error.problems))
    problems = (*inputs.problems, *rules.problems, *check.warnings(rules))
    return Checked(rules=rules, problems=problems)


def predictions(problems: Iterable[Finding]) -> list[set[str]]:
    """Return the observations that the problems of one rule predict, as sets of alternatives."""
    return [
        observations
        for problem in problems
        for phrase, observations in _CONSEQUENCES.items()
        if phrase in problem.fact
    ]


def write_series(
    server: Client, every: Iterable[RuleSet], *, at: float | None = None, before: int = 60
) -> int:
    """Write the series of all configurations, with samples until five minutes after `at`.

    Returns how many series there are. `at` is by default now, `before` is for
    how many seconds before it there are samples.
    """
    kinds = Kinds.builtin()
    labels = {tuple(sorted(each.items())) for rules in every for each in series.of(rules, kinds)}
    begin = (time.time() if at is None else at) - before
    for second in range(0, before + 300, 2):  # some queries compute a rate over five seconds
        server.write(((dict(each), second + 1.0) for each in labels), at=begin + second)
    return len(labels)


def observed(found: Observed) -> set[str]:
    """Return what a live server does with one rule; empty if all objects have values.

    Namespaces count only if the rule maps nothing else: most rules map them to select series.
    """
    if not found.served:
        return {"not listed"}
    answers = dict(found.answers)
    if len(answers) > 1:
        answers.pop("namespaces", None)
    return ({*answers.values()} - {"value"}) | ({"leaks"} if found.leaks else set())


def remarkable(found: Observed) -> set[str]:
    """Return what explains a warning, but is no fault without one: most patterns reject names."""
    fewer = {"fewer metrics than series"} if found.metrics < found.series else set()
    return fewer | ({"broad"} if found.series > _BROAD else set())
