"""`check`: reports errors and warnings in rules, without a cluster."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adapter import settings
from adapter.commands import check_inputs
from rules import ruleset
from rules.errors import ConfigError, Problem
from rules.lint import check

_USAGE = f"""Usage: gpu-metrics-adapter check FILE... [FLAGS]

Reads the files together and in order, as the server does, and prints all errors and warnings with
file and line. A file has rules, or manifests (ConfigMaps with rules, Deployments of an adapter,
whose flags are checked, too), or values of the prometheus-adapter Helm chart. Exit code: 0 if the
server would start, 1 if not, 2 for an invalid command line.

{settings.flag_help(settings.Rules)}"""


def main(argv: Sequence[str]) -> int:
    """Return 0 if the server would start with the files, else 1; 2 for an invalid command line."""
    try:
        (flags,) = settings.parse_groups(argv, settings.Rules, positional_flag="config")
    except settings.HelpRequested:
        print(_USAGE)
        return 0
    except settings.UsageError as error:
        print(f"{error}\n`gpu-metrics-adapter check --help` lists the flags", file=sys.stderr)
        return 2
    if not flags.sources:
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        inputs = check_inputs.read(flags.sources)
    except ConfigError as error:
        return _report(error.problems)
    for note in inputs.notes:
        print(note)
    try:
        loaded = ruleset.compile(inputs.parsed)
    except ConfigError as error:
        return _report((*inputs.problems, *error.problems))
    return _report((*inputs.problems, *loaded.problems, *check.warnings(loaded)))


def _report(problems: Sequence[Problem]) -> int:
    for problem in problems:
        print(problem)
    errors = sum(1 for problem in problems if problem.severity == "error")
    print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
    return 1 if errors else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
