"""Static check for fields that the data of a template does not have.

Follows dot and `$` while they are the data, also into `with` and into templates that are invoked.
Does not check fields of any other dot, of variables, and of `$` after it was declared or assigned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rules.template import nodes, parser

_Type = type | Literal["data", "unknown"]
"""Type of a value: the data itself, the type of one of its fields, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownField:
    """Chain of fields that the data cannot have."""

    name: str
    """The chain up to the unknown field: `.Nope`, `.Series.Foo`, `$.Nope`."""
    offset: int
    """Position of the chain in the source, in characters."""


def unknown_fields(source: parser.Source, known: Mapping[str, type]) -> list[UnknownField]:
    """Return the unknown fields in source order; `known` maps each field to its type.

    Includes fields that no rendering would reach.
    """
    check = _Check(source.defined, known)
    check.body(source.root, "data")
    return sorted(check.unknown, key=lambda field: field.offset)


class _Check:
    def __init__(self, defined: Mapping[str, nodes.Body], known: Mapping[str, type]) -> None:
        self.defined = defined
        self.known = known
        self.root: _Type = "data"
        """Type of `$`."""
        self.unknown: set[UnknownField] = set()
        self.visited: set[tuple[str, _Type]] = set()

    def body(self, body: nodes.Body | None, dot: _Type) -> None:
        for statement in body.statements if body else ():
            match statement:
                case nodes.Action():
                    self.pipe(statement.pipe, dot)
                case nodes.If() | nodes.With():
                    for branch in statement.branches:
                        value = _followed(self.pipe(branch.condition, dot))
                        self.body(branch.body, value if isinstance(statement, nodes.With) else dot)
                    self.body(statement.else_body, dot)
                case nodes.Range():
                    self.pipe(statement.pipe, dot)
                    self.body(statement.body, "unknown")
                    self.body(statement.else_body, dot)
                case nodes.Invocation():
                    self.invoke(statement, dot)

    def invoke(self, statement: nodes.Invocation, dot: _Type) -> None:
        argument = _followed(self.pipe(statement.pipe, dot)) if statement.pipe else "unknown"
        if (statement.name, argument) not in self.visited:
            self.visited.add((statement.name, argument))
            root, self.root = self.root, argument
            self.body(self.defined.get(statement.name), argument)
            self.root = root

    def pipe(self, pipe: nodes.Pipe, dot: _Type) -> _Type:
        """Return the type of a pipeline's value: unknown where a function computes it."""
        types = [
            self.operand(operand, dot) for command in pipe.commands for operand in command.operands
        ]
        if "$" in pipe.variables:
            self.root = "unknown"
        return types[0] if len(types) == 1 else "unknown"

    def operand(self, operand: nodes.Operand, dot: _Type) -> _Type:
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Variable(name="$"):
                return self.root
            case nodes.Pipe():
                return self.pipe(operand, dot)
            case nodes.Chain():
                return self.chain(operand, self.operand(operand.base, dot))
            case _:
                return "unknown"

    def chain(self, chain: nodes.Chain, base: _Type) -> _Type:
        for count, name in enumerate(chain.fields, start=1):
            if base == "data" and name in self.known:
                base = self.known[name]
            elif base == "unknown" or base is dict:
                return "unknown"
            else:
                self.unknown.add(UnknownField(name=_shown(chain, count), offset=chain.offset))
                return "unknown"
        return base


def _followed(value: _Type) -> _Type:
    """Return the type of a value that becomes dot; only the data itself is followed.

    A field may be empty, and `with` skips its body then.
    """
    return value if value == "data" else "unknown"


def _shown(chain: nodes.Chain, count: int) -> str:
    """Return the chain with its first `count` fields."""
    match chain.base:
        case nodes.Dot():
            base = ""
        case nodes.Variable():
            base = chain.base.name
        case _:
            base = "(…)"
    return ".".join((base, *chain.fields[:count]))
