"""`check FILE...`: every problem and warning of rules files, offline."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from adapter.app import rule_files
from adapter.settings import Source
from rules.errors import ConfigError, Problem
from rules.lint import check

NAME = "check"
SUMMARY = "tell everything that is wrong, or will surprise, in rules files: check FILE..."

_USAGE = """usage: gpu-metrics-adapter check FILE... [--preset NAME...]

Reads the files as the server would, together and in order, and prints every problem and warning
with its place. Exits 0 if the server would start with them, 1 if not, 2 for a wrong command line.
"""


def main(argv: Sequence[str]) -> int:
    """0 if the files can be used, 1 if not, 2 for a wrong command line."""
    if {"-h", "--help"} & set(argv):
        print(_USAGE, end="")
        return 0
    sources = _sources(argv)
    if not sources:
        print(_USAGE, end="", file=sys.stderr)
        return 2
    try:
        compiled = rule_files.load(sources)
    except ConfigError as error:
        return _report(error.problems)
    return _report((*compiled.problems, *check.warnings(compiled)))


def _sources(argv: Sequence[str]) -> tuple[Source, ...]:
    """Files and presets in the order given; none if something else was given."""
    sources: list[Source] = []
    rest = iter(argv)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if name == "--preset":
            sources.append(Source(kind="preset", name=value if equals else next(rest, "")))
        elif name == "--config":
            sources.append(Source(kind="config", name=value if equals else next(rest, "")))
        elif argument.startswith("-"):
            print(f"unknown flag {argument}", file=sys.stderr)
            return ()
        else:
            sources.append(Source(kind="config", name=argument))
    return tuple(sources)


def _report(problems: Sequence[Problem]) -> int:
    for problem in problems:
        print(problem)
    errors = sum(1 for problem in problems if problem.severity == "error")
    print(f"{_count(errors, 'error')}, {_count(len(problems) - errors, 'warning')}")
    if errors:
        return 1
    return 0


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
