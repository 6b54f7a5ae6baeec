"""Access to nodes of YAML of which nothing is known, so that an absent key is no error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from rules.document.yaml import MappingNode, Node, Scalar, SequenceNode

_PLAIN = frozenset(("bool", "int", "float", "null"))
EMPTY = MappingNode(entries={}, line=1, column=1)


def mapping(node: Node, key: str) -> MappingNode:
    """Return the mapping at `key`; an empty one if there is none."""
    value = _value(node, key)
    return value if isinstance(value, MappingNode) else EMPTY


def mappings(nodes: Iterable[Node]) -> Iterator[MappingNode]:
    """Return the nodes that are mappings."""
    return (each for each in nodes if isinstance(each, MappingNode))


def items(node: Node, key: str) -> tuple[Node, ...]:
    """Return the items of the list at `key`; none if there is no list."""
    value = _value(node, key)
    return value.items if isinstance(value, SequenceNode) else ()


def text(node: Node, key: str) -> str:
    """Return the text of the scalar at `key`; empty if there is none."""
    value = _value(node, key)
    return value.text if isinstance(value, Scalar) else ""


def plain(node: Node) -> Any:
    """Return the value as Python has it; dates and tagged scalars are text."""
    if isinstance(node, MappingNode):
        return {key: plain(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, SequenceNode):
        return [plain(each) for each in node.items]
    return yaml.safe_load(node.value) if node.tag in _PLAIN else node.text


def _value(node: Node, key: str) -> Node | None:
    entry = node.entries.get(key) if isinstance(node, MappingNode) else None
    return entry.value if entry else None


def title(document: MappingNode) -> str:
    """Return kind, namespace and name of a manifest."""
    metadata = mapping(document, "metadata")
    names = (text(metadata, "namespace"), text(metadata, "name"))
    return f"{text(document, 'kind')} {'/'.join(filter(None, names))}"


def embedded(scalar: Scalar, file: str, key: str) -> tuple[str, str]:
    """Return the text of a string that is YAML itself, and the name of its file.

    A literal block keeps its lines and columns, because everything around it is replaced by line
    breaks. Positions in any other text count from its beginning, which the file's name shows.
    """
    if scalar.style == "|":
        _, _, body = scalar.source.partition("\n")
        return "\n" * scalar.line + body, file
    return scalar.text, f"{file} ({key})"
