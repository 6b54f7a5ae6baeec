"""Run the golden cases of a folder: `python -m tests.vectors FOLDER`.

Exit status: 0 when every case passed or was left out for a reason; 1 when a case failed or a file
was not readable; 2 when there is no such folder or no file of cases in it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.vectors import harness

SHOWN = 20
"""Number of failed cases of a file that are shown without -v."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of *.json files, at any depth")
    parser.add_argument("-v", "--verbose", action="store_true", help="show every failed case")
    arguments = parser.parse_args(argv)
    if not arguments.folder.is_dir():
        sys.stderr.write(f"{arguments.folder}: no such folder\n")
        return 2
    reports = harness.run_folder(arguments.folder)
    if not any(harness.kind(Path(report.file)) for report in reports):
        names = ", ".join(f"{name}.json" for name in harness.CHECKS)
        sys.stderr.write(f"{arguments.folder}: contains none of {names}\n")
        return 2
    limit = None if arguments.verbose else SHOWN
    for report in reports:
        sys.stdout.writelines(f"{line}\n" for line in lines(report, limit))
    failed = sum(len(report.failed) for report in reports)
    passed = sum(report.passed for report in reports)
    left_out = sum(len(report.left_out) for report in reports)
    sys.stdout.write(f"{passed} passed, {failed} failed, {left_out} left out\n")
    return int(failed > 0 or any(_is_broken(report) for report in reports))


def lines(report: harness.Report, limit: int | None) -> Iterator[str]:
    """Yield a line for the file, then its failed cases up to `limit`, and those left out."""
    if report.unreadable:
        yield f"{report.file}  {report.unreadable}"
        return
    counts = (report.passed, len(report.failed), len(report.left_out))
    yield "{}  {} passed  {} failed  {} left out".format(report.file, *counts)
    for outcome in report.failed[:limit]:
        yield f"  failed {outcome.name}: " + outcome.problem.replace("\n", "\n    ")
    if limit is not None and len(report.failed) > limit:
        yield f"  … and {len(report.failed) - limit} more; show them with -v"
    for reason in harness.by_reason(report.left_out):
        yield f"  left out for {reason}"


def _is_broken(report: harness.Report) -> bool:
    """Return whether a file of a known kind is not readable."""
    return bool(report.unreadable) and harness.kind(Path(report.file)) is not None


if __name__ == "__main__":
    sys.exit(main())
