"""Builds what a release publishes, and says whether a tag may be released.

    python -m tools.release check v0.2.0     # the version is the same everywhere
    python -m tools.release notes v0.2.0     # the section of CHANGELOG.md
    python -m tools.release dist --registry=ghcr.io/OWNER

`dist` builds the commit that is checked out into build/dist: wheel, source distribution, chart and
their checksums. `.github/workflows/release.yaml` calls all three.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from tools.backends import programs
from tools.helm import HELM

ROOT = Path(__file__).parents[1]
DIST = Path("build/dist")
CHART = Path("manifests/chart")
REGISTRY = '  registry: ""\n'
"""Line of the chart's values; a released chart names the image of its release."""
OWNER = "OWNER"
"""What stands for the owner of the repository in the URLs of setup.cfg."""

_VERSIONS = {
    "adapter/__init__.py": r'^__version__ = "(.*)"$',
    f"{CHART}/Chart.yaml": r"^(?:version|appVersion): (.*)$",
    "manifests/base/deployment.yaml": r"^ *image: gpu-metrics-adapter:(.*)$",
}
"""Files with the version, and the lines."""
_TAG = re.compile(r"v(?P<version>[0-9]+\.[0-9]+\.[0-9]+)")
_DATED = re.compile(r" - [0-9]{4}-[0-9]{2}-[0-9]{2}")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Run one command; return 1 if the tag cannot be released."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("command", choices=("check", "notes", "dist"))
    parser.add_argument("tag", nargs="?", default="")
    parser.add_argument("--registry", default="", help="registry and owner of the image")
    arguments = parser.parse_args(argv)
    if arguments.command == "dist":
        for path in dist(root, arguments.registry):
            print(path)
        return 0
    found = list(problems(arguments.tag, root))
    for problem in found:
        print(problem, file=sys.stderr)
    if not found and arguments.command == "notes":
        print(notes(arguments.tag, root))
    return 1 if found else 0


def problems(tag: str, root: Path) -> Iterator[str]:
    """Yield why a tag cannot be released: what differs from its version, and where."""
    match = _TAG.fullmatch(tag)
    if match is None:
        yield f"the tag {tag!r} is no version: it must be vMAJOR.MINOR.PATCH"
        return
    version = match["version"]
    for name, pattern in _VERSIONS.items():
        found = re.findall(pattern, (root / name).read_text(encoding="utf-8"), re.MULTILINE)
        if set(found) != {version}:
            yield f"{name}: the version is {', '.join(found) or 'missing'}; write {version}"
    section = _section(tag, root)
    if section is None:
        yield f"CHANGELOG.md: no section '## {version} - YYYY-MM-DD'; rename 'Unreleased' to it"
    elif not section:
        yield f"CHANGELOG.md: the section of {version} is empty; say what changed"


def notes(tag: str, root: Path) -> str:
    """Return the text of the release: its section of the changelog."""
    return _section(tag, root) or ""


def _section(tag: str, root: Path) -> str | None:
    """Return the section of a tag without its title; None if there is none with a date."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        version = tag.removeprefix("v")
        if title.startswith(version) and _DATED.fullmatch(title.removeprefix(version)):
            return body.strip()
    return None


def dist(root: Path, registry: str) -> list[Path]:
    """Build the commit that is checked out into `build/dist`, and return the files.

    Built twice, wheel and source distribution are equal byte for byte.
    """
    folder = root / DIST
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    epoch = int(_output("git", "log", "-1", "--format=%ct", folder=root))
    with tempfile.TemporaryDirectory() as name:
        source = Path(name)
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, stdout=-1, check=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as committed:
            committed.extractall(source, filter="data")
        if registry:
            metadata = source / "setup.cfg"
            urls = metadata.read_text(encoding="utf-8").replace(OWNER, registry.rpartition("/")[2])
            metadata.write_text(urls, "utf-8")
        _python(source, folder, epoch)
        values = source / CHART / "values.yaml"
        text = values.read_text(encoding="utf-8")
        if registry:
            values.write_text(text.replace(REGISTRY, f"  registry: {registry}\n", 1), "utf-8")
            assert yaml.safe_load(values.read_bytes())["image"]["registry"] == registry
        _output(programs.ensure(HELM), "package", source / CHART, "--destination", folder)
    built = sorted(folder.iterdir())
    sums = folder / "SHA256SUMS"
    lines = (f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in built)
    sums.write_text("".join(lines), encoding="utf-8")
    return [*built, sums]


def _python(source: Path, folder: Path, epoch: int) -> None:
    """Build the wheel and the source distribution of `source`."""
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    build = (
        "import sys; from setuptools import build_meta as build;"
        "folder = sys.argv[1]; build.build_wheel(folder); build.build_sdist(folder)"
    )
    command = [sys.executable, "-c", build, str(folder)]
    subprocess.run(command, cwd=source, env=environ, stdout=subprocess.DEVNULL, check=True)
    (packed,) = folder.glob("*.tar.gz")
    packed.write_bytes(_normalized(packed.read_bytes(), epoch))


def _normalized(packed: bytes, epoch: int) -> bytes:
    """Return a tar archive without what depends on when and by whom it was written."""
    content = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(packed)) as old,
        tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(content.getvalue(), mtime=epoch)


def _output(*command: str | Path, folder: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
