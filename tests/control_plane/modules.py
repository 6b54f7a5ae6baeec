"""The go.mod and go.sum by which a version of Kubernetes is built, each in a folder of its own.

`python -m tests.control_plane.modules VERSION` writes them. Kubernetes' programs are packages of
one Go module, which requires its staging modules at v0.0.0 and replaces them by folders; whoever
builds it from outside replaces each by its published version, v0.MINOR.PATCH.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kubectl")


def folder(version: str) -> Path:
    """Where the module files of Kubernetes `version` ("1.36.3") lie."""
    return Path(__file__).parent / "go" / version


def versions() -> list[str]:
    """Those that have theirs here, the oldest first."""
    return sorted((each.name for each in folder("").iterdir()), key=_numbers)


def package(program: str) -> str:
    return f"k8s.io/kubernetes/cmd/{program}"


def write(version: str, into: Path) -> None:
    text = _go_mod(version)
    into.mkdir(parents=True, exist_ok=True)
    (into / "go.mod").write_text(text)
    _go("mod", "tidy", folder=into)


def _go_mod(version: str) -> str:
    fetched = _json(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
    own = _json(_go("mod", "edit", "-json", fetched["GoMod"]))
    staging = [each["Path"] for each in own["Require"] if each["Version"] == "v0.0.0"]
    minor = version.partition(".")[2]
    go = max(own["Go"], "1.24.0", key=_numbers)  # 1.24 was the first to know `tool`
    return "\n\n".join(
        (
            "module gpu-metrics-adapter/tests/control_plane",
            f"go {go}",
            f"require k8s.io/kubernetes v{version}",
            _block("replace", (f"{path} => {path} v0.{minor}" for path in staging)),
            _block("tool", map(package, PROGRAMS)) + "\n",
        )
    )


def _block(keyword: str, lines: Iterable[str]) -> str:
    return "\n".join((f"{keyword} (", *(f"\t{line}" for line in lines), ")"))


def _numbers(version: str) -> list[int]:
    return [int(each) for each in version.split(".")]


def _go(*arguments: str, folder: Path | None = None) -> str:
    if not shutil.which("go"):
        sys.exit("module files are written by Go: install it (https://go.dev/dl/)")
    # Outside any module, so that the one of the working directory is not asked about.
    done = subprocess.run(
        ["go", *arguments],
        cwd=folder or "/",
        env={**os.environ, "GOWORK": "off"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"`go {' '.join(arguments)}` failed:\n{done.stdout}")
    return done.stdout


def _json(text: str) -> Any:
    return json.loads(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help='of Kubernetes, like "1.36.3"')
    asked = parser.parse_args().version
    write(asked, folder(asked))
    print(folder(asked))
