"""`check`: reports errors and warnings in rules files, without Prometheus and without a cluster."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from adapter import settings
from adapter.app import rule_files
from rules.errors import ConfigError, Problem
from rules.lint import check, check_sharing

_USAGE = f"""Usage: gpu-metrics-adapter check FILE... [FLAGS]

Reads the files together and in order, as the server does, and prints all errors and warnings with
file and line. Then it prints the scope of each rule, which tells how many autoscalers one
query can serve: cluster, namespace or alone; and what prevents a wider one. Exit code: 0 if the
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
        ruleset = rule_files.load(flags.sources)
    except ConfigError as error:
        return _report(error.problems)
    notes = check_sharing.notes(ruleset)
    return _report((*ruleset.problems, *check.warnings(ruleset), *notes))


def _report(problems: Sequence[Problem]) -> int:
    for problem in problems:
        print(problem)
    number = Counter(problem.severity for problem in problems)
    print(f"{_count(number['error'], 'error')}, {_count(number['warning'], 'warning')}")
    return 1 if number["error"] else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
