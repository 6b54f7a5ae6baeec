"""YAML text -> nodes that know where they stand, read as gopkg.in/yaml.v2 reads them.

Built from libyaml's events rather than by its own composer, so that depth and aliases are bounded
before anything recurses, and only the first document is looked at. Merge keys are laid out in the
order in which they are written: of several entries for one key the last is the one that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import yaml

from rules.document import scalars, stream
from rules.document.scalars import Scalar
from rules.errors import Problem, Severity

_DEPTH = 100
"""Levels of nesting, aliases followed. The deepest rules file needs nine."""


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A sequence."""

    items: tuple[Node, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """One key of a mapping with what is written for it."""

    name: str
    key: Scalar
    value: Node


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A mapping. A key occurs more than once only where a merge brought it in again."""

    entries: tuple[Entry, ...]
    line: int
    column: int


Node = Scalar | Items | Table


@dataclass(frozen=True, slots=True)
class _Child:
    """A node with what it stands for: how deep and large it is once its aliases are followed."""

    node: Node
    depth: int = 1
    size: int = 1
    aliased: int = 0
    is_alias: bool = False


@dataclass(slots=True)
class _Open:
    """A collection of which the end has not been seen."""

    line: int
    column: int
    path: str
    mapping: bool
    flow: bool
    anchor: str | None
    children: list[_Child] = field(default_factory=list)

    def child_path(self) -> str:
        if not self.mapping:
            return f"{self.path}[{len(self.children)}]"
        key = self.children[-1].node if len(self.children) % 2 else None
        if not isinstance(key, Scalar) or key.is_merge:
            return self.path
        return join(self.path, key.value)


def join(path: str, key: str) -> str:
    """The path of `key` below `path`."""
    return f"{path}.{key}" if path and key else path or key


def load(data: str | bytes, *, file: str) -> tuple[Node | None, tuple[Problem, ...]]:
    """The first document of `data`; None for an empty one, or one that is not YAML.

    Bytes are UTF-8, or UTF-16 with a byte order mark. Problems are duplicate keys and keys that
    are no text; what is not YAML at all is one problem, and so is nesting that is too deep and
    aliasing that multiplies the document beyond reason (yaml.v2's own limits).
    """
    composer = _Composer(file)
    try:
        node = composer.compose(stream.decode(data))
    except stream.Refusal as error:
        composer.report("error", str(error), error.line, error.column, composer.path())
        node = None
    return node, tuple(composer.problems)


class _Composer:
    """One walk over the events of one document."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._text = ""
        self._anchors: dict[str, _Child | None] = {}
        """None for an anchor whose collection is still open."""
        self._stack: list[_Open] = []
        self._nodes = 0

    def report(
        self, severity: Severity, message: str, line: int, column: int, path: str = ""
    ) -> None:
        self.problems.append(
            Problem(
                severity=severity,
                message=message,
                path=path,
                file=self._file,
                line=line,
                column=column,
            )
        )

    def path(self) -> str:
        return self._stack[-1].child_path() if self._stack else ""

    def compose(self, text: str) -> Node | None:
        self._text = text
        events = stream.events(text)
        root: Node | None = None
        for event in events:
            match event:
                case yaml.DocumentStartEvent() if event.version not in {None, (1, 1)}:
                    message = "asks for another YAML than 1.1: leave out %YAML"
                    raise stream.Refusal(message, *stream.start(event))
                case yaml.DocumentEndEvent():
                    break
                case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                    self._open(event)
                    continue
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    child = self._close()
                case yaml.ScalarEvent():
                    child = self._scalar(event)
                case yaml.AliasEvent():
                    child = self._alias(event)
                case _:
                    continue
            if self._stack:
                self._stack[-1].children.append(child)
            root = child.node
        self._warn_of_more(events)
        return root

    def _warn_of_more(self, events: Iterator[yaml.Event]) -> None:
        try:
            event = next(events, None)
        except stream.Refusal as error:
            line, column = error.line, error.column
        else:
            if not isinstance(event, yaml.DocumentStartEvent):
                return
            line, column = stream.start(event)
        message = (
            "only the first YAML document is read; what follows here is ignored: "
            "put it into a file of its own"
        )
        self.report("warning", message, line, column)

    def _scalar(self, event: yaml.ScalarEvent) -> _Child:
        flow = bool(self._stack) and self._stack[-1].flow
        if flow and not event.style and "?" in event.value:
            message = f"is not YAML 1.1: quote {event.value!r}, since ? has a meaning inside {{}}"
            raise stream.Refusal(message, *stream.start(event))
        return self._made(_Child(Scalar.of(event, self._text)), event.anchor)

    def _alias(self, event: yaml.AliasEvent) -> _Child:
        name = cast("str", event.anchor)
        target = self._anchors.get(name)
        if target is None:
            message = (
                f"the value of &{name} contains itself"
                if name in self._anchors
                else f"the alias *{name} stands for no anchor &{name} above it: "
                "define that, or quote this text"
            )
            raise stream.Refusal(message, *stream.start(event))
        size = target.size
        self._nodes += 1
        return _Child(target.node, target.depth, size=size + 1, aliased=size, is_alias=True)

    def _open(self, event: yaml.CollectionStartEvent) -> None:
        line, column = stream.start(event)
        if len(self._stack) >= _DEPTH:
            raise stream.Refusal(f"nests deeper than {_DEPTH} levels", line, column)
        opened = _Open(
            line=line,
            column=column,
            path=self.path(),
            mapping=isinstance(event, yaml.MappingStartEvent),
            flow=bool(event.flow_style) or (bool(self._stack) and self._stack[-1].flow),
            anchor=event.anchor,
        )
        self._stack.append(opened)
        if event.anchor:
            self._anchors[event.anchor] = None

    def _close(self) -> _Child:
        opened = self._stack[-1]
        children = opened.children
        depth = 1 + max((child.depth for child in children), default=0)
        aliased = sum(child.aliased for child in children)
        if depth > _DEPTH:
            message = f"nests deeper than {_DEPTH} levels"
            raise stream.Refusal(message, opened.line, opened.column)
        if _excessive(size=self._nodes + aliased, aliased=aliased):
            message = "its aliases multiply the document beyond reason: write out what they mean"
            raise stream.Refusal(message, opened.line, opened.column)
        node: Node
        if opened.mapping:
            node = Table(tuple(self._entries(opened)), opened.line, opened.column)
        else:
            items = tuple(child.node for child in children)
            node = Items(items, opened.line, opened.column)
        self._stack.pop()
        size = 1 + sum(child.size for child in children)
        return self._made(_Child(node, depth, size=size, aliased=aliased), opened.anchor)

    def _made(self, child: _Child, anchor: str | None) -> _Child:
        self._nodes += 1
        if anchor:
            self._anchors[anchor] = child
        return child

    def _entries(self, opened: _Open) -> Iterator[Entry]:
        seen: dict[str, int] = {}
        for key, value in zip(opened.children[::2], opened.children[1::2], strict=True):
            if isinstance(key.node, Scalar) and key.node.is_merge and not key.is_alias:
                yield from self._merged(value, opened)
                continue
            entry = self._entry(key.node, value.node, opened)
            if entry is None:
                continue
            if entry.name in seen:
                message = f"the key {entry.name!r} is already set on line {seen[entry.name]}"
                path = join(opened.path, entry.name)
                self.report("error", message, entry.key.line, entry.key.column, path)
                continue
            seen[entry.name] = entry.key.line
            yield entry

    def _entry(self, key: Node, value: Node, opened: _Open) -> Entry | None:
        """The entry, its key as yaml.v2 decodes it into a Go string."""
        message = "a key must be text"
        if isinstance(key, Scalar):
            try:
                return Entry(key.text(), key, value)
            except scalars.ScalarError as error:
                message = str(error)
        self.report("error", message, key.line, key.column, opened.path)
        return None

    def _merged(self, value: _Child, opened: _Open) -> Iterator[Entry]:
        """What `<<:` brings in; of several mappings the earlier one goes last, and so wins."""
        node = value.node
        listed = isinstance(node, Items) and not value.is_alias
        tables = reversed(node.items) if isinstance(node, Items) and listed else [node]
        for table in tables:
            if isinstance(table, Table):
                yield from table.entries
            else:
                message = "<<: takes a mapping, an alias of one, or a list of these"
                self.report("error", message, node.line, node.column, opened.path)


def _excessive(*, size: int, aliased: int) -> bool:
    """yaml.v2's limit on what aliases stand for (decode.go, allowedAliasRatio)."""
    if aliased <= 100 or size <= 1000:
        return False
    low, high = 400_000, 4_000_000
    scaled = min(max(size - low, 0) / (high - low), 1)
    return aliased / size > 0.99 - 0.89 * scaled
