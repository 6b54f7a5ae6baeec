"""The programs of a control plane: found, or built once into the user's cache.

`python -m tests.control_plane.build` gets them and prints where each one is. `$KUBEBUILDER_ASSETS`
comes first, as envtest has it; then the PATH; then the cache, which is filled with Debian's
etcd-server and what is built from the Go modules of Kubernetes (`$KUBERNETES`, else VERSION).
Several processes may ask at once.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from adapter.demo import binary, debian
from adapter.demo.debian import NoProgramError
from tests.control_plane import modules

VERSION = "1.36.3"
ETCD = debian.Program(
    title="etcd",
    name="etcd",
    package="etcd-server",
    variable="ETCD",
    home="https://etcd.io/docs/latest/install/",
)

_COMPILER = ("-gcflags=all=-N -l -dwarf=false", "-gcflags=std=-dwarf=false")
"""Not optimised, and nothing for debuggers: a fifth less work, for programs that take somewhat
more of CPU. Go's own library, which has the cryptography, is compiled as ever."""
_VERSION_OF = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """The paths of the programs, and the version of the API server."""

    version: str
    etcd: Path
    apiserver: Path
    controllers: Path
    kubectl: Path


def find(environ: Mapping[str, str] = os.environ, *, told_each: float = 15.0) -> Programs:
    """Every program; builds and fetches what is missing, with a line on stderr each few seconds.

    Raises NoProgramError.
    """
    version = _version(environ)
    names = modules.PROGRAMS
    found = {name: _existing(name, version, environ) for name in names}
    missing = [name for name in names if found[name] is None]
    if missing:
        _build(missing, version, environ, told_each)
        found |= {name: _cached(version, environ) / name for name in missing}
    apiserver, controllers, kubectl = (found[name] for name in names)
    assert apiserver
    assert controllers
    assert kubectl
    return Programs(
        version=version,
        etcd=_asset("etcd", environ)
        or debian.find(ETCD, binary.cache(environ) / ETCD.package, environ),
        apiserver=apiserver,
        controllers=controllers,
        kubectl=kubectl,
    )


def _version(environ: Mapping[str, str]) -> str:
    """What is asked for, which an API server among the assets must be."""
    asked = environ.get("KUBERNETES", "").removeprefix("v")
    given = _asset("kube-apiserver", environ)
    has = _version_of(given) if given else asked or VERSION
    if asked and asked != has:
        raise NoProgramError(
            f"$KUBERNETES asks for {asked}, and {given} is {has}: unset one of them and "
            "$KUBEBUILDER_ASSETS"
        )
    return has


def _existing(name: str, version: str, environ: Mapping[str, str]) -> Path | None:
    if asset := _asset(name, environ):
        return asset
    on_path = shutil.which(name, path=environ.get("PATH"))
    # Any kubectl can talk to any API server; of the others another version is another thing.
    if on_path and (name == "kubectl" or _version_of(Path(on_path)) == version):
        return Path(on_path)
    cached = _cached(version, environ) / name
    return cached if cached.exists() else None


def _asset(name: str, environ: Mapping[str, str]) -> Path | None:
    folder = environ.get("KUBEBUILDER_ASSETS")
    found = shutil.which(name, path=folder) if folder else None
    return Path(found) if found else None


def _cached(version: str, environ: Mapping[str, str]) -> Path:
    return binary.cache(environ) / f"kubernetes-{version}"


def _version_of(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.strip().removeprefix("Kubernetes v")


def _build(names: list[str], version: str, environ: Mapping[str, str], told_each: float) -> None:
    """Build the programs `names` into the cache, unless another process does so meanwhile."""
    if not modules.folder(version).exists():
        raise NoProgramError(
            f"there are no module files for Kubernetes {version}, but for "
            f"{' and '.join(modules.versions())}: ask for one of these by $KUBERNETES, or write "
            f"them by `python -m tests.control_plane.modules {version}`"
        )
    if not shutil.which("go", path=environ.get("PATH")):
        raise NoProgramError(
            f"{' and '.join(names)} {version} are not here, and without Go they cannot be built: "
            "install Go (https://go.dev/dl/), or name a folder that has them in $KUBEBUILDER_ASSETS"
        )
    folder = _cached(version, environ)
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder.with_name(f"{folder.name}.lock"), f"Kubernetes {version}"):
        missing = [name for name in names if not (folder / name).exists()]
        if not missing:
            return
        with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
            _go_build(missing, version, Path(scratch), environ, told_each)
            for name in missing:
                (Path(scratch) / name).rename(folder / name)


@contextlib.contextmanager
def _alone(lock: Path, what: str) -> Iterator[None]:
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(f"waiting for another process that builds {what}")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _go_build(
    names: list[str], version: str, into: Path, environ: Mapping[str, str], told_each: float
) -> None:
    major, minor, _ = version.split(".")
    stamps = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = ["-s -w", *(f"-X {of}.{k}={v}" for of in _VERSION_OF for k, v in stamps.items())]
    command = ["go", "build", "-v", "-buildvcs=false", "-ldflags", " ".join(flags)]
    command += [*_COMPILER, "-o", f"{into}/", *map(modules.package, names)]
    source = modules.folder(version)
    # No C compiler is needed, and none is asked for. The compiler is spared most of its garbage
    # collections, for a third more memory.
    own = {"CGO_ENABLED": "0", "GOWORK": "off", "GOGC": environ.get("GOGC", "400")}
    # Told to stop, Go may leave what it has there.
    own["GOTMPDIR"] = str(into)
    what = f"building {', '.join(names)} {version}, 5 to 8 minutes on two cores"
    _say(what)
    began = time.monotonic()
    lines: list[str] = []
    # In a session of its own, so that the compilers it started can be told to stop as well.
    with subprocess.Popen(
        command,
        cwd=source,
        env={**environ, **own},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
        try:
            reader.start()
            while not _ended(process, told_each):
                took = time.monotonic() - began
                _say(f"{what} ... {_duration(took)}, {len(lines)} packages")
            reader.join()
        except BaseException:
            # At this one Go waits for its compilers, before we remove what they write into.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            raise
    if process.returncode:
        raise NoProgramError(
            f"`go build` failed in {source}:\n{''.join(lines[-20:])}"
            "It fetches Kubernetes' modules: see that Go can do so here, or name a folder that has "
            "the programs in $KUBEBUILDER_ASSETS"
        )
    _say(f"built {', '.join(names)} {version} in {_duration(time.monotonic() - began)}")


def _ended(process: subprocess.Popen[str], within: float) -> bool:
    try:
        process.wait(within)
    except subprocess.TimeoutExpired:
        return False
    return True


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        programs = find()
    except NoProgramError as error:
        sys.exit(str(error))
    for field in dataclasses.fields(programs):
        print(f"{field.name:<12} {getattr(programs, field.name)}")
