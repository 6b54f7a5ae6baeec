from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import pytest

from adapter.cli.local_prometheus.debian import NoProgramError
from tools.control_plane import build
from tools.real.prometheus import wait_for

NAMES = ("kube-apiserver", "kube-controller-manager", "kubectl")
GO = (
    'echo "$@" >>"$LOG"\n'
    "echo k8s.io/some/package >&2\n"
    'while [ -e "$HELD" ]; do sleep 0.05; done\n'
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
    """Environment with etcd and a fake `go`, which creates the requested programs.

    It does not end while the file `$HELD` exists.
    """
    program(tmp_path / "bin", "etcd")
    program(tmp_path / "bin", "go", GO)
    for tool in ("sleep", "chmod"):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    return {
        "PATH": str(tmp_path / "bin"),
        "GPU_METRICS_ADAPTER_CACHE": str(tmp_path / "cache"),
        "LOG": str(tmp_path / "log"),
        "HELD": str(tmp_path / "held"),
    }


def builds(environ: dict[str, str]) -> list[str]:
    """Return the programs of each `go build`, in order."""
    log = Path(environ["LOG"])
    lines = log.read_text().splitlines() if log.exists() else ()
    return [" ".join(re.findall(r"cmd/(\S+)", line)) for line in lines]


def test_missing_programs_are_built_once(environ, tmp_path, capfd):
    first = build.ensure_programs(environ)

    assert build.ensure_programs(environ) == first
    assert builds(environ) == [" ".join(NAMES)]
    assert first.apiserver == tmp_path / "cache/kubernetes-1.36.3/kube-apiserver"
    assert first.version == "1.36.3"
    assert "building kube-apiserver, kube-controller-manager, kubectl 1.36.3 (5 to 8 minutes" in (
        capfd.readouterr().err
    )


def test_assets_are_preferred_and_determine_the_version(environ, tmp_path):
    assets = tmp_path / "assets"
    paths = [program(assets, name, "echo Kubernetes v1.32.2") for name in ("etcd", *NAMES)]

    programs = build.ensure_programs(environ | {"KUBEBUILDER_ASSETS": str(assets)})

    assert [
        programs.etcd,
        programs.apiserver,
        programs.controller_manager,
        programs.kubectl,
    ] == paths
    assert programs.version == "1.32.2"
    assert builds(environ) == []


def test_assets_of_another_version_than_requested_are_rejected(environ, tmp_path):
    program(tmp_path / "assets", "kube-apiserver", "echo Kubernetes v1.30.0")
    environ |= {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "KUBERNETES": "1.32.2"}

    with pytest.raises(NoProgramError, match=r"is 1\.32\.2, but .* is version 1\.30\.0"):
        build.ensure_programs(environ)


def test_unknown_version_raises_with_the_known_ones_and_how_to_add_it(environ):
    with pytest.raises(
        NoProgramError,
        match=r"to 1\.32\.2 or 1\.36\.3 or 1\.37\.2, .*python -m tools\S+go_modules 1\.12\.0",
    ):
        build.ensure_programs(environ | {"KUBERNETES": "v1.12.0"})


def test_missing_go_raises_with_what_to_install(environ, tmp_path):
    (tmp_path / "bin/go").unlink()

    with pytest.raises(NoProgramError, match=r"install Go .* or set \$KUBEBUILDER_ASSETS"):
        build.ensure_programs(environ)


def test_failed_build_raises_with_the_output_of_go(environ, tmp_path):
    program(tmp_path / "bin", "go", "echo no such package >&2; exit 1")

    with pytest.raises(
        NoProgramError, match=r"(?s)`go build` failed in .*:\nno such package\ncheck that Go can"
    ):
        build.ensure_programs(environ)
    assert not list((tmp_path / "cache/kubernetes-1.36.3").iterdir())


def test_concurrent_callers_share_one_build(environ, capfd):
    held, output = Path(environ["HELD"]), ""
    held.touch()

    def one_waits() -> bool:
        nonlocal output
        output += capfd.readouterr().err
        return "waiting for another process that builds Kubernetes 1.36.3" in output

    results: list[build.Programs] = []
    threads = [
        threading.Thread(target=lambda: results.append(build.ensure_programs(environ)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    try:
        wait_for(one_waits, "one of them waits for another")
    finally:
        held.unlink()
    for thread in threads:
        thread.join()

    assert len(results) == 3
    assert builds(environ) == [" ".join(NAMES)]
