"""`make control-plane`: run a control plane in the foreground until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from tools.control_plane import build, foreground, plane


def main() -> None:
    """Start a control plane, print how to reach it, and wait for a signal."""
    programs = build.ensure_programs()
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder:
        started = time.monotonic()
        print(f"starting Kubernetes {programs.version}; logs: {folder}", file=sys.stderr)
        with plane.running(Path(folder), programs) as control_plane:
            print(
                f"\nKubernetes {programs.version} is ready at {control_plane.url}"
                f" after {time.monotonic() - started:.1f} s. Ctrl-C stops it."
                " In another terminal:\n\n"
                f"  export KUBECONFIG={control_plane.kubeconfig}\n"
                f"  {programs.kubectl} get namespaces\n",
                flush=True,
            )
            while True:
                signal.pause()


if __name__ == "__main__":
    with foreground.program():
        main()
