"""`make citizenship`: check that the adapter does not disturb a cluster, also during faults."""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path

from tests.citizenship import scenarios, testbed
from tests.control_plane import build, foreground, plane


def main() -> int:
    """Run the scenarios; return 0 if all passed, else 1."""
    args = _parser().parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    programs = build.ensure_programs()
    with tempfile.TemporaryDirectory(prefix="citizenship-") as folder:
        print(f"starting Kubernetes {programs.version}; logs: {folder}", flush=True)
        with (
            plane.running(Path(folder), programs) as control_plane,
            testbed.running(control_plane, Path(folder)) as bed,
        ):
            passed = scenarios.run(bed, quiet=args.quiet, outage=args.outage)
    print("passed" if passed else "FAILED", flush=True)
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make citizenship", description=__doc__)
    parser.add_argument("--quiet", type=float, default=600.0, help="seconds without a fault")
    parser.add_argument("--outage", type=float, default=30.0, help="seconds that each fault lasts")
    return parser


if __name__ == "__main__":
    with foreground.program(signal_status=130):
        sys.exit(main())
