"""A program that this machine has, or that Debian's package of it has.

The package is unpacked into a folder, never installed: no service starts and no root is needed.
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
    """The program is not to be had here; `str()` says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """`name` on the PATH, in `usr/bin` of Debian's `package`, or what `$variable` names."""

    title: str
    name: str
    package: str
    variable: str
    home: str


def find(program: Program, folder: Path, environ: Mapping[str, str]) -> Path:
    """Named by its variable, else on the PATH, else in `folder`, where the package is unpacked.

    Raises NoProgramError.
    """
    if named := environ.get(program.variable):
        if os.access(named, os.X_OK):
            return Path(named)
        raise NoProgramError(f"${program.variable} is {named!r}, which is not a program")
    if on_path := shutil.which(program.name, path=environ.get("PATH")):
        return Path(on_path)
    unpacked = folder / "usr/bin" / program.name
    if not unpacked.exists():
        _unpack(program, folder, environ)
    return unpacked


def _unpack(program: Program, folder: Path, environ: Mapping[str, str]) -> None:
    tools = ("apt-get", "dpkg-deb")
    missing = [tool for tool in tools if shutil.which(tool, path=environ.get("PATH")) is None]
    if missing:
        raise NoProgramError(
            f"no {program.title} on the PATH, and without {' and '.join(missing)} Debian's package "
            f"cannot be fetched: install {program.title} ({program.home}) so that "
            f"`{program.name}` is on the PATH, or name the program in ${program.variable}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f"{folder.name}-") as scratch:
        _say(f"fetching Debian's package {program.package} into {folder}")
        _download(program, Path(scratch), environ)
        package = next(Path(scratch).glob("*.deb"))
        unpack = ["dpkg-deb", "-x", str(package), str(Path(scratch) / "root")]
        _run(program, unpack, Path(scratch), environ)
        try:
            (Path(scratch) / "root").rename(folder)
        except OSError:  # unless it is another process's finished copy
            if not (folder / "usr/bin" / program.name).exists():
                raise


def _download(program: Program, scratch: Path, environ: Mapping[str, str]) -> None:
    """Fetch the package; with lists of our own where the machine's are empty."""
    if _try(["apt-get", "download", program.package], scratch, environ) is None:
        return
    for folder in ("lists/partial", "archives/partial"):
        (scratch / folder).mkdir(parents=True)
    # The sandbox user that apt-get drops to may not read below a private folder.
    private = ["-o", f"Dir::State::Lists={scratch}/lists", "-o", f"Dir::Cache={scratch}"]
    private += ["-o", f"Dir::Cache::Archives={scratch}/archives", "-o", "APT::Sandbox::User=root"]
    _say("reading Debian's package lists")
    _run(program, ["apt-get", *private, "update"], scratch, environ)
    _run(program, ["apt-get", *private, "download", program.package], scratch, environ)


def _run(program: Program, command: list[str], folder: Path, environ: Mapping[str, str]) -> None:
    problem = _try(command, folder, environ)
    if problem is not None:
        raise NoProgramError(
            f"no {program.title} on the PATH, and `{' '.join(command)}` failed:\n{problem}\n"
            f"install {program.title} so that `{program.name}` is on the PATH, "
            f"or name it in ${program.variable}"
        )


def _try(command: list[str], folder: Path, environ: Mapping[str, str]) -> str | None:
    done = subprocess.run(  # noqa: S603 - fixed programs, no shell
        command, cwd=folder, env=dict(environ), capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else (done.stderr or done.stdout).strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
