"""Programs of a control plane: looked up, or built once into the user's cache.

`python -m tools.control_plane.build` prints the path of each. They are taken from
`$KUBEBUILDER_ASSETS` (as in envtest), else from the PATH, else from the cache. Programs that are
missing there are built from the Go modules of Kubernetes, in the version `$KUBERNETES` or VERSION;
etcd comes from Debian's etcd-server package. `ensure_reader` builds the Go client in `reader` from
the same modules. Several processes may call this at once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from adapter.cli.local_prometheus import binary, debian
from adapter.cli.local_prometheus.debian import NoProgramError
from tools.control_plane import go_build, go_modules

VERSION = "1.36.3"
ETCD = debian.Program(
    title="etcd",
    name="etcd",
    package="etcd-server",
    variable="ETCD",
    home="https://etcd.io/docs/latest/install/",
)

_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Paths of the programs, and the version of Kubernetes."""

    version: str
    etcd: Path
    apiserver: Path
    controller_manager: Path
    kubectl: Path


def ensure_programs(environ: Mapping[str, str] = os.environ) -> Programs:
    """Return all programs; build or download the missing ones.

    A build takes minutes and prints its progress on stderr. Raises NoProgramError, whose text says
    what to install.
    """
    version = _wanted_version(environ)
    apiserver, controller_manager, kubectl = _ensure(
        go_modules.PROGRAMS, version, environ, "5 to 8 minutes"
    )
    return Programs(
        version=version,
        etcd=_asset("etcd", environ)
        or debian.find(ETCD, binary.cache(environ) / ETCD.package, environ),
        apiserver=apiserver,
        controller_manager=controller_manager,
        kubectl=kubectl,
    )


def ensure_node_programs(
    version: str, environ: Mapping[str, str] = os.environ
) -> tuple[Path, Path, Path]:
    """Return kubelet, kube-proxy and kube-scheduler, as `ensure_programs` does."""
    kubelet, proxy, scheduler = _ensure(
        go_modules.NODE_PROGRAMS, version, environ, "1 to 2 minutes"
    )
    return kubelet, proxy, scheduler


def ensure_reader(version: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return the program of `reader`, which reads metrics with the clients of that Kubernetes.

    It is built again when its source changes: in seconds where the programs were built, since Go
    keeps the packages. Raises NoProgramError.
    """
    source = Path(__file__).parent / "reader" / "reader.go"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    path = _cache_folder(version, environ) / f"reader-{digest}"
    if not path.exists():
        task = f"building the Go client for Kubernetes {version} (half a minute on two cores)"
        _build({path.name: str(source)}, version, environ, task)
    return path


def _ensure(
    names: Sequence[str], version: str, environ: Mapping[str, str], duration: str
) -> list[Path]:
    """Return the programs of Kubernetes; build the missing ones, which takes `duration`."""
    paths = {name: _existing(name, version, environ) for name in names}
    if missing := [name for name, path in paths.items() if path is None]:
        task = f"building {', '.join(missing)} {version} ({duration} on two cores)"
        targets = {name: go_modules.package(name) for name in missing}
        _build(targets, version, environ, task)
    return [path or _cache_folder(version, environ) / name for name, path in paths.items()]


def _wanted_version(environ: Mapping[str, str]) -> str:
    """Return `$KUBERNETES`, else the version of the API server in the assets, else VERSION."""
    requested = environ.get("KUBERNETES", "").removeprefix("v")
    asset = _asset("kube-apiserver", environ)
    version = _program_version(asset) if asset else requested or VERSION
    if requested and requested != version:
        raise NoProgramError(
            f"$KUBERNETES is {requested}, but {asset} is version {version}: "
            "unset $KUBERNETES or $KUBEBUILDER_ASSETS"
        )
    return version


def _existing(name: str, version: str, environ: Mapping[str, str]) -> Path | None:
    if asset := _asset(name, environ):
        return asset
    on_path = shutil.which(name, path=environ.get("PATH"))
    # Any version of kubectl works with any API server; the other programs must match exactly.
    if on_path and (name == "kubectl" or _program_version(Path(on_path)) == version):
        return Path(on_path)
    cached = _cache_folder(version, environ) / name
    return cached if cached.exists() else None


def _asset(name: str, environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("KUBEBUILDER_ASSETS")
    path = shutil.which(name, path=folder) if folder else None
    return Path(path) if path else None


def _cache_folder(version: str, environ: Mapping[str, str]) -> Path:
    return binary.cache(environ) / f"kubernetes-{version}"


def _program_version(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().removeprefix("Kubernetes v")


def _build(targets: Mapping[str, str], version: str, environ: Mapping[str, str], task: str) -> None:
    """Build the programs into the cache. `targets` has the Go package or file of each name."""
    if not go_modules.folder(version).exists():
        raise NoProgramError(
            f"no go.mod for Kubernetes {version}: set $KUBERNETES to "
            f"{' or '.join(go_modules.versions())}, "
            f"or run `python -m tools.control_plane.go_modules {version}`"
        )
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    go_build.build(
        targets,
        go_modules.folder(version),
        _cache_folder(version, environ),
        environ,
        stamps={f"{package}.{k}": v for package in _VERSION_PACKAGES for k, v in stamps.items()},
        title=f"Kubernetes {version}",
        task=task,
        otherwise="set $KUBEBUILDER_ASSETS to a folder that has the programs",
    )


if __name__ == "__main__":
    try:
        programs = ensure_programs()
    except NoProgramError as error:
        sys.exit(str(error))
    for field in dataclasses.fields(programs):
        print(f"{field.name:<18} {getattr(programs, field.name)}")
