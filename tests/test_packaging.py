"""Installed packages, contents of the wheel, and the locks."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rules import presets

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("package", ["adapter", "certs", "rules"])
def test_installed_package_belongs_to_this_distribution(package: str) -> None:
    owners = importlib.metadata.packages_distributions()[package]

    assert set(owners) == {"gpu-metrics-adapter"}


def test_wheel_contains_presets_and_the_recording_but_no_tests(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    folder = tmp_path / "source"
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, check=True)
    for name in tracked.stdout.decode().split("\n"):
        if (
            name.split("/")[0]
            in {"adapter", "certs", "rules", "setup.cfg", "pyproject.toml"}
            | {
                "README.md",
                "LICENSE",
            }
            and (ROOT / name).exists()
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((ROOT / name).read_bytes())

    subprocess.run([*command, "--wheel-dir", tmp_path, folder], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    contents = set(zipfile.ZipFile(wheel).namelist())

    assert {f"rules/presets/{name}.yaml" for name in presets.names()} <= contents
    assert {"adapter/demo/h200-bert-serving.csv", "adapter/py.typed"} <= contents
    assert not {name for name in contents if name.startswith("tests")}


def test_locks_have_no_index_url_and_hashes_for_every_package() -> None:
    for lock in ("manifests/requirements.lock", "tests/requirements.lock"):
        lines = (ROOT / lock).read_text().splitlines()

        assert not [line for line in lines if "://" in line or line.startswith("--index")]
        pinned = [line for line in lines if "==" in line and not line.startswith(" ")]
        assert len(pinned) > 20
        assert all(line.endswith("\\") for line in pinned)
