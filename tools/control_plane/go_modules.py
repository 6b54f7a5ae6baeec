"""The go.mod and go.sum with which build.py compiles each version of Kubernetes.

`python -m tools.control_plane.go_modules VERSION` writes both files for a new version. All programs
of Kubernetes belong to the Go module k8s.io/kubernetes. It requires its staging modules at v0.0.0
and replaces them by folders of its own repository; a build from outside has to replace each of them
by its published version v0.MINOR.PATCH.
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

PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kubectl")
"""Programs of a control plane."""
NODE_PROGRAMS = ("kubelet", "kube-proxy", "kube-scheduler")
"""Programs that a control plane needs to run pods."""


def folder(version: str) -> Path:
    """Return the folder with the module files of Kubernetes `version` ("1.36.3")."""
    return Path(__file__).parent / "go" / version


def versions() -> list[str]:
    """Return the versions that have module files, oldest first."""
    return sorted((each.name for each in folder("").iterdir()), key=_version_key)


def package(program: str) -> str:
    """Return the Go package of a program."""
    return f"k8s.io/kubernetes/cmd/{program}"


def write(version: str, into: Path) -> None:
    """Write go.mod and go.sum of Kubernetes `version` into a folder; downloads modules."""
    text = _go_mod(version)
    into.mkdir(parents=True, exist_ok=True)
    (into / "go.mod").write_text(text)
    _go("mod", "tidy", folder=into)


def _go_mod(version: str) -> str:
    download = json.loads(_go("mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
    kubernetes = json.loads(_go("mod", "edit", "-json", download["GoMod"]))
    staging = [each["Path"] for each in kubernetes["Require"] if each["Version"] == "v0.0.0"]
    minor = version.partition(".")[2]
    go = max(kubernetes["Go"], "1.24.0", key=_version_key)  # `tool` lines need Go 1.24
    return "\n\n".join(
        (
            "module gpu-metrics-adapter/tools/control_plane",
            f"go {go}",
            f"require k8s.io/kubernetes v{version}",
            _block("replace", (f"{path} => {path} v0.{minor}" for path in staging)),
            _block("tool", map(package, (*PROGRAMS, *NODE_PROGRAMS))) + "\n",
        )
    )


def _block(keyword: str, lines: Iterable[str]) -> str:
    return "\n".join((f"{keyword} (", *(f"\t{line}" for line in lines), ")"))


def _version_key(version: str) -> list[int]:
    return [int(each) for each in version.split(".")]


def _go(*arguments: str, folder: Path | None = None) -> str:
    if not shutil.which("go"):
        sys.exit("Go is not installed, and it writes the module files: see https://go.dev/dl/")
    # The default folder is outside of any module: Go must not read the one of the caller's folder.
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help='version of Kubernetes, for example "1.36.3"')
    version = parser.parse_args().version
    write(version, folder(version))
    print(folder(version))
