"""Walks over files of golden cases, puts each case to the check of its kind and keeps the outcome.

A file belongs to the check whose name stands in the file's name: `templates.json`,
`templates-2.json`, `more/templates.json`.
"""

from __future__ import annotations

import importlib
import json
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

CHECKS: Mapping[str, str] = {
    "templates": "tests.vectors.checks.templates",
    "expand": "tests.vectors.checks.expand",
    "quantity": "tests.vectors.checks.quantity",
    "selectors": "tests.vectors.checks.selectors",
    "queries": "tests.vectors.checks.queries",
    "naming": "tests.vectors.checks.naming",
    "configs": "tests.vectors.checks.configs",
    "durations": "tests.vectors.checks.durations",
}
"""The kinds of file, each with the module whose `check(case, clusters)` judges one case of it."""

Check = Callable[[Mapping[str, Any], Mapping[str, Any]], None]


class UnreadableError(Exception):
    """A file that cannot be walked over: no cases in it, or no check for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one case."""

    name: str
    problem: str = ""
    """What was wanted and what came; empty when the case passed."""
    exotic: tuple[str, ...] = ()
    """Why the case may be answered otherwise."""

    @property
    def topic(self) -> str:
        return self.name.rpartition("-")[0] or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What became of the cases of one file."""

    file: str
    outcomes: tuple[Outcome, ...] = ()
    unreadable: str = ""
    """Why no case could be tried; empty otherwise."""

    @property
    def passed(self) -> int:
        return sum(not outcome.problem for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.outcomes if each.problem and not each.exotic)

    @property
    def left_out(self) -> tuple[Outcome, ...]:
        return tuple(each for each in self.outcomes if each.problem and each.exotic)


def kind(path: Path) -> str | None:
    """Which check a file belongs to: the first word of its name that is one."""
    words = re.findall(r"[a-z]+", path.stem.lower())
    return next((word for word in words if word in CHECKS), None)


def cases(path: Path) -> list[dict[str, Any]]:
    """The cases of a file. Raises UnreadableError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableError(f"not readable as JSON: {error}") from error
    found = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(case, dict) for case in found):
        raise UnreadableError('no {"cases": […]} in it')
    return found


def clusters(folder: Path) -> Mapping[str, Any]:
    """The clusters that cases name: the folder's own, else those that lie beside this module."""
    path = folder / "clusters.json"
    if not path.is_file():
        path = DATA / "clusters.json"
    named: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["clusters"]
    return named


def check(name: str) -> Check:
    """The check of a kind. Raises UnreadableError when its module is missing or does not load."""
    try:
        found: Check = importlib.import_module(CHECKS[name]).check
    except (ImportError, AttributeError) as error:
        raise UnreadableError(f"its check, {CHECKS[name]}, does not load: {error}") from error
    return found


def attempt(judge: Check, case: Mapping[str, Any], known: Mapping[str, Any]) -> Outcome:
    """One case, tried; a check that raises anything has not been met."""
    name, exotic = str(case.get("name", "?")), tuple(case.get("exotic", ()))
    try:
        judge(case, known)
    except Exception as error:  # noqa: BLE001 - whatever is raised, the case has failed
        return Outcome(name=name, problem=_problem(error, case), exotic=exotic)
    return Outcome(name=name, exotic=exotic)


def _problem(error: Exception, case: Mapping[str, Any]) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    said = str(error)
    if not isinstance(error, AssertionError):
        said = f"{type(error).__name__}: {said}\n  at {place.filename}:{place.lineno}"
    elif not said:
        said = f"not so: {place.line}"
    return f"{said}\ncase   {json.dumps(case, ensure_ascii=False)[:600]}"


def walk(folder: Path) -> list[Report]:
    """Every JSON file below a folder, in the order of their paths, except `clusters.json`."""
    known = clusters(folder)
    reports = []
    for path in sorted(folder.rglob("*.json")):
        if path.name == "clusters.json":
            continue
        file, name = str(path.relative_to(folder)), kind(path)
        if name is None:
            reports.append(Report(file=file, unreadable="unknown: no check has this name"))
            continue
        try:
            judge, found = check(name), cases(path)
        except UnreadableError as error:
            reports.append(Report(file=file, unreadable=str(error)))
            continue
        outcomes = tuple(attempt(judge, case, known) for case in found)
        reports.append(Report(file=file, outcomes=outcomes))
    return reports


def by_reason(outcomes: tuple[Outcome, ...]) -> list[str]:
    """The cases left out, a line for each reason: how many, and the first of their names."""
    groups: dict[str, list[str]] = {}
    for outcome in outcomes:
        groups.setdefault(", ".join(outcome.exotic), []).append(outcome.name)
    lines = []
    for reason, names in sorted(groups.items()):
        rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
        lines.append(f"{reason}: {len(names)} ({', '.join(names[:10])}{rest})")
    return lines
