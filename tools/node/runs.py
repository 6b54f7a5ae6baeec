"""What a run of the cluster has outside of its namespaces: a folder and cgroups.

Processes, mounts, links, rules and sockets belong to the namespaces of the run and end with them.
The folder and the cgroups are removed when the run ends, or at the next start after a SIGKILL: the
lock of the folder shows whether a process of the run still exists.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
_PREFIX = "gpu-metrics-adapter-"
_LOCK = "lock"
_REMOVAL_SECONDS = 20.0
"""Until the kernel has ended all processes of a run, its cgroups cannot be removed."""


@contextlib.contextmanager
def running(runs: Path) -> Iterator[tuple[Path, int]]:
    """Remove what earlier runs left; yield a new folder below `runs`, and its locked file.

    A process of the run has to inherit the file. The name of the folder is that of the cgroups.
    """
    runs.mkdir(parents=True, exist_ok=True)
    for each in runs.iterdir():
        with (each / _LOCK).open("w") as lock, contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(each)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=runs))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            _create_cgroups(folder.name)
            yield folder, lock.fileno()
        finally:
            _remove(folder)


def _create_cgroups(name: str) -> None:
    """Create a cgroup in each hierarchy of version 1, or in the one of version 2."""
    controllers = CGROUPS / "cgroup.controllers"
    if controllers.exists():
        enabled = " ".join(f"+{each}" for each in controllers.read_text().split())
        (CGROUPS / "cgroup.subtree_control").write_text(enabled)
        (CGROUPS / name).mkdir()
        return
    for hierarchy in CGROUPS.iterdir():
        if not hierarchy.is_symlink():
            (hierarchy / name).mkdir()
    for file in ("cpuset.cpus", "cpuset.mems"):  # without them it can have no process
        value = (CGROUPS / "cpuset" / file).read_text()
        (CGROUPS / "cpuset" / name / file).write_text(value)


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + _REMOVAL_SECONDS
    while folder.exists():
        try:
            for cgroup in (CGROUPS / folder.name, *CGROUPS.glob(f"*/{folder.name}")):
                for path, _, _ in os.walk(cgroup, topdown=False):
                    Path(path).rmdir()
            shutil.rmtree(folder)
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"cannot remove what the cluster left: {error}") from error
            time.sleep(0.05)
