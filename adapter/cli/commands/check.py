"""`check`: reports errors and warnings in rules, without a cluster; optionally with Prometheus."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from adapter import settings
from adapter.cli.commands import check_inputs, without_log
from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import SWITCH
from rules import ruleset
from rules.errors import ConfigError
from rules.findings import Finding, State
from rules.lint import check, check_hpas, check_sharing
from rules.quoting import counted, escaped
from rules.ruleset import RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(FlagGroup):
    """What decides the exit code."""

    TITLE = "Flags"

    strict: bool = flag(
        "strict", SWITCH, "Exit with 1 also if there are warnings; for CI.", default="false"
    )


_HELP = f"""Usage: gpu-metrics-adapter check FILE... [FLAGS]

Reads the files together and in order, as the server does, and prints all errors and warnings with
file and line. A note says which rule needs a query for each namespace (scope namespace) or for
each request (scope alone), and what prevents one query for all. A file has rules, or
manifests (ConfigMaps with rules, Deployments of an adapter, whose flags are checked, too), or
values of the prometheus-adapter Helm chart; HPAs are checked, too. Exit code: 0 if the server would
start and the API server accepts the HPAs, 1 if not, and with --strict for warnings, 2 for an
invalid command line.

With --prometheus-url, also prints what each rule takes from Prometheus, and what typical requests
return and how long their queries take. Exit code 1 also if Prometheus cannot be queried.

{settings.flag_help(_Options, settings.RulesSettings, settings.PrometheusSettings)}"""


_COMMAND = settings.CommandSpec(
    name="check",
    help=_HELP,
    groups=(_Options, settings.RulesSettings, settings.PrometheusSettings),
    positional_flag="config",
)


def main(argv: Sequence[str]) -> int:
    """Return 0 if the server would start with the files, else 1. Raises UsageError."""
    line = _COMMAND.parse(argv)
    options, flags, prometheus = line.groups
    report = partial(_report, strict=options.strict)
    if not flags.sources:
        raise _COMMAND.error("FILE", "is missing")
    try:
        inputs = check_inputs.read(flags.sources)
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
    if not any(flag.name == "prometheus-url" for flag in line.given):
        return report(problems)
    return _report_live(loaded, prometheus, problems, report)


def _report_live(
    loaded: RuleSet,
    prometheus: settings.PrometheusSettings,
    problems: Sequence[Finding],
    report: Callable[[Sequence[Finding]], int],
) -> int:
    from adapter import errors
    from adapter.cli.commands import check_live

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
