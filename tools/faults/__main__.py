"""Seed 45 faults on a real control plane and print what a user sees: `python -m tools.faults`.

Arguments are parts of titles; without any, all faults are seeded. `--write` writes their rows of
the table in faults.md beside this file, and records what the API server answered for
tests/golden. The exit code is 1 if a fault is not named with cause and cure by the condition of the
HPA or by the last line of `doctor`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tools.control_plane import build, foreground, plane
from tools.faults import page, seeds, testbed
from tools.faults.seeds import Fault
from tools.faults.testbed import Outputs
from tools.golden import cluster

_WRITE = "--write"


def main(arguments: Sequence[str]) -> int:
    """Print a block for each fault, and how many are named."""
    parts = [each for each in arguments if each != _WRITE]
    programs = build.ensure_programs()
    faults = [
        each for each in seeds.FAULTS if not parts or any(part in each.title for part in parts)
    ]
    rows: list[tuple[Fault, Outputs]] = []
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        print(f"starting Kubernetes {programs.version}; logs: {folder}", file=sys.stderr)
        with (
            plane.running(Path(folder), programs) as control_plane,
            testbed.running(
                control_plane,
                Path(folder),
                cluster.record if _WRITE in arguments else testbed.not_recorded,
            ) as bed,
        ):
            for fault, outputs in bed.observe(faults):
                rows.append((fault, outputs.without(folder)))
                by = page.named_by(fault, outputs)
                print(f"\n## {fault.title}: {f'named by {by}' if by else 'NOT NAMED'}")
                for tool, line in asdict(outputs).items():
                    print(f"{tool:<10} {line}", flush=True)
    named = sum(bool(page.named_by(*row)) for row in rows)
    print(f"\n{named} of {len(faults)} are named with cause and cure")
    if _WRITE in arguments:
        page.write(programs.version, rows)
    return 0 if named == len(faults) else 1


if __name__ == "__main__":
    with foreground.program(signal_status=130):
        sys.exit(main(sys.argv[1:]))
