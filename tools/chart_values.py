"""Generated files of the chart: table of values, schema and known keys, from values.yaml.

A comment `# -- TEXT` documents the key below it, `# ++ TEXT` one that prometheus-adapter's chart
lacks; a type in parentheses replaces that of its default. A mapping without such a comment has
fixed keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rules import presets

CHART = Path(__file__).parents[1] / "manifests" / "chart"

_TYPES = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
_OPTIONS: Mapping[str, list[dict[str, Any]]] = {
    # Helm's --set-string and Terraform quote numbers; the templates print both alike.
    "integer": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]*$"}],
    "seconds": [{"type": "string", "pattern": "^[1-9][0-9]*s$"}],
    "string": [{"type": "string"}, {"type": "number"}],
    "name": [{"type": "string", "pattern": "^[^/]*$"}],
    "preset[]": [{"type": "array", "items": {"enum": ["auto", *presets.names()]}}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A documented key."""

    path: tuple[str, ...]
    types: tuple[str, ...]
    default: Any
    text: str
    is_new: bool
    """Whether prometheus-adapter's chart lacks it."""

    @property
    def name(self) -> str:
        """Path with dots."""
        return ".".join(self.path)


def documented() -> tuple[Key, ...]:
    """Return the documented keys, in the order of values.yaml."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    return tuple(
        _key(path, _at(values, path), comment, is_new=mark == "++")
        for path, mark, comment in _comments(text)
    )


def _comments(text: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    path: list[str] = []
    mark = comment = ""
    for line in text.splitlines():
        indent = (len(line) - len(line.lstrip())) // 2
        if match := re.fullmatch(r" *# (--|\+\+) (.*)", line):
            mark, comment = match.groups()
        elif match := re.match(r" *([A-Za-z]\w*):", line):
            if len(path) > indent or len(path) == indent:
                path[indent:] = [match[1]]
            if comment:
                yield tuple(path), mark, comment
                comment = ""


def _key(path: tuple[str, ...], default: Any, comment: str, *, is_new: bool) -> Key:
    match = re.fullmatch(r"(?:\(([a-z|[\]]+)\) )?(.*)", comment)
    assert match
    types = match[1].split("|") if match[1] else [_TYPES[type(default)]]
    return Key(path=path, types=tuple(types), default=default, text=match[2], is_new=is_new)


def _at(values: Any, path: Iterable[str]) -> Any:
    for name in path:
        values = values[name]
    return values


def table() -> str:
    """Return a table of all keys, for the README."""
    lines = ["| Key | Default | Meaning |", "| --- | --- | --- |"]
    for each in documented():
        default = json.dumps(each.default)
        shown = "see values.yaml" if len(default) > 40 else f"`{default}`"
        lines.append(f"| `{each.name}` | {shown} | {each.text} |")
    return "\n".join(lines)


def reasons() -> str:
    """Return a table of the keys without effect, for the README."""
    rows = (f"| `{name}` | {reason} |" for name, reason in _reasons().items())
    return "\n".join(["| Key | Why it has no effect |", "| --- | --- |", *rows])


def _reasons() -> dict[str, str]:
    text = (CHART / "files" / "reasons.yaml").read_text(encoding="utf-8")
    return {str(name): str(reason) for name, reason in yaml.safe_load(text).items()}


def for_migrate() -> str:
    """Return rules/migration/chart_keys.json, by which `migrate` reads values of either chart."""
    keys = documented()
    sections = {
        "both": [each.name for each in keys if not each.is_new],
        "new": [each.name for each in keys if each.is_new],
        "without_effect": _reasons(),
    }
    lines = (f"{json.dumps(name)}: {json.dumps(each)}" for name, each in sections.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def schema() -> str:
    """Return values.schema.json. Unknown keys are valid: NOTES.txt warns about them."""
    root: dict[str, Any] = {"type": "object", "properties": {}}
    for each in documented():
        node = root
        for name in each.path[:-1]:
            node = node["properties"].setdefault(name, {"type": "object", "properties": {}})
        options = [option for kind in each.types for option in _options(kind)]
        node["properties"][each.path[-1]] = {
            "description": each.text,
            "anyOf": [*options, {"type": "null"}],
        }
    root = {"$schema": "https://json-schema.org/draft-07/schema#", **root}
    return json.dumps(root, indent=1) + "\n"


def _options(kind: str) -> list[dict[str, Any]]:
    return _OPTIONS.get(kind, [{"type": kind}])


def scale_targets() -> str:
    """Return files/scale_targets.json, the default of a release whose values lack the key."""
    (key,) = (each for each in documented() if each.name == "scaleTargets")
    return json.dumps(key.default) + "\n"


def known() -> str:
    """Return files/keys.json, by which NOTES.txt recognizes unknown keys."""
    root: dict[str, Any] = {}
    for each in documented():
        node = root
        for name in each.path[:-1]:
            node = node.setdefault(name, {})
        node[each.path[-1]] = True
    return json.dumps(root, indent=1) + "\n"
