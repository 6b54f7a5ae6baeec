"""Programs and root file systems of the one-node cluster: made once, in the user's cache.

The control plane's programs and those of Kubernetes on the node are in `tools.control_plane.build`.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapter.cli.local_prometheus import binary, debian
from adapter.cli.local_prometheus.debian import NoProgramError
from tools.backends import programs
from tools.control_plane import build, go_build

CONTAINERD = [
    programs.Module(
        title=f"{name} 2.2.9",
        variable=name.upper().replace("-", "_"),
        path="github.com/containerd/containerd/v2",
        version="v2.2.9",
        sum="h1:ddw9THGOXhcKnHORjkKoXtazPjwtcPwmqk8AVyRpfZw=",
        package=f"./cmd/{name}",
    )
    for name in ("containerd", "containerd-shim-runc-v2", "ctr")
]
MMDEBSTRAP = debian.Program(
    title="mmdebstrap",
    name="mmdebstrap",
    package="mmdebstrap",
    variable="MMDEBSTRAP",
    home="https://gitlab.mister-muffin.de/josch/mmdebstrap",
)
SUITE = "bookworm"
"""Debian's release in both root file systems."""
NODE_PACKAGES = (
    "buildah",
    "busybox-static",
    "ca-certificates",
    "containernetworking-plugins",
    "golang-github-containers-common",
    "iproute2",
    "mount",
    "nftables",
    "runc",
)
BASE_PACKAGES = ("ca-certificates", "python3", "python3-pip", "python3-venv")


def node_programs(version: str, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the programs of the node; build the missing ones. Raises NoProgramError."""
    return [
        *build.ensure_node_programs(version, environ),
        *(programs.ensure(each, environ) for each in CONTAINERD),
        _coredns(environ),
        programs.ensure(programs.PROMETHEUS_3, environ),
    ]


def node_root(scratch: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the root file system of the node, a folder. Raises NoProgramError."""
    return _debian("node-root", NODE_PACKAGES, scratch, environ)


def base(scratch: Path, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the root file system of the image's base, a tar file. Raises NoProgramError."""
    return _debian("base.tar", BASE_PACKAGES, scratch, environ)


def _coredns(environ: Mapping[str, str]) -> Path:
    source = Path(__file__).parent / "coredns"
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sorted(source.iterdir())))
    folder = binary.cache(environ) / f"coredns-{digest.hexdigest()[:12]}"
    go_build.build(
        {"coredns": str(source / "coredns.go")},
        source,
        folder,
        environ,
        title="CoreDNS",
        task="building CoreDNS (a minute on two cores)",
        otherwise="install Go from https://go.dev/dl/",
    )
    return folder / "coredns"


def _debian(name: str, packages: Sequence[str], scratch: Path, environ: Mapping[str, str]) -> Path:
    """Return a root file system in the cache; make it in `scratch`, which is beside it."""
    path = binary.cache(environ) / SUITE / name
    path.parent.mkdir(exist_ok=True)
    with go_build.exclusive(path.with_name(f"{path.name}.lock"), path.name):
        if path.exists():
            return path
        program = debian.find(MMDEBSTRAP, binary.cache(environ) / "mmdebstrap", environ)
        made = scratch / name
        command: list[str | Path] = [program, "--quiet", "--mode=root", "--variant=minbase"]
        command += [f"--include={','.join(packages)}", SUITE, made]
        go_build.progress(f"unpacking {len(packages)} Debian packages into {path} (a minute)")
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            raise NoProgramError(
                f"`{' '.join(map(str, command))}` failed:\n{done.stderr[-2000:]}"
                "check that apt-get can download Debian's packages"
            )
        made.rename(path)
    return path
