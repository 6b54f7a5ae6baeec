from __future__ import annotations

import json
import re
import shutil
import threading
from pathlib import Path

import pytest

from adapter.demo.debian import NoProgramError
from tests.control_plane import build, modules

NAMES = ("kube-apiserver", "kube-controller-manager", "kubectl")
GO = (
    'echo "$@" >>"$LOG"\n'
    "echo k8s.io/some/package >&2\n"
    "sleep 0.2\n"
    'while [ $# -gt 0 ]; do case "$1" in\n'
    '-o) into="$2"; shift;;\n'
    'k8s.io/*) name="${1##*/}"; '
    'printf \'#!/bin/sh\\necho Kubernetes v1.36.3\\n\' >"$into$name"; chmod +x "$into$name";;\n'
    "esac; shift; done\n"
)


def program(folder: Path, name: str, text: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Where Go is a stand-in that writes what it is told to build, and etcd is there."""
    program(tmp_path / "bin", "etcd")
    program(tmp_path / "bin", "go", GO)
    for tool in ("sleep", "chmod"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return {
        "PATH": str(tmp_path / "bin"),
        "GPU_METRICS_ADAPTER_CACHE": str(tmp_path / "cache"),
        "LOG": str(tmp_path / "log"),
    }


def builds(environ: dict[str, str]) -> list[str]:
    """The programs that each build was asked for."""
    log = Path(environ["LOG"])
    lines = log.read_text().splitlines() if log.exists() else ()
    return [" ".join(re.findall(r"cmd/(\S+)", line)) for line in lines]


def test_what_is_missing_is_built_once(environ, tmp_path, capfd):
    first = build.find(environ)

    assert build.find(environ) == first
    assert builds(environ) == [" ".join(NAMES)]
    assert first.apiserver == tmp_path / "cache/kubernetes-1.36.3/kube-apiserver"
    assert first.version == "1.36.3"
    assert "building kube-apiserver, kube-controller-manager, kubectl 1.36.3, 5 to 8 minutes" in (
        capfd.readouterr().err
    )


def test_progress_is_told(environ, capfd):
    build.find(environ, told_each=0.05)

    assert "cores ... 0s, 1 packages" in capfd.readouterr().err


def test_only_what_the_cache_lacks_is_built(environ):
    built = build.find(environ)
    built.kubectl.unlink()

    assert build.find(environ) == built
    assert builds(environ)[1:] == ["kubectl"]


def test_any_kubectl_of_the_path_will_do(environ, tmp_path):
    found = program(tmp_path / "bin", "kubectl", "echo Client Version: v1.20.0")

    assert build.find(environ).kubectl == found
    assert builds(environ) == ["kube-apiserver kube-controller-manager"]


@pytest.mark.parametrize(
    ("has", "built"),
    [
        ("1.36.3", ["kube-controller-manager kubectl"]),
        ("1.20.0", ["kube-apiserver kube-controller-manager kubectl"]),
    ],
    ids=["the one asked for", "another"],
)
def test_api_server_of_the_path_must_be_the_one_asked_for(environ, tmp_path, has, built):
    program(tmp_path / "bin", "kube-apiserver", f"echo Kubernetes v{has}")

    build.find(environ)

    assert builds(environ) == built


def test_assets_come_first_and_name_the_version(environ, tmp_path):
    assets = tmp_path / "assets"
    given = [program(assets, name, "echo Kubernetes v1.32.2") for name in ("etcd", *NAMES)]

    found = build.find(environ | {"KUBEBUILDER_ASSETS": str(assets)})

    assert [found.etcd, found.apiserver, found.controllers, found.kubectl] == given
    assert found.version == "1.32.2"
    assert builds(environ) == []


def test_controllers_that_assets_lack_are_built_in_their_version(environ, tmp_path):
    assets = tmp_path / "assets"
    for name in ("etcd", "kube-apiserver", "kubectl"):
        program(assets, name, "echo Kubernetes v1.32.2")

    found = build.find(environ | {"KUBEBUILDER_ASSETS": str(assets)})

    assert found.controllers == tmp_path / "cache/kubernetes-1.32.2/kube-controller-manager"


def test_assets_of_another_version_than_asked_for_are_refused(environ, tmp_path):
    program(tmp_path / "assets", "kube-apiserver", "echo Kubernetes v1.30.0")
    environ |= {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "KUBERNETES": "1.32.2"}

    with pytest.raises(NoProgramError, match=r"asks for 1\.32\.2, and .* is 1\.30\.0"):
        build.find(environ)


def test_unknown_version_says_how_to_make_it_known(environ):
    with pytest.raises(
        NoProgramError,
        match=r"but for 1\.32\.2 and 1\.36\.3: .*python -m tests.control_plane.modules 1\.12\.0",
    ):
        build.find(environ | {"KUBERNETES": "v1.12.0"})


def test_without_go_it_says_what_to_do(environ, tmp_path):
    (tmp_path / "bin/go").unlink()

    with pytest.raises(NoProgramError, match=r"install Go .* or name a folder"):
        build.find(environ)


def test_failing_build_shows_its_last_words(environ, tmp_path):
    program(tmp_path / "bin", "go", "echo no such package >&2; exit 1")

    with pytest.raises(
        NoProgramError, match=r"(?s)`go build` failed in .*:\nno such package\n.* modules: see"
    ):
        build.find(environ)
    assert not list((tmp_path / "cache/kubernetes-1.36.3").iterdir())


def test_those_who_ask_at_once_share_one_build(environ, capfd):
    found: list[build.Programs] = []
    threads = [threading.Thread(target=lambda: found.append(build.find(environ))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 3
    assert builds(environ) == [" ".join(NAMES)]
    assert "waiting for another process that builds Kubernetes 1.36.3" in capfd.readouterr().err


@pytest.mark.parametrize("version", ["1.36.3", "1.32.2"])
def test_module_files_are_of_their_version(version):
    folder = modules.folder(version)

    found = (folder / "go.mod").read_text()

    assert f"k8s.io/kubernetes v{version}" in found
    replaced = re.findall(r"^\t(k8s.io/\S+) => (\S+) v0.(\S+)$", found, re.MULTILINE)
    assert len(replaced) > 25
    assert {(a == b, rest) for a, b, rest in replaced} == {(True, version.partition(".")[2])}
    assert (folder / "go.sum").exists()


def test_module_files_are_written_from_what_kubernetes_requires(tmp_path, monkeypatch):
    described = {
        "Go": "1.23.0",
        "Require": [
            {"Path": "k8s.io/api", "Version": "v0.0.0"},
            {"Path": "k8s.io/klog/v2", "Version": "v2.130.1"},
        ],
    }
    program(
        tmp_path / "bin",
        "go",
        f'case "$*" in \'mod download\'*) echo \'{{"GoMod": "/there/go.mod"}}\';;\n'
        f"'mod edit -json /there/go.mod') echo '{json.dumps(described)}';;\n"
        "'mod tidy') : >go.sum;; esac",
    )
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    into = tmp_path / "1.40.2"

    modules.write("1.40.2", into)

    assert (into / "go.sum").exists()
    assert (into / "go.mod").read_text().split("\n\n") == [
        "module gpu-metrics-adapter/tests/control_plane",
        "go 1.24.0",
        "require k8s.io/kubernetes v1.40.2",
        "replace (\n\tk8s.io/api => k8s.io/api v0.40.2\n)",
        "\n\t".join(("tool (", *(f"k8s.io/kubernetes/cmd/{name}" for name in NAMES))) + "\n)\n",
    ]
