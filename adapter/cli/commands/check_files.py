"""Prints for `check` what is wrong with rules, and with what is read together with them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from adapter import errors, settings
from adapter.cli.commands import check_inputs, without_log
from rules import ruleset
from rules.errors import ConfigError
from rules.findings import Finding, State
from rules.lint import check, check_hpas, check_sharing
from rules.quoting import counted, escaped
from rules.ruleset import RuleSet


def run(
    sources: Sequence[settings.RulesSource],
    prometheus: settings.PrometheusSettings | None,
    *,
    strict: bool,
) -> int:
    """Return 0 if the server would start with the sources, else 1; print what is wrong.

    Without `prometheus`, nothing is queried. With `strict`, warnings count as errors.
    """
    report = partial(_report, strict=strict)
    try:
        inputs = check_inputs.read(sources)
    except ConfigError as error:
        return report(error.problems)
    for note in inputs.notes:
        print(escaped(note))
    try:
        loaded = ruleset.compile(inputs.parsed)
    except ConfigError as error:
        return report((*inputs.problems, *error.problems))
    notes = check_sharing.notes(loaded)
    problems = (
        *inputs.problems,
        *loaded.problems,
        *check.warnings(loaded, inputs.targets),
        *check_hpas.unproduced(inputs.targets, loaded),
        *notes,
    )
    if prometheus is None:
        return report(problems)
    return _report_live(loaded, prometheus, problems, report)


def _report_live(
    loaded: RuleSet,
    prometheus: settings.PrometheusSettings,
    problems: Sequence[Finding],
    report: Callable[[Sequence[Finding]], int],
) -> int:
    from adapter.cli.commands import check_live  # imports the modules of the server

    try:
        with without_log():
            lines, found = asyncio.run(check_live.report(loaded, prometheus))
    except (errors.BackendError, errors.StartError) as error:
        print(f"Prometheus cannot be queried: {escaped(str(error))}", file=sys.stderr)
        report(problems)
        return 1
    for line in lines:
        print(escaped(line, keep="\n"))
    return report((*problems, *found))


def _report(problems: Sequence[Finding], *, strict: bool) -> int:
    for problem in problems:
        print(problem)
    number = Counter(problem.state for problem in problems)
    errors, warnings = number[State.FAILURE], number[State.WARNING]
    print(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}")
    return 1 if errors or (strict and warnings) else 0
