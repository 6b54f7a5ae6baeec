"""The distribution: what is installed, what the wheel and the image contain, and the locks."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Container
from pathlib import Path

import pytest

from adapter import __version__
from adapter.cli import commands

ROOT = Path(__file__).parents[1]
SHIPPED = {"adapter", "certs", "rules", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"}


PACKAGES = ("adapter", "certs", "rules")
INSTALLED = "gpu_metrics_adapter.adapter"
IMPORTED = "import adapter, certs, rules; print(adapter.__file__, certs.__file__, rules.__file__)"


def wheel(folder: Path, *, without: Container[str] = ()) -> Path:
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
    return path


@pytest.fixture(scope="module")
def built(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel(tmp_path_factory.mktemp("wheel"))


def other(folder: Path, name: str) -> Path:
    """Build a wheel of a distribution and a package that are both called `name`."""
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    path = folder / f"{name}-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for each in ("__init__", "__main__", "cli", "presets"):
            archive.writestr(
                f"{name}/{each}.py", "raise SystemExit('not ours')\n" * (each[0] != "_")
            )
        for each, text in metadata.items():
            archive.writestr(f"{name}-1.dist-info/{each}", text)
    return path


def test_the_wheel_has_every_module_and_data_file_in_one_package(built: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = {name for name in tracked.stdout.splitlines() if (ROOT / name).exists()}

    with zipfile.ZipFile(built) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}

    assert names == {f"gpu_metrics_adapter/{name}" for name in expected}


class Environment:
    """Virtual environment with the dependencies of this one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        venv.create(folder)
        self.library = Path(
            sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
        )

    def install(self, *wheels: Path) -> None:
        command = [sys.executable, "-m", "pip", "--python", self.python, "install", "--no-compile"]
        subprocess.run([*command, "--quiet", "--no-index", "--no-deps", *wheels], check=True)

    def add_dependencies(self) -> None:
        """Add those of this environment, but not its editable installation."""
        (self.library / "dependencies.pth").write_text(sysconfig.get_path("purelib"))

    def run(self, *command: str | Path) -> str:
        done = subprocess.run(
            command, cwd=self.folder, capture_output=True, text=True, check=False, timeout=90
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        return done.stdout

    def hashes(self) -> dict[str, str]:
        """Return the hashes of the files of other distributions."""
        files = (each for name in PACKAGES for each in self.library.glob(f"{name}*/**/*"))
        return {
            str(each): hashlib.sha256(each.read_bytes()).hexdigest()
            for each in files
            if each.is_file()
        }


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_beside_distributions_with_names_of_our_packages_every_command_works(
    built: Path, tmp_path: Path, first: str
) -> None:
    environment = Environment(tmp_path / "environment")
    theirs = [other(tmp_path, name) for name in PACKAGES]
    if first == "ours":
        environment.install(built)
    environment.install(*theirs)
    files = environment.hashes()
    if first == "theirs":
        environment.install(built)
    environment.add_dependencies()
    program = environment.folder / "bin" / "gpu-metrics-adapter"
    rules = tmp_path / "rules.yaml"

    # The order of installation changes no module of a command, as the hashes below show.
    for name in commands.SUMMARIES if first == "theirs" else ():
        if name != "version":
            assert environment.run(program, name, "--help")
    rules.write_text(environment.run(program, "presets", "gpu-node"))
    assert "gpu-node" in environment.run(program, "presets")
    assert environment.run(program, "check", rules)
    version = f"gpu-metrics-adapter {__version__}\n"
    assert environment.run(program, "version") == version
    assert environment.run(environment.python, "-m", INSTALLED, "version") == version

    own = f"from {INSTALLED}.__main__ import main; main(); {IMPORTED}"
    found = environment.run(environment.python, "-c", own, "version").split()[2:]
    library = environment.library
    assert found == [f"{library}/gpu_metrics_adapter/{name}/__init__.py" for name in PACKAGES]
    found = environment.run(environment.python, "-c", IMPORTED).split()
    assert found == [f"{library}/{name}/__init__.py" for name in PACKAGES]
    assert environment.hashes().items() >= files.items()


@pytest.mark.usefixtures("real_servers")
def test_without_its_package_the_demo_says_how_to_get_it(tmp_path: Path) -> None:
    """The image is built without `adapter/cli/demo`: see .dockerignore."""
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel(tmp_path, without={"adapter/cli/demo"})) as archive:
        archive.extractall(installed)
    modules = installed / "gpu_metrics_adapter" / "adapter" / "cli"
    assert (modules / "commands/demo.py").exists()
    assert not (modules / "demo").exists()

    # -S: the editable installation would find the package in the checkout.
    done = subprocess.run(
        [sys.executable, "-S", "-m", INSTALLED, "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{installed}:{sysconfig.get_path('purelib')}"},
        timeout=90,
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
