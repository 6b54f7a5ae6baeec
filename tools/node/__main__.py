"""`make cluster`: a real Kubernetes cluster of one node in the foreground, until Ctrl-C.

Everything runs in namespaces of one process. When that ends, however it ends, the kernel ends
all processes in them and removes their mounts, links and rules.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from adapter.cli.local_prometheus import binary
from adapter.cli.local_prometheus.process import child_command
from tools.control_plane import foreground
from tools.node import runs

_TOOLS = ("apt-get", "dpkg-deb", "mount", "nsenter", "setpriv", "unshare")
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The shell is process 1: it waits for the orphans of containerd.
_NAMESPACES = (
    *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
    *("--propagation=private", "--", "sh", "-c", '"$@" & wait $!', "sh"),
)


def main() -> int:
    """Run the cluster until a signal, and remove what it left."""
    check_machine()
    with runs.running(binary.cache(os.environ) / "runs") as (folder, lock):
        inside = ("-m", "tools.node.inside", str(folder), *sys.argv[1:])
        command = child_command(*_NAMESPACES, sys.executable, *inside)
        # In its own session: Ctrl-C must reach only this process.
        process = subprocess.Popen(command, pass_fds=[lock], start_new_session=True)
        try:
            return process.wait()
        finally:
            process.kill()
            process.wait()


def check_machine() -> None:
    """Raise RuntimeError if this machine cannot run the cluster."""
    if os.geteuid() != 0:
        raise RuntimeError(
            "make cluster starts containers, so it needs root: run it with sudo;\n"
            "make playground shows an HPA that follows GPU load without root"
        )
    if missing := [each for each in _TOOLS if not shutil.which(each)]:
        raise RuntimeError(
            f"make cluster needs {', '.join(missing)}: run it on Debian or Ubuntu;\n"
            "elsewhere use kind, or make playground, which runs on each Linux"
        )
    if not _KEYRING.exists():
        raise RuntimeError(f"make cluster needs {_KEYRING}: apt-get install debian-archive-keyring")
    if not Path("/proc/sys/net/bridge").exists():
        raise RuntimeError("make cluster needs a kernel module: modprobe br_netfilter")


if __name__ == "__main__":
    with foreground.program():
        sys.exit(main())
