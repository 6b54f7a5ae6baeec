"""Print the last line that each tool shows of each fault: `python -m tests.faults`."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.control_plane import build, foreground, plane
from tests.faults import seeds, testbed


def main() -> int:
    """Seed the faults on a real control plane and print a block for each."""
    programs = build.ensure_programs()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        print(f"starting Kubernetes {programs.version}; logs: {folder}", file=sys.stderr)
        with (
            plane.running(Path(folder), programs) as control_plane,
            testbed.running(control_plane, Path(folder)) as bed,
        ):
            for fault, outputs in bed.observe(seeds.FAULTS):
                print(f"\n## {fault.title}")
                for tool, line in asdict(outputs).items():
                    if line:
                        print(f"{tool:<8} {line}", flush=True)
    return 0


if __name__ == "__main__":
    with foreground.program(signal_status=130):
        sys.exit(main())
