"""Where the Prometheus program comes from."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from adapter.cli.local_prometheus import binary, debian

DEB = "debian package"


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Fakes of Debian's tools, which would otherwise access a mirror."""
    folder = tmp_path / "tools"
    program(folder, "apt-get", f"[ $1 = download ] && echo '{DEB}' >prometheus_1_amd64.deb")
    program(
        folder, "dpkg-deb", '/bin/mkdir -p "$3/usr/bin" && /bin/cp "$2" "$3/usr/bin/prometheus"'
    )
    return folder


def environment(tmp_path: Path, *folders: Path, **more: str) -> dict[str, str]:
    path = ":".join(map(str, folders)) or str(tmp_path)
    return {"PATH": path, "GPU_METRICS_ADAPTER_CACHE": str(tmp_path / "cache"), **more}


def test_the_variable_takes_precedence(tmp_path: Path) -> None:
    path = program(tmp_path, "mine", "")

    assert binary.find({"PROMETHEUS": str(path)}) == path


def test_a_variable_without_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(debian.NoProgramError, match="is not an executable file"):
        binary.find({"PROMETHEUS": str(tmp_path / "none")})
    with pytest.raises(debian.NoProgramError, match="is not an executable file"):
        binary.find({"PROMETHEUS": str(tmp_path)})


def test_the_path_takes_precedence_over_the_cache(tmp_path: Path) -> None:
    path = program(tmp_path / "bin", "prometheus", "")

    assert binary.find(environment(tmp_path, tmp_path / "bin")) == path


def test_the_package_is_unpacked_once_into_the_cache(tmp_path: Path, tools: Path) -> None:
    first = binary.find(environment(tmp_path, tools))
    program(tools, "apt-get", "exit 1")

    assert first == binary.find(environment(tmp_path, tools))
    assert first.read_text() == f"{DEB}\n"
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["prometheus"]


def test_without_package_lists_private_ones_are_downloaded(tmp_path: Path, tools: Path) -> None:
    program(
        tools,
        "apt-get",
        "case $* in\n"
        "download*) exit 100;;\n"
        f"*update) echo '{DEB}' >lists/index;;\n"
        "*download*) /bin/cp lists/index prometheus_1_amd64.deb;;\n"
        "esac",
    )

    assert binary.find(environment(tmp_path, tools)).read_text() == f"{DEB}\n"


def test_a_failed_download_explains_what_to_do(tmp_path: Path, tools: Path) -> None:
    program(tools, "apt-get", "echo no mirror >&2; exit 1")

    with pytest.raises(debian.NoProgramError, match=r"no mirror\ninstall Prometheus"):
        binary.find(environment(tmp_path, tools))


def test_a_cache_that_cannot_be_written_explains_what_to_do(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "cache").touch()

    with pytest.raises(debian.NoProgramError, match=r"File exists:\ninstall Prometheus"):
        binary.find(environment(tmp_path, tools))


def test_without_debians_tools_the_error_explains_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        debian.NoProgramError,
        match=r"needs apt-get and dpkg-deb: install Prometheus .*\n.*\$PROMETHEUS",
    ):
        binary.find(environment(tmp_path))


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"GPU_METRICS_ADAPTER_CACHE": "/a"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/gpu-metrics-adapter"),
        ({"HOME": "/c"}, "/c/.cache/gpu-metrics-adapter"),
        ({}, "/tmp/.cache/gpu-metrics-adapter"),
    ],
    ids=["named", "XDG", "home", "no home"],
)
def test_the_cache_is_in_the_users_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert binary.cache(environ) == Path(folder)


def test_the_module_prints_the_path(tmp_path: Path) -> None:
    path = program(tmp_path, "mine", "")
    command = [sys.executable, "-m", "adapter.cli.local_prometheus.binary"]

    done = subprocess.run(command, env={"PROMETHEUS": str(path)}, capture_output=True, check=True)
    failed = subprocess.run(command, env={"PROMETHEUS": "/none"}, capture_output=True, check=False)

    assert done.stdout.decode() == f"{path}\n"
    assert failed.returncode == 1
