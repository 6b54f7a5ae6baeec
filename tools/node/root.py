"""Root file system of the node, for a process that is alone in its mount and PID namespaces.

Debian's packages are the lower layer of an overlay, so a run changes nothing of them. Programs run
in a mount namespace of which it is the root. A chroot would not do: what runc executes in a
container begins in the root of the mount namespace.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tools.real.prometheus import wait_for

REPOSITORY = Path(__file__).parents[2]
STORE = "/var/lib/containers"
"""Folder of buildah."""
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
"""Certificate authorities that the machine trusts, such as that of a proxy."""
SYSCTLS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Values that the kubelet wants. They belong to the whole machine, so it only reads them here."""
_ENTER = (
    "cd '{root}' && pivot_root . . && umount --lazy . && mount --make-rshared / "
    "&& touch /run/entered && exec sleep infinity"
)


class Root:
    """Root file system at `path`."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self.path = folder / "root"
        self._folder = folder
        self._packages = packages
        self._holder = 0
        """Process that is in the mount namespace."""

    def mount(self, programs: Iterable[Path], store: Path) -> None:
        """Mount everything, and create the mount namespace.

        `programs` are in /usr/local/bin then, the repository in /src, and the folder `store`, which
        outlives the run, in STORE.
        """
        layers = {"upperdir": self._folder / "upper", "workdir": self._folder / "work"}
        for each in (*layers.values(), self.path):
            each.mkdir()
        options = ",".join(f"{key}={each}" for key, each in layers.items())
        _mount(self.path, "overlay", "-t", "overlay", "-o", f"lowerdir={self._packages},{options}")
        # overlayfs cannot be the upper layer of containerd's snapshots. Images in memory are gone
        # at once at the end; their removal from a busy disk took 15 s.
        for name in ("run", "tmp", "var/lib"):
            _mount(self.path / name, "tmpfs", "-t", "tmpfs")
        self._bind(store, STORE.removeprefix("/"))
        self._bind(REPOSITORY, "src")
        for each in programs:
            self.write(f"usr/local/bin/{each.name}", "")
            _mount(self.path / "usr/local/bin" / each.name, each, "--bind")
        for name in ("dev", "sys"):
            _mount(self.path / name, f"/{name}", "--rbind")
        _mount(self.path / "proc", "proc", "-t", "proc")
        for name, value in SYSCTLS.items():
            file = self._folder / name.replace("/", "-")
            file.write_text(f"{value}\n")
            _mount(self.path / "proc/sys" / name, file, "--bind")
        # For the network of the machine, in which images are built.
        for path in ("etc/hosts", "etc/resolv.conf", CERTIFICATES):
            self.write(path, Path("/", path).read_text())
        enter = ("unshare", "--mount", "sh", "-c", _ENTER.format(root=self.path))
        self._holder = subprocess.Popen(enter).pid
        wait_for((self.path / "run/entered").exists, f"{self.path} is the root of the node")

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def command(self, *command: str | Path) -> list[str | Path]:
        """Return the command line that runs a command in this root."""
        return ["nsenter", f"--mount=/proc/{self._holder}/ns/mnt", "--", *command]

    def run(self, *command: str | Path, stdin: IO[bytes] | None = None) -> str:
        """Run a command and return stdout. Raises RuntimeError with its output."""
        return _run(*self.command(*command), stdin=stdin)

    def _bind(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.path / name).mkdir(parents=True, exist_ok=True)
        _mount(self.path / name, folder, "--bind")


def _mount(target: Path, source: str | Path, *options: str) -> None:
    _run("mount", *options, source, target)


def _run(*command: str | Path, stdin: IO[bytes] | None = None) -> str:
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(map(str, command))}`: {done.stderr or done.stdout}")
    return done.stdout
