"""Parses YAML into nodes with positions, as the original's gopkg.in/yaml.v2 does.

libyaml parses and PyYAML composes; this module adds merge keys, duplicate keys and limits. What
the nodes must contain is checked in `schema`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from yaml._yaml import CParser
from yaml.composer import Composer, ComposerError
from yaml.resolver import Resolver

from rules.findings import Finding, State, in_file
from rules.quoting import shorten

_MAX_DEPTH = 100
MAX_NODES = 1_000_000
"""Number of nodes once aliases are expanded; bounds the work that a small file can cause."""

_CORE = "tag:yaml.org,2002:"
_MERGE = _CORE + "merge"
_RESOLVER = Resolver()
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")

# yaml.v2 accepts two things that libyaml rejects: \' between double quotes, and a plain scalar that
# ends in a colon before one of ,[]{}. Stand-ins of the same length hide them from libyaml.
_BACKSLASH, _COLON = "\U0010fffe", "\U0010ffff"
_ESCAPED_QUOTE = re.compile(r"(?<!\\)((?:\\\\)*)\\'")
_FINAL_COLON = re.compile(r"(?<=[^\s'\"\]}]):(?=[,\[\]{}])")

_CHARACTERS = {
    "'": re.compile(r"(?P<blank>\s)|''|.", re.DOTALL),
    '"': re.compile(r"(?P<blank>\s|\\[nrt\s])|\\(?:x..|u.{4}|U.{8}|.)|.", re.DOTALL),
}
_CHARACTER = re.compile(r"(?P<blank>\s)|.", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scalar:
    """A scalar. Lines and columns, here and below, are counted from 1."""

    value: str
    tag: str
    """`str`, `int`, `null` or another type of YAML 1.1, or an application's tag such as `!foo`."""
    style: str
    """`'`, `"`, `|` or `>`; empty for a plain scalar."""
    source: str
    """The text in the file, without anchor and tag."""
    line: int
    column: int

    @property
    def text(self) -> str:
        """The scalar as text, whatever its type; empty for null."""
        return "" if self.tag == "null" else self.value

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of the character at `offset` of the value.

        YAML folds white space, so a blank gets the position of the next character that is not one.
        """
        ahead = sum(not character.isspace() for character in self.value[:offset])
        start = self.source.find("\n") + 1 if self.style in {"|", ">"} else len(self.style)
        for match in _CHARACTERS.get(self.style, _CHARACTER).finditer(self.source, start):
            if match["blank"]:
                continue
            if ahead == 0:
                return _advance(self.source[: match.start()], self.line, self.column)
            ahead -= 1
        return _advance(self.source.rstrip(), self.line, self.column)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SequenceNode:
    """A sequence."""

    items: tuple[Node, ...]
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappingEntry:
    """A key of a mapping with its value."""

    key: Scalar
    value: Node


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappingNode:
    """A mapping in the order of the file, with its merge keys (`<<`) resolved."""

    entries: Mapping[str, MappingEntry]
    line: int
    column: int


Node = Scalar | SequenceNode | MappingNode


def join(path: str, key: str) -> str:
    """Return the path of `key` below `path`; either may be empty."""
    return f"{path}.{key}" if path and key else path or key


def load(
    data: str | bytes, *, file: str, max_nodes: int = MAX_NODES, way_back: str = ""
) -> tuple[Node | None, tuple[Finding, ...]]:
    """Parse the first document of `data`; bytes are UTF-8.

    It has at most `max_nodes` values once aliases are expanded, which `way_back` raises. Returns
    None for an empty document, and for invalid YAML, which is a single error. Other problems are
    duplicate keys, keys and tags that do not fit, and documents after the first.
    """
    builder = _Builder(file, max_nodes, way_back)
    nodes = builder.load(data, every=False)
    return next(iter(nodes), None), tuple(builder.problems)


def load_all(data: str | bytes, *, file: str) -> tuple[tuple[Node, ...], tuple[Finding, ...]]:
    """Parse all documents of `data`, without empty ones; none for invalid YAML. See `load`."""
    builder = _Builder(file)
    nodes = builder.load(data, every=True)
    return tuple(nodes), tuple(builder.problems)


class _Composer(Composer, CParser, Resolver):
    """PyYAML's composer on libyaml's parser. Limits depth and aliases; anchors may be redefined."""

    def __init__(self, text: str, max_nodes: int, way_back: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        Resolver.__init__(self)
        self._max_nodes = max_nodes
        self._cure = f"use fewer aliases{f', or {way_back}' if way_back else ''}"
        self._depth = 0
        self._sizes: dict[int, int] = {}
        """id of a finished node -> the number of its nodes, aliases expanded."""

    def rest(self) -> Any:
        """Return the mark at which the next document starts, if there is one, valid or not."""
        try:
            event = self.peek_event() if self.check_node() else None
        except yaml.MarkedYAMLError as error:
            return error.problem_mark
        return event and event.start_mark

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        assert isinstance(event, yaml.NodeEvent)
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        if self._depth == _MAX_DEPTH:
            raise _error(f"nested deeper than {_MAX_DEPTH} levels", event)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        assert node is not None
        if not isinstance(event, yaml.AliasEvent):
            self._sizes[id(node)] = 1 + sum(self._sizes[id(child)] for child in _children(node))
        elif id(node) not in self._sizes:
            raise _error(f"the value of &{event.anchor} contains *{event.anchor}", event)
        if self._sizes[id(node)] > self._max_nodes:
            message = f"aliases expand to more than {self._max_nodes} values: {self._cure}"
            raise _error(message, event)
        return node


class _Builder:
    """Converts the nodes of one file and collects its problems."""

    def __init__(self, file: str, max_nodes: int = MAX_NODES, way_back: str = "") -> None:
        self._max_nodes, self._way_back = max_nodes, way_back
        self.problems: list[Finding] = []
        self._file = file
        self._text = ""
        self._nodes: dict[int, Node] = {}
        """id of a composed node -> the node built from it, which aliases share."""
        self._roots: list[yaml.Node] = []
        """All documents: a node that is freed may leave its id to another."""

    def report(self, state: State, message: str, line: int, column: int, path: str = "") -> None:
        self.problems.append(
            in_file(state, message, path=path, file=self._file, line=line, column=column)
        )

    def load(self, data: str | bytes, *, every: bool) -> list[Node]:
        """Return the first document, or all of them; none if one is invalid."""
        try:
            text = data if isinstance(data, str) else data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line, column = _advance(error.object[: error.start].decode(), 1, 1)
            self.report(State.FAILURE, "not UTF-8 text: save the file as UTF-8", line, column)
            return []
        try:
            return self._documents(text, every=every)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            assert mark is not None  # libyaml and _Composer mark every error
            message = _explain(error, text[mark.index : mark.index + 1])
            self.report(State.FAILURE, message, mark.line + 1, mark.column + 1)
        except yaml.reader.ReaderError as error:
            line, column = _advance(text.encode()[: error.position].decode(errors="ignore"), 1, 1)
            self.report(State.FAILURE, f"invalid YAML: {error.reason}", line, column)
        return []

    def _documents(self, text: str, *, every: bool) -> list[Node]:
        self._text = text
        hidden = _ESCAPED_QUOTE.sub(rf"\1{_BACKSLASH}'", text)
        composer = _Composer(_FINAL_COLON.sub(_COLON, hidden), self._max_nodes, self._way_back)
        nodes: list[Node] = []
        while (every or not nodes) and composer.check_node():
            root = composer.get_node()
            assert root is not None
            self._roots.append(root)
            nodes.append(self._build(root, ""))
        if every:
            return [each for each in nodes if not is_null(each)]
        if nodes and (mark := composer.rest()):
            message = "only the first YAML document is read: move the rest to another file"
            self.report(State.WARNING, message, mark.line + 1, mark.column + 1)
        return nodes

    def _build(self, node: yaml.Node, path: str) -> Node:
        built = self._nodes.get(id(node))
        if built is None:
            built = self._nodes[id(node)] = self._convert(node, path)
        return built

    def _convert(self, node: yaml.Node, path: str) -> Node:
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        line, column = _position(node)
        if isinstance(node, yaml.MappingNode):
            return MappingNode(entries=self._entries(node, path), line=line, column=column)
        items = (self._build(item, f"{path}[{index}]") for index, item in enumerate(node.value))
        return SequenceNode(items=tuple(items), line=line, column=column)

    def _scalar(self, node: yaml.ScalarNode, path: str) -> Scalar:
        style, value, tag = node.style or "", str(node.value), node.tag.removeprefix(_CORE)
        value = value.replace(_COLON, ":").replace(_BACKSLASH, "" if style == '"' else "\\")
        source = self._text[node.start_mark.index : node.end_mark.index]
        properties = _PROPERTIES.match(source)
        start = properties.end() if properties else 0
        line, column = _advance(source[:start], *_position(node))
        natural = _RESOLVER.resolve(yaml.ScalarNode, value, (True, False))  # type: ignore[no-untyped-call]
        if node.tag.startswith(_CORE) and tag != "str" and node.tag != natural:
            message = f"the tag !!{tag} does not fit {shorten(value, 100)!r}: remove the tag"
            self.report(State.FAILURE, message, line, column, path)
        return Scalar(
            value=value, tag=tag, style=style, source=source[start:], line=line, column=column
        )

    def _entries(self, node: yaml.MappingNode, path: str) -> dict[str, MappingEntry]:
        """Return the entries in the order of the file; a later one overrides a merged one.

        Mappings under one key are combined, because yaml.v2 decodes them into the same struct.
        """
        entries: dict[str, MappingEntry] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                for mapping in self._merged(value_node, path):
                    _combine(entries, mapping.entries)
                continue
            key = self._build(key_node, path)
            name = key.text if isinstance(key, Scalar) else ""
            below = join(path, name)
            value = self._build(value_node, below)
            if not isinstance(key, Scalar):
                self.report(State.FAILURE, "a key must be text", key.line, key.column, path)
            elif name in lines:
                repeated = shorten(name, 100)
                message = f"the key {repeated!r} is already set on line {lines[name]}: remove one"
                self.report(State.FAILURE, message, key.line, key.column, below)
            else:
                lines[name] = key.line
                _combine(entries, {name: MappingEntry(key=key, value=value)})
        return entries

    def _merged(self, node: yaml.Node, path: str) -> Iterator[MappingNode]:
        """Yield the mappings that `<<` merges; a list in reverse: its first mapping wins."""
        value = self._build(node, path)
        for mapping in reversed(value.items) if isinstance(value, SequenceNode) else (value,):
            if isinstance(mapping, MappingNode):
                yield mapping
            else:
                message = "<< must be a mapping, an alias of a mapping, or a list of these"
                self.report(State.FAILURE, message, mapping.line, mapping.column, path)


def is_null(node: Node) -> bool:
    """Return whether the node is a null of YAML."""
    return isinstance(node, Scalar) and node.tag == "null"


def _combine(entries: dict[str, MappingEntry], more: Mapping[str, MappingEntry]) -> None:
    for name, entry in more.items():
        old, new = entries.get(name), entry.value
        if old and isinstance(old.value, MappingNode) and isinstance(new, MappingNode):
            combined = dict(old.value.entries)
            _combine(combined, new.entries)
            new = MappingNode(entries=combined, line=new.line, column=new.column)
        entries[name] = MappingEntry(key=entry.key, value=new)


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _position(marked: yaml.Node | yaml.Event) -> tuple[int, int]:
    mark = marked.start_mark
    assert mark is not None  # libyaml marks every event
    return mark.line + 1, mark.column + 1


def _advance(text: str, line: int, column: int) -> tuple[int, int]:
    """Return the position after `text`, which starts at `line` and `column`."""
    breaks = text.count("\n")
    if not breaks:
        return line, column + len(text)
    return line + breaks, len(text) - text.rfind("\n")


def _error(message: str, event: yaml.Event) -> ComposerError:
    mark: Any = event.start_mark  # libyaml's type of mark
    return ComposerError(None, None, message, mark)


def _explain(error: yaml.MarkedYAMLError, character: str) -> str:
    """Return the message for invalid YAML; `character` is the one at which parsing failed."""
    start, mark, problem = error.context_mark, error.problem_mark, error.problem or ""
    context = advice = ""
    if start and mark and start.line != mark.line:
        context = f" {error.context} that starts on line {start.line + 1}"
    match problem:
        case "found character that cannot start any token" if character == "\t":
            advice = ": indent with spaces, not with tabs"
        case "found character that cannot start any token":
            advice = f": quote text that begins with {character}"
        case "mapping values are not allowed in this context":
            advice = ': quote text that contains ": " or ends in ":", and check the indentation'
        case "did not find expected ',' or '}'":
            advice = ": check for a missing comma, or a missing space after a colon"
        case "found unexpected end of stream":
            advice = ": close the quotes"
        case "found unknown escape character":
            advice = ": in double quotes write \\\\ for a backslash, or use single quotes"
        case _ if problem.startswith("found undefined alias"):
            advice = ": define its anchor above, or quote text that begins with *"
    return f"invalid YAML: {problem}{context}{advice}"
