"""The console in front of a control plane, as a process."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane

_ADDRESS = re.compile(r"^Console: (http://\S+)$", re.MULTILINE)


@contextlib.contextmanager
def running(control_plane: ControlPlane, prometheus: str, log: Path) -> Iterator[str]:
    """Run the console until the context ends; yield its first address, which has the token."""
    command = [
        *(sys.executable, "-m", "adapter", "console", "--no-browser", "--port=0"),
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--prometheus-url={prometheus}",
    ]
    daemon = Daemon("console", command, log, lambda: bool(_ADDRESS.search(log.read_text())))
    daemon.start()
    try:
        match = _ADDRESS.search(log.read_text())
        assert match is not None
        yield match[1]
    finally:
        daemon.stop()
