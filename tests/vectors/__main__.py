"""`python -m tests.vectors FOLDER`: what this project answers to a folder of golden cases.

Exits with 0 when every case passed or was left out for a reason, with 1 when one failed or a file
could not be used, with 2 when there is no such folder or no case in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.vectors import harness

SHOWN = 20
"""How many failing cases of a file are shown without -v."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of *.json files, at any depth")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every failing case")
    arguments = parser.parse_args(argv)
    if not arguments.folder.is_dir():
        sys.stderr.write(f"{arguments.folder}: no such folder\n")
        return 2
    reports = harness.walk(arguments.folder)
    if not any(harness.kind(Path(report.file)) for report in reports):
        names = ", ".join(f"{name}.json" for name in harness.CHECKS)
        sys.stderr.write(f"{arguments.folder}: holds none of {names}\n")
        return 2
    shown = None if arguments.verbose else SHOWN
    for report in reports:
        sys.stdout.writelines(f"{line}\n" for line in lines(report, shown))
    failed = sum(len(report.failed) for report in reports)
    passed = sum(report.passed for report in reports)
    left_out = sum(len(report.left_out) for report in reports)
    sys.stdout.write(f"{passed} passed, {failed} failed, {left_out} left out\n")
    return int(failed > 0 or any(_unusable(report) for report in reports))


def lines(report: harness.Report, shown: int | None) -> Iterator[str]:
    """One line for the file, then its failing cases and those left out."""
    if report.unreadable:
        yield f"{report.file}  {report.unreadable}"
        return
    counts = (report.passed, len(report.failed), len(report.left_out))
    yield "{}  {} passed  {} failed  {} left out".format(report.file, *counts)
    for outcome in report.failed[:shown]:
        yield f"  failed {outcome.name}: " + outcome.problem.replace("\n", "\n    ")
    if shown is not None and len(report.failed) > shown:
        yield f"  … and {len(report.failed) - shown} more; -v shows them"
    for reason in harness.by_reason(report.left_out):
        yield f"  left out for {reason}"


def _unusable(report: harness.Report) -> bool:
    """A file of a known kind that could not be walked over."""
    return bool(report.unreadable) and harness.kind(Path(report.file)) is not None


if __name__ == "__main__":
    sys.exit(main())
