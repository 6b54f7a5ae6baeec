"""Writes what commands report as JSON, YAML or annotations of GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adapter import yaml_encoding
from rules import findings
from rules.findings import Finding, State
from rules.quoting import escaped

_LEVELS = {State.FAILURE: "error", State.WARNING: "warning"}
"""Level of an annotation; everything else is a notice."""


def write(document: Mapping[str, Any], form: str) -> None:
    """Print a document of JSON types; `form` is json or yaml."""
    if form == "yaml":
        print(yaml_encoding.encode(document).decode(), end="")
    else:
        print(json.dumps(document, indent=2))


def documents(found: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as documents."""
    return [findings.document(each) for each in found]


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns; control characters are escaped before the alignment."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def github_annotations(found: Iterable[Finding]) -> Iterator[str]:
    """Yield each finding as a workflow command of GitHub Actions.

    https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
    """
    for each in found:
        where = each.where
        properties = {"file": where.file, "line": where.line, "col": where.column}
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
        text = f"{where.path}: {each.sentence}" if where.path else each.sentence
        yield f"::{_LEVELS.get(each.state, 'notice')} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _data(str(value)).replace(":", "%3A").replace(",", "%2C")
