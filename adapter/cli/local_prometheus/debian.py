"""Finds a program on this machine, or downloads its Debian package.

The package is unpacked into a folder and not installed: no service starts, no root is needed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class NoProgramError(Exception):
    """The program is not available; `str()` says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Program on the PATH, in `folder` of a Debian package, or at the path in `$variable`."""

    title: str
    name: str
    package: str
    variable: str
    home: str
    folder: str = "usr/bin"


def find(program: Program, folder: Path, environ: Mapping[str, str]) -> Path:
    """Return the path of `program`: from its variable, the PATH, or its package in `folder`.

    Downloads the package if necessary. Raises NoProgramError.
    """
    if path := environ.get(program.variable):
        if Path(path).is_file() and os.access(path, os.X_OK):
            return Path(path)
        raise NoProgramError(f"${program.variable}: {path} is not an executable file")
    if on_path := shutil.which(program.name, path=environ.get("PATH")):
        return Path(on_path)
    unpacked = folder / program.folder / program.name
    try:
        if not unpacked.exists():
            _unpack(program, folder, environ)
    except OSError as error:
        raise NoProgramError(
            f"{program.name} is not on the PATH, and its Debian package cannot be unpacked in "
            f"{folder}: {error.strerror}:\n"
            f"install {program.title} ({program.home}), or set ${program.variable} to its path"
        ) from error
    return unpacked


def _unpack(program: Program, folder: Path, environ: Mapping[str, str]) -> None:
    tools = ("apt-get", "dpkg-deb")
    missing = [tool for tool in tools if shutil.which(tool, path=environ.get("PATH")) is None]
    if missing:
        raise NoProgramError(
            f"{program.name} is not on the PATH, and its Debian package needs "
            f"{' and '.join(missing)}: install {program.title} ({program.home}),\n"
            f"or set ${program.variable} to its path"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        _say(f"downloading the Debian package {program.package} to {folder}")
        _download(program, Path(scratch), environ)
        package = next(Path(scratch).glob("*.deb"))
        unpack = ["dpkg-deb", "-x", str(package), str(Path(scratch) / "root")]
        _run(program, unpack, Path(scratch), environ)
        try:
            (Path(scratch) / "root").rename(folder)
        except OSError:  # another process may have been faster
            if not (folder / program.folder / program.name).exists():
                raise


def _download(program: Program, scratch: Path, environ: Mapping[str, str]) -> None:
    """Download the package; read the package lists first if the machine has none."""
    if _try(["apt-get", "download", program.package], scratch, environ) is None:
        return
    for folder in ("lists/partial", "archives/partial"):
        (scratch / folder).mkdir(parents=True)
    # The sandbox user of apt-get may not read a private folder.
    private = ["-o", f"Dir::State::Lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
    private += ["-o", f"Dir::Cache::Archives={scratch}/archives", "-o", "APT::Sandbox::User=root"]
    _say("downloading the Debian package lists")
    _run(program, ["apt-get", *private, "update"], scratch, environ)
    _run(program, ["apt-get", *private, "download", program.package], scratch, environ)


def _run(program: Program, command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    problem = _try(command, folder, environ)
    if problem is not None:
        raise NoProgramError(
            f"{program.name} is not on the PATH, and `{' '.join(command)}` failed:\n{problem}\n"
            f"install {program.title} ({program.home}), or set ${program.variable} to its path"
        )


def _try(command: list[str], folder: Path, environ: Mapping[str, str]) -> str | None:
    """Run `command`; return None, or its error output if it fails."""
    done = subprocess.run(  # noqa: S603 - fixed programs, no shell
        command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
