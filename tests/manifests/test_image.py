"""The Dockerfile and its build script agree with the manifests, setup.cfg and the locks."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from adapter import __version__

ROOT = Path(__file__).parents[2]
SCRIPT = "gpu-metrics-adapter"
ENVIRONMENT = "/opt/gpu-metrics-adapter"
LOCK = "manifests/${LOCK}"
PYTHON = re.compile(r"ARG BASE=python:(\d+\.\d+)-slim-[a-z]+")


class Instruction(NamedTuple):
    name: str
    text: str


def _stages() -> tuple[list[Instruction], list[Instruction]]:
    """Return the instructions of the build stage and of the final stage."""
    text = (ROOT / "manifests/image/Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", "")
    instructions = [Instruction(*line.split(None, 1)) for line in text.splitlines() if line]
    starts = [at for at, each in enumerate(instructions) if each.name == "FROM"]
    assert [instructions[at].text for at in starts] == ["${BASE} AS build", "${BASE}"]
    return instructions[starts[0] : starts[1]], instructions[starts[1] :]


def _texts(stage: list[Instruction], name: str) -> list[str]:
    return [each.text for each in stage if each.name == name]


def _commands(stage: list[Instruction]) -> list[str]:
    return [each.strip() for text in _texts(stage, "RUN") for each in text.split("&&")]


def _sources() -> list[str]:
    """Return what any stage copies from the repository."""
    copies = [shlex.split(text) for stage in _stages() for text in _texts(stage, "COPY")]
    return [source for copy in copies if copy[0] != "--from=build" for source in copy[:-1]]


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


@pytest.fixture(scope="module")
def deployment():
    return yaml.safe_load((ROOT / "manifests/base/deployment.yaml").read_text())


@pytest.fixture(scope="module")
def container(deployment):
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return container


def test_the_user_is_that_of_the_deployment(deployment) -> None:
    context = deployment["spec"]["template"]["spec"]["securityContext"]
    *_, last = _stages()[1]

    assert _texts(_stages()[1], "USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert context["runAsUser"] > 0
    assert last.name == "ENTRYPOINT"


def test_the_entry_point_and_slash_adapter_are_the_console_script(setup_cfg, container) -> None:
    scripts = setup_cfg["options.entry_points"]["console_scripts"].split("\n")
    build, final = _stages()
    path = f"{ENVIRONMENT}/bin/{SCRIPT}"

    assert [each.split(" = ")[0] for each in scripts if each] == [SCRIPT]
    assert [json.loads(text) for text in _texts(final, "ENTRYPOINT")] == [[path]]
    assert f"ln -s {path} /adapter" in _commands(final)
    assert f"python -m venv --without-pip {ENVIRONMENT}" in _commands(build)
    assert f"--from=build {ENVIRONMENT} {ENVIRONMENT}" in _texts(final, "COPY")
    assert "command" not in container


def test_the_console_script_works_as_slash_adapter(tmp_path: Path) -> None:
    link = tmp_path / "adapter"
    link.symlink_to(Path(sys.executable).with_name(SCRIPT))

    done = subprocess.run([link, "/adapter", "--help"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "--prometheus-url" in done.stdout


def test_every_installed_package_is_hash_checked_or_our_own() -> None:
    pip = [shlex.split(each) for each in _commands(_stages()[0]) if " pip " in each]
    fetched = [each for each in pip if "--no-index" not in each]

    assert [each[each.index("-r") + 1] for each in fetched] == [
        f"/src/{LOCK}",
        "/src/setuptools.lock",
    ]
    for each in fetched:
        assert "--require-hashes" in each
        assert each[each.index("--only-binary") + 1] == ":all:"
    assert all("--no-deps" in each for each in pip if each not in fetched)
    assert not [
        each for each in _commands(_stages()[1]) if "pip install" in each or "apt-get" in each
    ]


def test_the_build_backend_comes_from_the_lock_of_the_tests_with_hashes() -> None:
    (command,) = (each for each in _commands(_stages()[0]) if each.startswith("sed "))
    taken = command.split(" > ")[0].replace("/src/", "")

    done = subprocess.run(shlex.split(taken), cwd=ROOT, capture_output=True, text=True, check=True)
    first, *hashes = done.stdout.replace("\\\n", "").split()

    assert re.fullmatch(r"setuptools==[\d.]+", first)
    assert hashes
    assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes)


def test_the_context_contains_what_is_copied_without_the_demo() -> None:
    ignored = [
        line
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line and not line.startswith("#")
    ]

    assert ignored[0] == "*"
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(_sources())
    assert [line for line in ignored[1:] if not line.startswith("!")] == [
        "adapter/cli/demo",
        "**/__pycache__",
    ]
    # Docker applies the last pattern that matches.
    assert ignored.index("adapter/cli/demo") > ignored.index("!adapter")
    assert not [source for source in _sources() if not (ROOT / source).exists()]


def test_every_package_is_copied(setup_cfg) -> None:
    installed = setup_cfg["options.package_data"]["gpu_metrics_adapter"].split()
    packages = {each.split("/")[0] for each in installed if each.endswith(".py")}

    assert packages == {"adapter", "certs", "rules"}
    assert packages < set(_sources())
    assert {"setup.cfg", "pyproject.toml", setup_cfg["metadata"]["license_files"]} < set(_sources())
    assert setup_cfg["metadata"]["long_description"].removeprefix("file: ") in _sources()


def test_the_python_version_is_the_tested_one(setup_cfg) -> None:
    (version,) = PYTHON.findall((ROOT / "manifests/image/Dockerfile").read_text())
    floor = setup_cfg["options"]["python_requires"].removeprefix(">=")
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())
    tested = [
        step["with"]["python-version"]
        for step in workflow["jobs"]["full"]["steps"]
        if "setup-python" in step.get("uses", "")
    ]

    assert tested == [version]
    assert tuple(map(int, version.split("."))) >= tuple(map(int, floor.split(".")))
    assert f"--python-version {version} --generate-hashes" in (ROOT / "Makefile").read_text()


@pytest.mark.usefixtures("real_servers")
def test_every_imported_module_has_bytecode() -> None:
    (command,) = (each for each in _commands(_stages()[0]) if "compileall" in each)
    words = shlex.split(command)
    left_out = re.compile(words[words.index("-x") + 1])
    code = (
        "import sys, adapter.server.app.server\n"
        "from adapter.cli.commands import certs_issue, check_files, presets_detect\n"
        "from adapter.cli.commands import serve, shutdown\n"
        "for each in list(sys.modules.values()):\n"
        "    print(getattr(each, '__file__', None) or '')"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stdout.split()
    (client,) = (each for each in loaded if each.endswith("/kubernetes/aio/client/__init__.py"))

    assert [path for path in loaded if left_out.search(path)] == []
    assert [path for path in Path(client).parent.rglob("*.py") if left_out.search(str(path))]


class Build(NamedTuple):
    returncode: int
    stderr: str
    arguments: list[str]


class Builders:
    """Fake docker, podman and buildah; a working one records its arguments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("docker", "podman", "buildah"):
            self.install(name, works=False)

    def install(self, name: str, *, works: bool) -> None:
        called = self.folder / "called"
        (self.folder / name).write_text(
            f'#!/bin/sh\n[ "$1" = info ] && exit {int(not works)}\n'
            f'printf "%s\\n" {name} "$@" > {called}\n'
        )
        (self.folder / name).chmod(0o755)

    def program(self, name: str, *, prints: str = "") -> None:
        """Add another program, which succeeds."""
        (self.folder / name).write_text(f"#!/bin/sh\n{prints}\n")
        (self.folder / name).chmod(0o755)

    def make(self, *arguments: str, target: str = "image") -> Build:
        path = f"{self.folder}:{os.defpath}"
        done = subprocess.run(
            ["make", "--silent", target, *arguments],
            cwd=ROOT,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        called = self.folder / "called"
        return Build(
            done.returncode, done.stderr, called.read_text().splitlines() if called.exists() else []
        )


@pytest.fixture
def builders(tmp_path: Path) -> Builders:
    return Builders(tmp_path)


@pytest.mark.parametrize("name", ["docker", "podman", "buildah"])
def test_the_working_builder_is_used(builders, container, name: str) -> None:
    builders.install(name, works=True)

    build = builders.make()

    assert build.returncode == 0, build.stderr
    assert build.arguments[:4] == [name, "build", "--file", "manifests/image/Dockerfile"]
    assert build.arguments[4:6] == ["--tag", container["image"]]
    assert "--platform" not in build.arguments
    assert f"VERSION={__version__}" in build.arguments
    assert build.arguments[-1] == "."


def test_arguments_of_make_reach_the_builder(builders) -> None:
    builders.install("docker", works=True)
    builders.install("podman", works=True)

    build = builders.make(
        "BUILDER=podman", "IMAGE=x/y:z", "PLATFORM=linux/arm64", "ARGS=--build-arg BASE=b"
    )

    assert build.arguments[0] == "podman"
    assert build.arguments[4:8] == ["--tag", "x/y:z", "--platform", "linux/arm64"]
    assert build.arguments[-3:] == ["--build-arg", "BASE=b", "."]


@pytest.mark.parametrize(
    ("name", "flag"), [("docker", "--tag"), ("podman", "--manifest"), ("buildah", "--manifest")]
)
def test_images_for_several_platforms_share_a_manifest_list(builders, name: str, flag: str) -> None:
    builders.install(name, works=True)

    build = builders.make("PLATFORM=linux/amd64,linux/arm64", "IMAGE=x:1")

    assert build.arguments[4:8] == [flag, "x:1", "--platform", "linux/amd64,linux/arm64"]


def test_without_a_working_builder_all_three_are_named(builders) -> None:
    build = builders.make()

    assert build.returncode != 0
    assert build.arguments == []
    assert "docker, podman or buildah" in build.stderr


def test_a_requested_builder_is_not_replaced(builders) -> None:
    builders.install("docker", works=True)

    build = builders.make("BUILDER=buildah")

    assert build.returncode != 0
    assert build.arguments == []
    assert "BUILDER=buildah does not work: " in build.stderr


SERVICES = (
    "case $* in *operated-prometheus*) printf 'http://a.x.svc:9090\\nhttp://b.x.svc:9090' ;; esac"
)
NODES = "case $* in *current-context*) echo far-away ;; esac"


@pytest.mark.parametrize(
    ("builder", "kubectl", "arguments", "expected"),
    [
        (False, "", (), "none of docker, podman or buildah works: install one"),
        (True, "exit 1", (), "kubectl reaches no cluster"),
        (True, NODES, (), "the nodes of 'far-away' pull from a registry: set REGISTRY="),
        (True, "echo kind-dev", (), "kind is missing"),
        (True, "", ("IMPORT=kubectl load",), "no Service of Prometheus is labelled as such"),
        (
            True,
            SERVICES,
            ("REGISTRY=r.example",),
            "set PROMETHEUS to one of http://a.x.svc:9090 http://b.x.svc:9090",
        ),
    ],
)
def test_an_installation_says_what_is_missing_before_it_builds(
    builders, builder: bool, kubectl: str, arguments: tuple[str, ...], expected: str
) -> None:
    builders.install("podman", works=builder)
    builders.program("helm")
    builders.program("kubectl", prints=kubectl)

    done = builders.make(*arguments, target="install")

    assert done.returncode != 0
    assert expected in done.stderr
    assert done.arguments == []
