"""Runs files of golden cases: each case against the check of its kind.

The kind of a file is the first word of its name that names a check: `templates.json`,
`templates-2.json` and `more/templates.json` are files of templates. The checks are in `checks`.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.vectors.checks import (
    configs,
    durations,
    expand,
    naming,
    quantity,
    queries,
    selectors,
    templates,
)

DATA = Path(__file__).parent / "data"

Check = Callable[[Mapping[str, Any], Mapping[str, Any]], None]
"""Takes a case and the clusters that cases name; raises AssertionError."""

CHECKS: Mapping[str, Check] = {
    "templates": templates.check,
    "expand": expand.check,
    "quantity": quantity.check,
    "selectors": selectors.check,
    "queries": queries.check,
    "naming": naming.check,
    "configs": configs.check,
    "durations": durations.check,
}
"""Check of each kind."""


class UnreadableError(Exception):
    """A file without cases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of one case."""

    name: str
    problem: str = ""
    """Expected and actual answer; empty when the case passed."""
    exotic: tuple[str, ...] = ()
    """Reasons why the case may be answered differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Results of one file."""

    file: str
    outcomes: tuple[Outcome, ...] = ()
    unreadable: str = ""
    """Why no case was run; empty otherwise."""

    @property
    def passed(self) -> int:
        """Number of cases that passed."""
        return sum(not outcome.problem for outcome in self.outcomes)

    @property
    def failed(self) -> tuple[Outcome, ...]:
        """Cases that failed and are not exotic."""
        return tuple(each for each in self.outcomes if each.problem and not each.exotic)

    @property
    def left_out(self) -> tuple[Outcome, ...]:
        """Exotic cases that did not pass."""
        return tuple(each for each in self.outcomes if each.problem and each.exotic)


def kind(path: Path) -> str | None:
    """Return the kind of a file, or None."""
    words = re.findall(r"[a-z]+", path.stem.lower())
    return next((word for word in words if word in CHECKS), None)


def cases(path: Path) -> list[dict[str, Any]]:
    """Return the cases of a file. Raises UnreadableError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableError(f"not readable as JSON: {error}") from error
    found = document.get("cases") if isinstance(document, dict) else None
    if not isinstance(found, list) or not all(isinstance(case, dict) for case in found):
        raise UnreadableError('no {"cases": […]} in the file')
    return found


def clusters(folder: Path) -> Mapping[str, Any]:
    """Return the clusters that cases name, from the folder's clusters.json or else from DATA."""
    path = folder / "clusters.json"
    if not path.is_file():
        path = DATA / "clusters.json"
    named: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["clusters"]
    return named


def run_case(check: Check, case: Mapping[str, Any], named: Mapping[str, Any]) -> Outcome:
    """Run one case; it fails if the check raises anything."""
    name, exotic = str(case.get("name", "?")), tuple(case.get("exotic", ()))
    try:
        check(case, named)
    except Exception as error:  # noqa: BLE001 - a check that breaks has failed too
        return Outcome(name=name, problem=_problem(error, case), exotic=exotic)
    return Outcome(name=name, exotic=exotic)


def _problem(error: Exception, case: Mapping[str, Any]) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = str(error)
    if not isinstance(error, AssertionError):
        message = f"{type(error).__name__}: {message}\n  at {place.filename}:{place.lineno}"
    elif not message:
        message = f"assertion failed: {place.line}"
    return f"{message}\ncase     {json.dumps(case, ensure_ascii=False)[:600]}"


def run_folder(folder: Path) -> list[Report]:
    """Run every JSON file below a folder, in the order of their paths, except clusters.json."""
    return [
        run_file(folder, str(path.relative_to(folder)))
        for path in sorted(folder.rglob("*.json"))
        if path.name != "clusters.json"
    ]


def run_file(folder: Path, file: str) -> Report:
    """Run the cases of one file of a folder."""
    name = kind(Path(file))
    if name is None:
        return Report(file=file, unreadable="no check is named like this file")
    try:
        found = cases(folder / file)
    except UnreadableError as error:
        return Report(file=file, unreadable=str(error))
    named = clusters(folder)
    outcomes = tuple(run_case(CHECKS[name], case, named) for case in found)
    return Report(file=file, outcomes=outcomes)


def by_reason(outcomes: Iterable[Outcome]) -> list[str]:
    """Return one line for each reason: the number of cases and the first of their names."""
    groups: dict[str, list[str]] = {}
    for outcome in outcomes:
        groups.setdefault(", ".join(outcome.exotic), []).append(outcome.name)
    lines = []
    for reason, names in sorted(groups.items()):
        rest = f" and {len(names) - 10} more" if len(names) > 10 else ""
        lines.append(f"{reason}: {len(names)} ({', '.join(names[:10])}{rest})")
    return lines
