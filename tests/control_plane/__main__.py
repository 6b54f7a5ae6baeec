"""`make control-plane`: a control plane in the foreground, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.control_plane import build, foreground, plane


def main() -> None:
    programs = build.find()
    with tempfile.TemporaryDirectory(prefix="control-plane-") as folder:
        began = time.monotonic()
        print(f"starting Kubernetes {programs.version}; logs are in {folder}", file=sys.stderr)
        with plane.running(Path(folder), programs) as cluster:
            print(
                f"\nKubernetes {programs.version} answers at {cluster.url}"
                f" after {time.monotonic() - began:.1f} s, until Ctrl-C. Elsewhere:\n\n"
                f"  export KUBECONFIG={cluster.kubeconfig}\n"
                f"  {programs.kubectl} get namespaces\n",
                flush=True,
            )
            while True:
                signal.pause()


if __name__ == "__main__":
    with foreground.program():
        main()
