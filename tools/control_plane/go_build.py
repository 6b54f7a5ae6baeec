"""Builds Go programs into a folder: once, with a line of progress now and then.

Several processes may call `build` at once. The callers know which programs there are, and where
their sources come from.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from adapter.cli.local_prometheus.debian import NoProgramError

_PROGRESS_SECONDS = 15.0
_COMPILER_FLAGS = ("-gcflags=all=-N -l -dwarf=false", "-gcflags=std=-dwarf=false")
"""No optimisation and no debug information: the build is a fifth shorter and the programs use
somewhat more CPU. Go's standard library, which contains the cryptography, stays optimised."""


def build(
    targets: Mapping[str, str],
    source: Path,
    into: Path,
    environ: Mapping[str, str],
    *,
    title: str,
    task: str,
    otherwise: str,
    stamps: Mapping[str, str] = MappingProxyType({}),
    flags: Sequence[str] = (),
) -> None:
    """Build the programs that `into` lacks, unless another process has just done so.

    `targets` has the Go package or file of each program's name, `source` is the folder of go.mod,
    `stamps` has values of variables of the programs, `flags` are further arguments of `go build`.
    Messages contain `title`, `task` and `otherwise`, which says what the user can do without a
    build. Raises NoProgramError.
    """
    require_go(f"{', '.join(targets)}", title, otherwise, environ)
    into.mkdir(parents=True, exist_ok=True)
    with exclusive(into.with_name(f"{into.name}.lock"), title):
        missing = {name: each for name, each in targets.items() if not (into / name).exists()}
        if not missing:
            return
        with tempfile.TemporaryDirectory(dir=into, prefix=".") as scratch:
            command = ["go", "build", "-v", "-buildvcs=false", *_COMPILER_FLAGS, *flags]
            variables = (f"-X {name}={value}" for name, value in stamps.items())
            command += ["-ldflags", " ".join(("-s -w", *variables))]
            command += ["-o", f"{scratch}/", *missing.values()]
            _go_build(command, source, Path(scratch), environ, task, otherwise)
            for name, target in missing.items():
                (Path(scratch) / Path(target).stem).rename(into / name)


def require_go(names: str, title: str, otherwise: str, environ: Mapping[str, str]) -> None:
    """Raise NoProgramError unless Go is installed."""
    if not shutil.which("go", path=environ.get("PATH")):
        raise NoProgramError(
            f"{names} of {title} not found, and Go is needed to build: install Go "
            f"(https://go.dev/dl/) or {otherwise}"
        )


@contextlib.contextmanager
def exclusive(lock: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file; print a line if another process has it."""
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that builds {what}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _go_build(
    command: Sequence[str],
    source: Path,
    scratch: Path,
    environ: Mapping[str, str],
    task: str,
    otherwise: str,
) -> None:
    go_environ = {
        **environ,
        "CGO_ENABLED": "0",  # no C compiler is needed
        "GOWORK": "off",
        # Fewer garbage collections of the compiler, for a third more memory.
        "GOGC": environ.get("GOGC", "400"),
        # An interrupted Go leaves its temporary files behind; here they are deleted.
        "GOTMPDIR": str(scratch),
    }
    progress(task)
    started = time.monotonic()
    packages: list[str] = []
    # In its own session, so that a signal also reaches the compilers that Go starts.
    with subprocess.Popen(
        command,
        cwd=source,
        env=go_environ,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr
        reader = threading.Thread(target=packages.extend, args=(process.stderr,), daemon=True)
        try:
            reader.start()
            while not _exited(process, _PROGRESS_SECONDS):
                elapsed = _duration(time.monotonic() - started)
                progress(f"{task} ... {elapsed}, {len(packages)} packages")
            reader.join()
        except BaseException:
            # On SIGINT Go waits for its compilers, so nothing writes into the folder any more
            # when it is deleted.
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
            raise
    if process.returncode:
        raise NoProgramError(
            f"`go build` failed in {source}:\n{''.join(packages[-20:])}"
            f"check that Go can download the modules, or {otherwise}"
        )
    progress(f"{task}: done in {_duration(time.monotonic() - started)}")


def _exited(process: subprocess.Popen[str], timeout: float) -> bool:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        return False
    return True


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


def progress(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)
