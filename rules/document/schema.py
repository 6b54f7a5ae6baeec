"""Typed access to the values of a parsed file, which reports what does not fit.

Reading never raises: it adds a problem to the `SchemaPath` and returns the value of an absent key.
What the keys mean is up to `config`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Sequence

from rules import quantity
from rules.document.yaml import MappingEntry, MappingNode, Node, Scalar, SequenceNode, is_null, join
from rules.errors import DurationError
from rules.findings import Finding, State, in_file
from rules.quoting import shorten

_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
"""As in resolve.go of yaml.v2; PyYAML reads y and n as text."""

_MAX_TEXT = 65_536
_MAX_ITEMS = 5_000
"""Maximum characters of a text and items of a list, which bound the work that a file can cause."""

_TYPES = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}

_PARENTS = {
    "as": "name",
    "matches": "name",
    "template": "resources",
    "overrides": "resources",
    "namespaced": "resources",
    "is": "seriesFilters",
    "isNot": "seriesFilters",
}
"""Keys that are often written one level too high -> the key they belong below."""


class SchemaPath:
    """Problems and positions of the values below one path of a file."""

    def __init__(self, file: str, path: str, problems: list[Finding]) -> None:
        self.file = file
        self.path = path
        self.problems = problems
        self.nodes: dict[str, Node] = {}
        """Path below `path` -> the value there."""

    def below(self, path: str) -> SchemaPath:
        """Return an empty record for the values below `path`, with the same list of problems."""
        return SchemaPath(self.file, join(self.path, path), self.problems)

    def report(self, state: State, path: str, node: Node, message: str) -> None:
        """Add a problem at the position of `node`."""
        place, line, column = join(self.path, path), node.line, node.column
        found = in_file(state, message, path=place, file=self.file, line=line, column=column)
        self.problems.append(found)


class Fields:
    """A mapping with known keys; null and an absent key are the same."""

    def __init__(
        self, record: SchemaPath, node: Node | None, path: str = "", *, known: Collection[str]
    ) -> None:
        self.record = record
        self.path = path
        self._values: dict[str, Node] = {}
        for entry in _entries(record, node, path):
            name = entry.key.text
            if name not in known:
                record.report(State.FAILURE, join(path, name), entry.key, _unknown(name, known))
            elif not is_null(entry.value):
                self._values[name] = entry.value
                record.nodes[join(path, name)] = entry.value

    def get(self, key: str) -> Node | None:
        """Return the value as a node."""
        return self._values.get(key)

    def text(self, key: str) -> str:
        """Return any scalar as it is written; empty when absent."""
        node = self.get(key)
        if isinstance(node, Scalar):
            warn_of_type(self.record, join(self.path, key), node)
        return self.plain_text(key)

    def plain_text(self, key: str) -> str:
        """Return any scalar as it is written, without a warning; empty when absent."""
        node = self.get(key)
        if node is None:
            return ""
        if isinstance(node, Scalar):
            return node.text
        quote = ": put it in quotes" if isinstance(node, MappingNode) else ""
        self.error(key, f"must be text, not {_kind(node)}{quote}")
        return ""

    def flag(self, key: str) -> bool | None:
        """Return a boolean of YAML 1.1; None when absent."""
        node = self.get(key)
        if node is None:
            return None
        if not isinstance(node, Scalar) or node.value not in _TRUE | _FALSE:
            self.error(key, f"must be true or false, not {_kind(node)}")
            return None
        if node.style:
            self.error(
                key, f"must be true or false, not the text {node.value!r}: remove the quotes"
            )
            return None
        return node.value in _TRUE

    def choice(self, key: str, options: Sequence[str]) -> str:
        """Return one of `options`, the first of which is the default."""
        if self.get(key) is None:
            return options[0]
        text = self.text(key)
        if text not in options and isinstance(self.get(key), Scalar):
            self.error(key, f"must be one of {', '.join(options)}, not {text!r}")
        return text if text in options else options[0]

    def number(self, key: str) -> float | None:
        """Return a finite number; None when absent."""
        node = self.get(key)
        if node is None:
            return None
        if isinstance(node, Scalar) and not node.style:
            try:
                number = float(node.value)
            except ValueError:
                number = math.nan
            if math.isfinite(number):
                return number
        self.error(key, "must be a number, without quotes")
        return None

    def duration(self, key: str) -> int | None:
        """Return a Prometheus duration in nanoseconds; None when absent."""
        node = self.get(key)
        text = self.plain_text(key)
        if not isinstance(node, Scalar):
            return None
        try:
            return quantity.prometheus_duration(text)
        except DurationError as error:
            self.error(key, f"{error}: write a duration such as 30s, 5m or 1h30m")
            return None

    def fields(self, key: str, *, known: Collection[str]) -> Fields:
        """Return the mapping below `key`; an empty one when absent."""
        return Fields(self.record, self.get(key), join(self.path, key), known=known)

    def items(self, key: str) -> Iterator[tuple[str, Node]]:
        """Yield path and value of each item of a list; nothing when absent."""
        node, path = self.get(key), join(self.path, key)
        if isinstance(node, SequenceNode) and len(node.items) > _MAX_ITEMS:
            message = f"has {len(node.items)} items, more than {_MAX_ITEMS}: remove some"
            self.error(key, message)
        elif isinstance(node, SequenceNode):
            for index, item in enumerate(node.items):
                self.record.nodes[f"{path}[{index}]"] = item
                yield f"{path}[{index}]", item
        elif node is not None:
            self.error(key, f"must be a list, not {_kind(node)}")

    def entries(self, key: str) -> Iterator[tuple[str, MappingEntry]]:
        """Yield path and entry of each key of a mapping with free keys, in the file's order."""
        path = join(self.path, key)
        for entry in _entries(self.record, self.get(key), path):
            below = join(path, entry.key.text)
            self.record.nodes[below] = entry.value
            yield below, entry

    def error(self, key: str, message: str) -> None:
        """Report an error at the value of `key`, which is present."""
        self.record.report(State.FAILURE, join(self.path, key), self._values[key], message)


def warn_of_type(record: SchemaPath, path: str, node: Scalar) -> None:
    """Warn of a scalar that is used as text, but is not text in YAML."""
    if node.tag in _TYPES:
        message = f"{node.value} is {_TYPES[node.tag]} in YAML and used as text: quote it"
        record.report(State.WARNING, path, node, message)
    elif node.tag.startswith("!"):
        value = repr(node.value) if node.value else "an empty text"
        message = f"the tag {node.tag} is ignored, which leaves {value}: quote text that has a !"
        record.report(State.WARNING, path, node, message)


def _entries(record: SchemaPath, node: Node | None, path: str) -> Iterator[MappingEntry]:
    if isinstance(node, MappingNode):
        for entry in node.entries.values():
            texts = [each for each in (entry.key, entry.value) if isinstance(each, Scalar)]
            long = next((each for each in texts if len(each.value) > _MAX_TEXT), None)
            if long is None:
                yield entry
            else:
                message = f"has {len(long.value)} characters, more than {_MAX_TEXT}: shorten it"
                record.report(State.FAILURE, join(path, shorten(entry.key.text, 40)), long, message)
    elif node is not None and not is_null(node):
        record.report(State.FAILURE, path, node, f"must be a mapping, not {_kind(node)}")


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return repr(shorten(node.value, 100))


def _unknown(key: str, known: Collection[str]) -> str:
    bare = {_bare(each): each for each in known}
    if close := difflib.get_close_matches(_bare(key), bare, n=1, cutoff=0.7):
        return f"unknown key {key!r}: did you mean {bare[close[0]]}?"
    if _PARENTS.get(key) in known:
        return f"unknown key {key!r}: move it below {_PARENTS[key]}"
    return f"unknown key {key!r}: the keys here are {', '.join(known)}"


def _bare(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()
