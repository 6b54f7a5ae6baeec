"""Runs `migrate` on public files; `python -m tests.migrate.golden` writes the golden output.

`scaled_objects` has the constructs of public ScaledObjects in our own words; `sources.json` has
repository and path of each. The releases are those of `tests/manifests/chart`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from adapter.cli.commands import migrate

FOLDER = Path(__file__).parent
SCALED = FOLDER / "scaled_objects"
RELEASES = FOLDER.parent / "manifests" / "chart" / "releases"
SOURCES = json.loads((FOLDER / "sources.json").read_text())


@dataclass(frozen=True, kw_only=True)
class Run:
    """What `migrate` printed and wrote."""

    code: int
    report: list[str]
    files: dict[str, list]

    def text(self) -> str:
        """Return the content of the golden file."""
        parts = [*self.report]
        for name, documents in self.files.items():
            parts += [f"# {name}", yaml.safe_dump_all(documents, width=110).rstrip()]
        return "\n".join(parts) + "\n"


@functools.cache  # two test files read them
def inputs() -> dict[str, str]:
    """Return the public files, by name."""
    releases = {
        each.stem: yaml.safe_dump(
            yaml.load(each.read_text(), Loader=yaml.CSafeLoader)["values"], sort_keys=False
        )
        for each in sorted(RELEASES.glob("*.yaml"))
    }
    return releases | {each.stem: each.read_text() for each in sorted(SCALED.glob("*.yaml"))}


def run(text: str, *flags: str) -> Run:
    """Run the command on a file with this text, with an output folder."""
    return run_files({"input.yaml": text}, "input.yaml", *flags)


def run_files(files: Mapping[str, str], *arguments: str) -> Run:
    """Run the command in a folder with these files, on all of them without arguments."""
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        for name, text in files.items():
            path = Path("files", name) if not arguments else Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            code = migrate.main([*(arguments or ("files",)), "--output=out"])
        written = {
            each.name: list(yaml.safe_load_all(each.read_text()))
            for each in sorted(Path("out").glob("*"))
        }
        return Run(code=code, report=output.getvalue().splitlines(), files=written)


@contextlib.contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


if __name__ == "__main__":
    for name, text in inputs().items():
        (FOLDER / "golden" / f"{name}.txt").write_text(run(text).text())
