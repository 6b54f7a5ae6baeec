"""`make citizenship`: whether a cluster is none the worse for us, in quiet and under faults."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from adapter.demo.debian import NoProgramError
from tests.citizenship import town, trials
from tests.control_plane import build, plane


def main() -> int:
    """0 when every trial passed, 1 when one did not or nothing could start."""
    asked = _parser().parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(130))
    try:
        programs = build.find()
    except NoProgramError as error:
        print(error, file=sys.stderr)
        return 1
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
    sys.exit(main())
