"""Typed getters over a document's nodes: each returns a value and reports what is wrong with it.

`Fields` is one mapping that has known keys. A key's value is a tuple of nodes, since merge keys may
give it several: yaml.v2 decodes one after the other into the same place, so that text and lists are
replaced and mappings are laid over each other. Nothing here raises; problems go to a `Record`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator, Mapping, Sequence

from rules import quantity
from rules.document.scalars import Scalar, ScalarError
from rules.document.yaml import Entry, Items, Node, Table, join
from rules.errors import DurationError, Problem, Severity

_BELOW = {
    "as": "name",
    "matches": "name",
    "template": "resources",
    "overrides": "resources",
    "namespaced": "resources",
    "is": "seriesFilters",
    "isNot": "seriesFilters",
}
"""Keys that are often written one level too high -> the key they belong below."""


class Record:
    """What is found below one path of a file: problems, and where everything stands."""

    def __init__(self, file: str, path: str, problems: list[Problem]) -> None:
        self.file = file
        self.path = path
        self.problems = problems
        self.positions: dict[str, tuple[int, int]] = {}
        self.scalars: dict[str, Scalar] = {}

    def below(self, path: str) -> Record:
        """A record of its own for what stands at `path`, into the same list of problems."""
        return Record(self.file, join(self.path, path), self.problems)

    def note(self, path: str, node: Node) -> None:
        """Remember where `node` stands."""
        self.positions[path] = (node.line, node.column)
        if isinstance(node, Scalar):
            self.scalars[path] = node

    def report(self, severity: Severity, path: str, node: Node, message: str) -> None:
        """A problem with `node`."""
        self.problems.append(
            Problem(
                severity=severity,
                message=message,
                path=join(self.path, path),
                file=self.file,
                line=node.line,
                column=node.column,
            )
        )

    def text(self, path: str, nodes: Sequence[Node]) -> str:
        """Any scalar, as it is written; empty for null."""
        text = ""
        for node in nodes:
            self.note(path, node)
            if not isinstance(node, Scalar):
                quote = ": put it between quotes" if isinstance(node, Table) else ""
                self.report("error", path, node, f"must be text, not {_kind(node)}{quote}")
                continue
            try:
                text = node.text()
                self._warn_of_odd_text(path, node)
            except ScalarError as error:
                self.report("error", path, node, str(error))
        return text

    def _warn_of_odd_text(self, path: str, node: Scalar) -> None:
        kind = node.kind()
        if kind in {"bool", "int", "float", "timestamp"}:
            message = f"{node.value} is {_KINDS[kind]} in YAML and read as text here: quote it"
            self.report("warning", path, node, message)
        elif kind not in {"str", "null", "binary"}:
            value = repr(node.value) if node.value else "nothing"
            message = f"the tag {kind} is ignored, which leaves {value}: quote text that has a !"
            self.report("warning", path, node, message)


_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "timestamp": "a date"}


class Fields:
    """A mapping with known keys; every getter takes one of them and may be asked once."""

    def __init__(
        self,
        record: Record,
        nodes: Sequence[Node],
        path: str = "",
        *,
        known: Collection[str],
        planned: Collection[str] = (),
    ) -> None:
        self.record = record
        self.path = path
        self.nodes = nodes
        self.values: dict[str, list[Node]] = {}
        for entry in _entries(record, nodes, path):
            if entry.name in known:
                self.values.setdefault(entry.name, []).append(entry.value)
                continue
            if entry.name in planned:
                message = f"{entry.name} is not supported by this version: leave it out"
            else:
                message = _unknown(entry.name, known)
            record.report("error", join(path, entry.name), entry.key, message)

    def given(self, key: str) -> bool:
        """Whether the key holds anything other than null."""
        nodes = self.values.get(key)
        return nodes is not None and not is_null(nodes[-1])

    def text(self, key: str) -> str:
        """Text; empty when absent."""
        return self.record.text(join(self.path, key), self.values.get(key, ()))

    def flag(self, key: str) -> bool | None:
        """A YAML 1.1 boolean; None when absent."""
        flag: bool | None = None
        for node in self.values.get(key, ()):
            path = join(self.path, key)
            self.record.note(path, node)
            if not isinstance(node, Scalar):
                message = f"must be true or false, not {_kind(node)}"
                self.record.report("error", path, node, message)
                continue
            try:
                flag = None if node.is_absent else node.flag()
            except ScalarError as error:
                self.record.report("error", path, node, str(error))
        return flag

    def choice(self, key: str, options: Sequence[str]) -> str:
        """One of `options`, of which the first is the default."""
        text = self.text(key)
        if not self.given(key) or text in options:
            return text or options[0]
        message = f"must be one of {', '.join(options)}, not {text!r}"
        self.record.report("error", join(self.path, key), self.values[key][-1], message)
        return options[0]

    def number(self, key: str) -> float | None:
        """A finite number; None when absent."""
        path, number = join(self.path, key), None
        for node in self.values.get(key, ()):
            self.record.note(path, node)
            number = _number(node)
            if number is None:
                self.record.report("error", path, node, "must be a number, without quotes")
        return number

    def duration(self, key: str) -> int | None:
        """A Prometheus duration, in nanoseconds; None when absent."""
        path, nodes = join(self.path, key), self.values.get(key, ())
        if not nodes or (isinstance(nodes[-1], Scalar) and nodes[-1].is_absent):
            return None
        before = len(self.record.problems)
        text = self.record.text(path, nodes)
        problems = self.record.problems[before:]
        if any(problem.severity == "error" for problem in problems):
            return None
        del self.record.problems[before:]  # a bare 0 is an ordinary duration
        try:
            return quantity.prometheus_duration(text)
        except DurationError as error:
            message = f"{error}: write it as 30s, 5m or 1h30m"
            self.record.report("error", path, nodes[-1], message)
            return None

    def fields(self, key: str, *, known: Collection[str], planned: Collection[str] = ()) -> Fields:
        """The mapping below `key`; an empty one when absent."""
        path = join(self.path, key)
        return Fields(self.record, self.values.get(key, ()), path, known=known, planned=planned)

    def items(self, key: str) -> Iterator[tuple[str, Node]]:
        """Each item of a list with its path; none when absent."""
        path = join(self.path, key)
        items: tuple[Node, ...] = ()
        for node in self.values.get(key, ()):
            self.record.note(path, node)
            if not isinstance(node, Items) and not is_null(node):
                message = f"must be a list, not {_kind(node)}"
                self.record.report("error", path, node, message)
            items = node.items if isinstance(node, Items) else ()
        for index, item in enumerate(items):
            self.record.note(f"{path}[{index}]", item)
            yield f"{path}[{index}]", item

    def named(self, key: str) -> Iterator[tuple[str, str, Node]]:
        """Each entry of a mapping with free keys: name, path, value; in the file's order."""
        path, seen = join(self.path, key), set()
        for entry in _entries(self.record, self.values.get(key, ()), path):
            below = join(path, entry.name)
            if entry.name in seen:
                message = f"the key {entry.name!r} is already set by a merge (<<:)"
                self.record.report("error", below, entry.key, message)
                continue
            seen.add(entry.name)
            self.record.text(below, [entry.key])
            self.record.note(below, entry.value)
            yield entry.name, below, entry.value


def is_null(node: Node) -> bool:
    """Whether the node is one of YAML's nulls."""
    try:
        return isinstance(node, Scalar) and node.is_null
    except ScalarError:
        return False


def _entries(record: Record, nodes: Sequence[Node], path: str) -> list[Entry]:
    entries: list[Entry] = []
    for node in nodes:
        record.note(path, node)
        if isinstance(node, Table):
            entries += node.entries
        elif is_null(node):
            entries = []
        else:
            record.report("error", path, node, f"must be a mapping, not {_kind(node)}")
    return entries


def _kind(node: Node) -> str:
    if isinstance(node, Table):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    return f"{node.value!r}" if node.value else "nothing"


def _number(node: Node) -> float | None:
    if not isinstance(node, Scalar) or not node.plain:
        return None
    kind = node.kind()
    if kind not in {"int", "float"}:
        return None
    text = node.value.replace("_", "")
    if text.lstrip("+-").startswith("."):
        text = text.replace(".", "0.", 1) if text.lstrip("+-.")[:1].isdigit() else "nan"
    number = float(text) if kind == "float" or text.lstrip("+-").isdecimal() else int(text, 0)
    return float(number) if math.isfinite(number) else None


def _unknown(key: str, known: Collection[str]) -> str:
    plain: Mapping[str, str] = {_bare(each): each for each in known}
    close = difflib.get_close_matches(_bare(key), plain, n=1, cutoff=0.7)
    if close:
        return f"unknown key {key!r}: did you mean {plain[close[0]]}?"
    if _BELOW.get(key) in known:
        return f"unknown key {key!r}: it belongs below {_BELOW[key]}"
    return f"unknown key {key!r}: the keys here are {', '.join(known)}"


def _bare(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()
