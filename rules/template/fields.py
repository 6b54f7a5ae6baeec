"""Which fields a template asks of its data, found without rendering: what does not exist, at load.

Followed are dot and `$` as long as they are the data itself, also into `with` and into templates
that are invoked with it. In the body of `range .GroupBySlice` or `with .Series` dot is something
else, and what is asked of it there is left to the rendering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rules.template import nodes

_What = type | Literal["data", "unknown"]
"""What a value is known to be: the data itself, one of its fields' types, or nothing known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownField:
    """A chain of fields that the data cannot have."""

    name: str
    """The chain as far as it goes wrong: `.Nope`, `.Series.Foo`, `$.Nope`."""
    offset: int
    """Where the chain begins, in characters from the start of the source."""


def unknown(
    root: nodes.Body, defined: Mapping[str, nodes.Body], known: Mapping[str, type]
) -> list[UnknownField]:
    """The unknown fields in the order of the source; `known` gives each field's type.

    A field that stands where it would never be evaluated is found too.
    """
    search = _Search(defined, known)
    search.body(root, "data", "data")
    return sorted(search.found, key=lambda field: field.offset)


def _scope(what: _What) -> _What:
    """What a value is known to be once it is dot: only the data is followed."""
    return what if what == "data" else "unknown"


class _Search:
    def __init__(self, defined: Mapping[str, nodes.Body], known: Mapping[str, type]) -> None:
        self.defined = defined
        self.known = known
        self.found: set[UnknownField] = set()
        self.visited: set[tuple[str, _What]] = set()

    def body(self, body: nodes.Body | None, dot: _What, root: _What) -> None:
        for node in body.nodes if body else ():
            match node:
                case nodes.Action():
                    self.pipe(node.pipe, dot, root)
                case nodes.If() | nodes.With():
                    for arm in node.arms:
                        value = self.pipe(arm.pipe, dot, root)
                        inner = _scope(value) if isinstance(node, nodes.With) else dot
                        self.body(arm.body, inner, root)
                    self.body(node.otherwise, dot, root)
                case nodes.Range():
                    self.pipe(node.pipe, dot, root)
                    self.body(node.body, "unknown", root)
                    self.body(node.otherwise, dot, root)
                case nodes.Invoke():
                    self.invoke(node, dot, root)

    def invoke(self, node: nodes.Invoke, dot: _What, root: _What) -> None:
        value = _scope(self.pipe(node.pipe, dot, root)) if node.pipe else "unknown"
        if (node.name, value) not in self.visited:
            self.visited.add((node.name, value))
            self.body(self.defined.get(node.name), value, value)

    def pipe(self, pipe: nodes.Pipe, dot: _What, root: _What) -> _What:
        """What a pipeline's value is known to be."""
        what: _What = "unknown"
        for command in pipe.commands:
            for operand in command.operands:
                what = self.operand(operand, dot, root)
        plain = len(pipe.commands) == 1 and len(pipe.commands[0].operands) == 1
        return what if plain else "unknown"

    def operand(self, operand: nodes.Operand, dot: _What, root: _What) -> _What:
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Field():
                return self.chain(dot, operand.names, "", operand.offset)
            case nodes.Variable(name="$"):
                return self.chain(root, operand.fields, "$", operand.offset)
            case nodes.Pipe():
                return self.pipe(operand, dot, root)
            case nodes.Chain():
                base = self.operand(operand.base, dot, root)
                return self.chain(base, operand.fields, "(…)", operand.offset)
            case _:
                return "unknown"

    def chain(self, what: _What, names: tuple[str, ...], start: str, offset: int) -> _What:
        for place, name in enumerate(names):
            if what == "unknown":
                return "unknown"
            if what == "data":
                following: _What | None = self.known.get(name)
            else:
                following = "unknown" if what is dict else None
            if following is None:
                chain = ".".join((start, *names[: place + 1]))
                self.found.add(UnknownField(name=chain, offset=offset))
                return "unknown"
            what = following
        return what
