"""`make citizenship`: whether a cluster is none the worse for us, in quiet and under faults."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.citizenship import town, trials
from tests.control_plane import build, foreground, plane


def main() -> int:
    """0 when every trial passed, else 1."""
    asked = _parser().parse_args()
    sys.stdout.reconfigure(errors="replace")
    programs = build.find()
    with tempfile.TemporaryDirectory(prefix="citizenship-") as folder:
        print(f"starting Kubernetes {programs.version}; logs are in {folder}", flush=True)
        with (
            plane.running(Path(folder), programs) as control_plane,
            town.settled(control_plane, Path(folder)) as place,
        ):
            passed = trials.run(place, quiet=asked.quiet, outage=asked.outage)
    print("a good citizen" if passed else "NOT a good citizen", flush=True)
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make citizenship", description=__doc__)
    parser.add_argument("--quiet", type=float, default=600.0, help="seconds without a fault")
    parser.add_argument("--outage", type=float, default=30.0, help="seconds that a fault lasts")
    return parser


if __name__ == "__main__":
    with foreground.program(stopped=130):
        sys.exit(main())
