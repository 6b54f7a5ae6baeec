"""What the API server refuses in `spec.behavior` of an HPA, as nodes of YAML.

`rules.hpa.autoscaler` reads a valid one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from rules import quantity
from rules.document.yaml import MappingNode, Node, Scalar, SequenceNode, is_null
from rules.errors import QuantityError

_MAX_INTEGER = 2**31 - 1

Path = tuple[str | int, ...]


class Problem(NamedTuple):
    """Something that the API server refuses."""

    path: Path
    """Keys and indices below `spec.behavior`."""
    node: Node
    message: str
    is_unknown: bool = False
    """Whether the key is unknown. Without strict validation, the API server ignores it."""

    def __str__(self) -> str:
        """Return the key and what is wrong."""
        return f"{'.'.join(map(str, ('behavior', *self.path)))} {self.message}"


_Check = Callable[[Node, Path], Iterator[Problem]]


def problems(behavior: Node) -> Iterator[Problem]:
    """Yield what the API server refuses, unknown keys included, as kubectl requests it.

    Follows `validateHorizontalPodAutoscalerBehavior` of pkg/apis/autoscaling/validation.
    """
    return _mapping(behavior, (), {"scaleUp": _rules, "scaleDown": _rules})


def _rules(node: Node, path: Path) -> Iterator[Problem]:
    keys: dict[str, _Check] = {
        "stabilizationWindowSeconds": _integer(0, 3600),
        "selectPolicy": _choice("Max", "Min", "Disabled"),
        "policies": _policies,
        "tolerance": _tolerance,
    }
    return _mapping(node, path, keys)


def _policies(node: Node, path: Path) -> Iterator[Problem]:
    keys: dict[str, _Check] = {
        "type": _choice("Pods", "Percent"),
        "value": _integer(1, _MAX_INTEGER),
        "periodSeconds": _integer(1, 1800),
    }
    if not isinstance(node, SequenceNode) or not node.items:
        yield Problem(path, node, "must be a list, and must not be empty")
        return
    for index, each in enumerate(node.items):
        yield from _mapping(each, (*path, index), keys, required=True)


def _mapping(
    node: Node, path: Path, keys: Mapping[str, _Check], *, required: bool = False
) -> Iterator[Problem]:
    if not isinstance(node, MappingNode):
        yield Problem(path, node, "must be a mapping")
        return
    known = {name: each.value for name, each in node.entries.items() if not is_null(each.value)}
    for name, value in known.items():
        if name in keys:
            yield from keys[name](value, (*path, name))
        else:
            message = f"is none of {', '.join(keys)}"
            yield Problem((*path, name), value, message, is_unknown=True)
    for name in keys if required else ():
        if name not in known:
            yield Problem(path, node, f"{name} is missing")


def _integer(low: int, high: int) -> _Check:
    def check(node: Node, path: Path) -> Iterator[Problem]:
        text = _text(node, "int")
        if not re.fullmatch(r"-?[0-9]{1,10}", text) or not low <= int(text) <= high:
            yield Problem(path, node, f"must be an integer from {low} to {high}")

    return check


def _choice(*names: str) -> _Check:
    def check(node: Node, path: Path) -> Iterator[Problem]:
        if _text(node, "str") not in names:
            yield Problem(path, node, f"must be {', '.join(names[:-1])} or {names[-1]}")

    return check


def _tolerance(node: Node, path: Path) -> Iterator[Problem]:
    try:
        is_valid = quantity.milli_value(_text(node, "str", "int", "float")) >= 0
    except QuantityError:
        is_valid = False
    if not is_valid:
        yield Problem(path, node, "must be a quantity of 0 or more")


def _text(node: Node, *tags: str) -> str:
    """Return the text of a scalar of one of these types; empty for any other node."""
    return node.value if isinstance(node, Scalar) and node.tag in tags else ""
