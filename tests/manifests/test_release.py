"""What a release publishes, built from this commit; when a tag is refused; and the workflow."""

from __future__ import annotations

import configparser
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest
import yaml

from adapter import __version__
from tools import helm, release

TAG = f"v{__version__}"
REGISTRY = "ghcr.io/owner"


@pytest.fixture
def project(tmp_path):
    """The files of this repository that have the version, and the changelog."""
    for name in (*release._VERSIONS, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(release.ROOT / name, tmp_path / name)
    return tmp_path


def edit(project, name, old, new):
    text = (project / name).read_text()
    assert old in text
    (project / name).write_text(text.replace(old, new, 1))


def test_a_tag_with_its_version_everywhere_and_a_section_is_released(project, capsys):
    assert release.main(["check", TAG], project) == 0
    assert release.main(["notes", TAG], project) == 0

    assert capsys.readouterr().out.startswith("### Added\n")


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        (
            "adapter/__init__.py",
            __version__,
            "9.9.9",
            f"adapter/__init__.py: the version is 9.9.9; write {__version__}",
        ),
        (
            "manifests/chart/Chart.yaml",
            f"appVersion: {__version__}",
            "appVersion: 9.9.9",
            f"manifests/chart/Chart.yaml: the version is {__version__}, 9.9.9; write {__version__}",
        ),
        (
            "manifests/base/deployment.yaml",
            f":{__version__}",
            "",
            f"manifests/base/deployment.yaml: the version is missing; write {__version__}",
        ),
        (
            "CHANGELOG.md",
            f"## {__version__} - 2026",
            f"## {__version__}, 2026",
            f"CHANGELOG.md: no section '## {__version__} - YYYY-MM-DD'; rename 'Unreleased' to it",
        ),
        (
            "CHANGELOG.md",
            f"## {__version__} - 2026-",
            f"## {__version__} - 2026-01-01\n\n## 0.0.1 - 2026-",
            f"CHANGELOG.md: the section of {__version__} is empty; say what changed",
        ),
    ],
)
def test_a_tag_is_refused_and_each_problem_says_what_to_do(
    project, capsys, name, old, new, expected
):
    edit(project, name, old, new)

    assert release.main(["check", TAG], project) == 1
    assert capsys.readouterr().err == f"{expected}\n"


@pytest.mark.parametrize("tag", ["", "main", "0.1.0", "v0.1", "v0.1.0-rc1", "v0.1.0\n"])
def test_what_is_no_version_is_refused(project, tag):
    assert release.main(["check", tag], project) == 1


@pytest.fixture(scope="module")
def built(real_servers, tmp_path_factory):
    """A clone of this commit, and what was built from it."""
    clone = tmp_path_factory.mktemp("clone")
    command = ["git", "clone", "--quiet", "--depth=1", f"file://{release.ROOT}", str(clone)]
    subprocess.run(command, check=True)
    return clone, release.dist(clone, REGISTRY)


def test_the_distributions_are_complete_and_have_checksums(built):
    _, (*files, sums) = built

    assert [each.name for each in files] == [
        f"gpu_metrics_adapter-{__version__}-py3-none-any.whl",
        f"gpu_metrics_adapter-{__version__}.tar.gz",
        f"prometheus-adapter-{__version__}.tgz",
    ]
    assert sums.read_text() == "".join(
        f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files
    )


def test_built_twice_the_python_distributions_are_equal(built):
    clone, (wheel, source, *_) = built
    first = [wheel.read_bytes(), source.read_bytes()]

    again = release.dist(clone, REGISTRY)

    assert [each.read_bytes() for each in again[:2]] == first


def test_the_source_distribution_builds_the_same_wheel(built, tmp_path):
    _, (wheel, source, *_) = built
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=unpacked, capture_output=True, check=True)
    (other,) = unpacked.glob("*.whl")

    def contents(path):
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    assert contents(other) == contents(wheel)


def test_the_metadata_of_a_release_names_its_repository(built):
    _, (wheel, *_) = built
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        metadata = archive.read(name).decode()

    assert "Project-URL: Source, https://github.com/owner/gpu-metrics-adapter\n" in metadata
    assert release.OWNER not in "".join(re.findall("Project-URL: .*", metadata))


def test_the_python_versions_of_the_metadata_are_those_of_ci():
    setup = configparser.ConfigParser(interpolation=None)
    setup.read(release.ROOT / "setup.cfg")
    ci = yaml.safe_load((release.ROOT / ".github/workflows/ci.yaml").read_text())

    listed = re.findall(r"Python :: (3\.\d+)$", setup["metadata"]["classifiers"], re.MULTILINE)
    assert listed == ci["jobs"]["quick"]["strategy"]["matrix"]["python"]


def test_the_chart_of_a_release_names_its_image(built):
    *_, chart, _ = built[1]
    rendered = helm.run("template", "prometheus-adapter", chart, values={"presets": ["auto"]})

    images = re.findall(r"image: (\S+)", rendered)
    assert set(images) == {f"{REGISTRY}/gpu-metrics-adapter:{__version__}"}


def test_nothing_is_published_unless_a_tag_was_pushed_and_all_tests_passed():
    path = release.ROOT / ".github" / "workflows" / "release.yaml"
    workflow = yaml.safe_load(path.read_text())
    jobs = workflow["jobs"]

    def needed(name):
        needs = jobs[name].get("needs", [])
        direct = [needs] if isinstance(needs, str) else needs
        return {*direct, *(each for name in direct for each in needed(name))}

    assert workflow["permissions"] == {}
    for name, job in jobs.items():
        granted = {key for key, access in job["permissions"].items() if access == "write"}
        if granted - {"id-token", "attestations"}:
            assert "test" in needed(name)
            steps = [
                each
                for each in job["steps"]
                if re.search(r"login|push|cosign sign|gh release", str(each))
                and "cosign-installer" not in str(each)
            ]
            pushed = "github.event_name == 'push'"
            assert steps
            assert job.get("if") == pushed or all(pushed in str(each) for each in steps)
    assert "test" in needed("pypi")
    assert jobs["pypi"]["if"] == "github.event_name == 'push'"
