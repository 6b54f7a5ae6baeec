"""Where the Prometheus program comes from: named, on the PATH, in the cache, or Debian's package.

The package is unpacked into the cache, never installed: no service starts and no root is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

PACKAGE = "prometheus"


class NoPrometheusError(Exception):
    """No Prometheus program is to be had here; `str()` says what to do."""


def cache(environ: Mapping[str, str]) -> Path:
    """The folder for what is fetched once: `$GPU_METRICS_ADAPTER_CACHE`, else the user's cache.

    https://specifications.freedesktop.org/basedir-spec/latest/
    """
    if named := environ.get("GPU_METRICS_ADAPTER_CACHE"):
        return Path(named)
    base = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME", "/tmp"), ".cache")  # noqa: PTH118, S108 - HOME may be unset in a container
    return Path(base) / "gpu-metrics-adapter"


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """The Prometheus program; fetches Debian's package where nothing else gives one.

    `$PROMETHEUS` names one; else the PATH, else the cache decide.
    """
    if named := environ.get("PROMETHEUS"):
        if os.access(named, os.X_OK):
            return Path(named)
        raise NoPrometheusError(f"$PROMETHEUS is {named!r}, which is not a program")
    if on_path := shutil.which("prometheus", path=environ.get("PATH")):
        return Path(on_path)
    folder = cache(environ) / "prometheus"
    program = folder / "usr/bin/prometheus"
    if not program.exists():
        _unpack(folder, environ)
    return program


def _unpack(folder: Path, environ: Mapping[str, str]) -> None:
    tools = ("apt-get", "dpkg-deb")
    missing = [tool for tool in tools if shutil.which(tool, path=environ.get("PATH")) is None]
    if missing:
        raise NoPrometheusError(
            f"no Prometheus on the PATH, and without {' and '.join(missing)} Debian's package "
            "cannot be fetched: install Prometheus (https://prometheus.io/download/) so that "
            "`prometheus` is on the PATH, or name the program in $PROMETHEUS"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="prometheus-") as scratch:
        _say(f"fetching Debian's package {PACKAGE} into {folder}")
        _download(Path(scratch), environ)
        package = next(Path(scratch).glob("*.deb"))
        _run(["dpkg-deb", "-x", str(package), str(Path(scratch) / "root")], Path(scratch), environ)
        try:
            (Path(scratch) / "root").rename(folder)
        except OSError:
            if not (folder / "usr/bin/prometheus").exists():  # not another process's finished copy
                raise


def _download(scratch: Path, environ: Mapping[str, str]) -> None:
    """Fetch the package; with lists of our own where the machine's are empty."""
    if _try(["apt-get", "download", PACKAGE], scratch, environ) is None:
        return
    for folder in ("lists/partial", "archives/partial"):
        (scratch / folder).mkdir(parents=True)
    # The sandbox user that apt-get drops to may not read below a private folder.
    private = ["-o", f"Dir::State::Lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
    private += ["-o", f"Dir::Cache::Archives={scratch}/archives", "-o", "APT::Sandbox::User=root"]
    _say("reading Debian's package lists")
    _run(["apt-get", *private, "update"], scratch, environ)
    _run(["apt-get", *private, "download", PACKAGE], scratch, environ)


def _run(command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    problem = _try(command, folder, environ)
    if problem is not None:
        raise NoPrometheusError(
            f"no Prometheus on the PATH, and `{' '.join(command)}` failed:\n{problem}\n"
            "install Prometheus so that `prometheus` is on the PATH, or name it in $PROMETHEUS"
        )


def _try(command: list[str], folder: Path, environ: Mapping[str, str]) -> str | None:
    done = subprocess.run(  # noqa: S603 - fixed programs, no shell
        command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(find())
    except NoPrometheusError as error:
        sys.exit(str(error))
