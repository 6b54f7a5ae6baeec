"""Finds Chromium, or unpacks Debian's package and the libraries that are not installed.

Needs no root: packages are downloaded and unpacked into the cache, and nothing is installed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from adapter.cli.local_prometheus import binary

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PACKAGE = "chromium"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"


def find(environ: Mapping[str, str] = os.environ) -> tuple[Path, dict[str, str]]:
    """Return the path of Chromium and the environment that it needs.

    `$CHROMIUM` comes first, then the PATH, then Debian's package. Raises CalledProcessError with
    the output of apt-get if there is none.
    """
    if path := environ.get("CHROMIUM"):
        return Path(path), {}
    for name in _NAMES:
        if found := shutil.which(name, path=environ.get("PATH")):
            return Path(found), {}
    root = binary.cache(environ) / "chromium"
    if not root.exists():
        _unpack(root)
    folders = [
        root / _LIBRARIES,
        *sorted(each for each in (root / _LIBRARIES).iterdir() if each.is_dir()),
    ]
    return root / "usr/lib/chromium/chromium", {"LD_LIBRARY_PATH": ":".join(map(str, folders))}


def options(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the arguments of Playwright's `launch`. Raises as `find`."""
    path, environment = find(environ)
    # Chromium refuses to run as root with its sandbox, as in containers of CI.
    return {
        "executable_path": path,
        "env": {**environ, **environment},
        "args": ["--no-sandbox"] if os.geteuid() == 0 else [],
    }


def _unpack(root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="chromium-") as folder:
        scratch = Path(folder)
        apt = ["apt-get"]
        if _simulated(apt).returncode != 0:  # no lists of packages, as in many images
            apt += _own_lists(scratch)
            _run(scratch, *apt, "update")
        _run(scratch, *apt, "download", *_missing(apt))
        for package in sorted(scratch.glob("*.deb")):
            _run(scratch, "dpkg-deb", "-x", str(package), "root")
        try:
            (scratch / "root").rename(root)
        except OSError:  # another process was faster
            if not root.exists():
                raise


def _missing(apt: Sequence[str]) -> Iterator[str]:
    """Yield the packages that an installation would add."""
    done = _simulated(apt)
    done.check_returncode()
    return (match[1] for match in re.finditer(r"^Inst (\S+)", done.stdout, re.MULTILINE))


def _simulated(apt: Sequence[str]) -> subprocess.CompletedProcess[str]:
    command = [*apt, "--simulate", "install", "--no-install-recommends", _PACKAGE]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _own_lists(folder: Path) -> Iterator[str]:
    """Yield options with which apt-get keeps its lists in `folder`, which any user can write."""
    (folder / "lists" / "partial").mkdir(parents=True)
    for option in (f"Dir::State::lists={folder}/lists", f"Dir::Cache={folder}/cache"):
        yield from ("-o", option)
    yield from ("-o", "APT::Sandbox::User=root")


def _run(folder: Path, *command: str) -> None:
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
