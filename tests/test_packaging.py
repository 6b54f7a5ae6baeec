"""The distribution: what is installed, what the wheel and the image contain, and the locks."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Container
from pathlib import Path

import pytest

from rules import presets

ROOT = Path(__file__).parents[1]
SHIPPED = {"adapter", "certs", "rules", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"}


def wheel(folder: Path, *, without: Container[str] = ()) -> zipfile.ZipFile:
    """Build a wheel from the tracked files, except the packages `without`."""
    source = folder / "source"
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in map(Path, tracked.stdout.splitlines()):
        excluded = name.parts[0] not in SHIPPED or str(name.parent) in without
        if not excluded and (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, source], check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


@pytest.mark.parametrize("package", ["adapter", "certs", "rules"])
def test_an_installed_package_belongs_to_this_distribution(package: str) -> None:
    owners = importlib.metadata.packages_distributions()[package]

    assert set(owners) == {"gpu-metrics-adapter"}


@pytest.mark.usefixtures("real_servers")
def test_the_wheel_contains_data_files_and_no_tests(tmp_path: Path) -> None:
    with wheel(tmp_path) as archive:
        names = set(archive.namelist())

    assert {f"rules/presets/{name}.yaml" for name in presets.names()} <= names
    assert {"adapter/cli/demo/h200-bert-serving.csv", "adapter/py.typed"} <= names
    assert "adapter/server/api/groups/custom.openapi_v2.json" in names
    assert {
        "adapter/cli/console/static/console.js",
        "adapter/cli/console/templates/base.html",
    } <= names
    assert not {name for name in names if name.startswith("tests")}


@pytest.mark.usefixtures("real_servers")
def test_without_its_package_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    """The image is built without `adapter/cli/demo`: see .dockerignore."""
    installed = tmp_path / "installed"
    with wheel(tmp_path, without={"adapter/cli/demo"}) as archive:
        archive.extractall(installed)
    assert (installed / "adapter/cli/commands/demo.py").exists()
    assert not (installed / "adapter/cli/demo").exists()

    # -S: the editable installation would find the package in the checkout.
    done = subprocess.run(
        [sys.executable, "-S", "-m", "adapter", "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{installed}:{sysconfig.get_path('purelib')}"},
        timeout=60,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("demo: not part of this image; run it in a checkout of the repository\n")


def test_the_locks_name_no_registry_and_hash_everything() -> None:
    for lock in (
        "manifests/identities.lock",
        "manifests/requirements.lock",
        "tests/requirements.lock",
    ):
        lines = (ROOT / lock).read_text().splitlines()

        assert not [line for line in lines if "://" in line or line.startswith("--index")]
        pinned = [line for line in lines if "==" in line and not line.startswith(" ")]
        assert len(pinned) > 20
        assert all(line.endswith("\\") for line in pinned)
