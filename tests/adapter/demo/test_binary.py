from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from adapter.demo import binary

DEB = "debian package"


def program(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Stand-ins for Debian's tools, which would otherwise ask a mirror."""
    folder = tmp_path / "tools"
    program(folder, "apt-get", f"[ $1 = download ] && echo '{DEB}' >prometheus_1_amd64.deb")
    program(
        folder, "dpkg-deb", '/bin/mkdir -p "$3/usr/bin" && /bin/cp "$2" "$3/usr/bin/prometheus"'
    )
    return folder


def environment(tmp_path: Path, *folders: Path, **more: str) -> dict[str, str]:
    path = ":".join(map(str, folders)) or str(tmp_path)
    return {"PATH": path, "GPU_METRICS_ADAPTER_CACHE": str(tmp_path / "cache"), **more}


def test_named_program_comes_first(tmp_path: Path) -> None:
    named = program(tmp_path, "mine", "")

    assert binary.find({"PROMETHEUS": str(named)}) == named


def test_named_program_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(binary.NoPrometheusError, match="is not a program"):
        binary.find({"PROMETHEUS": str(tmp_path / "none")})


def test_path_comes_before_the_cache(tmp_path: Path) -> None:
    found = program(tmp_path / "bin", "prometheus", "")

    assert binary.find(environment(tmp_path, tmp_path / "bin")) == found


def test_package_is_unpacked_once_into_the_cache(tmp_path: Path, tools: Path) -> None:
    first = binary.find(environment(tmp_path, tools))
    program(tools, "apt-get", "exit 1")

    assert first == binary.find(environment(tmp_path, tools))
    assert first.read_text() == f"{DEB}\n"
    assert [each.name for each in (tmp_path / "cache").iterdir()] == ["prometheus"]


def test_empty_package_lists_are_read_into_a_private_place(tmp_path: Path, tools: Path) -> None:
    program(
        tools,
        "apt-get",
        "case $* in\n"
        "download*) exit 100;;\n"
        f"*update) echo '{DEB}' >lists/there;;\n"
        "*download*) /bin/cp lists/there prometheus_1_amd64.deb;;\n"
        "esac",
    )

    assert binary.find(environment(tmp_path, tools)).read_text() == f"{DEB}\n"


def test_failing_download_says_what_to_do(tmp_path: Path, tools: Path) -> None:
    program(tools, "apt-get", "echo no mirror >&2; exit 1")

    with pytest.raises(binary.NoPrometheusError, match=r"no mirror\ninstall Prometheus"):
        binary.find(environment(tmp_path, tools))


def test_elsewhere_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        binary.NoPrometheusError, match=r"without apt-get and dpkg-deb .* \$PROMETHEUS"
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
def test_cache_is_where_the_user_keeps_caches(environ: dict[str, str], folder: str) -> None:
    assert binary.cache(environ) == Path(folder)


def test_it_can_be_asked_from_a_shell(tmp_path: Path) -> None:
    named = program(tmp_path, "mine", "")
    command = [binary.sys.executable, "-m", "adapter.demo.binary"]

    done = subprocess.run(command, env={"PROMETHEUS": str(named)}, capture_output=True, check=True)
    failed = subprocess.run(command, env={"PROMETHEUS": "/none"}, capture_output=True, check=False)

    assert done.stdout.decode() == f"{named}\n"
    assert failed.returncode == 1
