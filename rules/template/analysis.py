"""Static analysis of a template: fields that its data lacks, and what it does with other fields.

Nothing is rendered, so code that no rendering would reach counts, too.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from rules.template import nodes, parser

_Type = type | Literal["data", "unknown"]
"""Type of a value: the data itself, the type of one of its fields, or not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldUse:
    """A place where a template uses a field, or a chain of them."""

    name: str
    """The chain with its dot: `.Series`, `$.Nope`; `.` or `$` for the whole data."""
    key: str | None = None
    """The key in `<<index .Field "key">>`, which writes out one value; None for any other use."""
    offset: int
    """Position in the source, in characters."""


def unknown_fields(source: parser.ParsedTemplate, known: Mapping[str, type]) -> list[FieldUse]:
    """Return each chain up to a field that the data cannot have, in source order.

    `known` maps each field to its type. Follows dot and `$` while they are the data, also into
    `with` and templates that are invoked. Does not check fields of any other dot, of variables, and
    of `$` after it was set.
    """
    check = _UnknownFields(source.defined, known)
    check.body(source.root, "data")
    while check.invoked:  # not recursive: a file may chain thousands
        name, check.root = check.invoked.pop()
        check.body(source.defined.get(name), check.root)
    return sorted(check.unknown, key=lambda field: field.offset)


def reads(source: parser.ParsedTemplate, fields: Collection[str]) -> list[FieldUse]:
    """Return the uses of `fields` other than `<<.Field>>`, in source order.

    Such a template may render a different text for each value of the field, not only in its place.
    Includes every use of the data as a whole, because all fields could be read from the value.
    """
    walk = _Reads(frozenset(fields))
    for body in source.defined.values():
        # Dot of another template is data only where an invocation passes it, which is found there.
        walk.body(body, "data" if body is source.root else "unknown")
    return sorted(walk.found, key=lambda read: read.offset)


class _Walk(abc.ABC):
    """Walk over the statements of a body that follows what dot is."""

    def body(self, body: nodes.Body | None, dot: _Type) -> None:
        for statement in body.statements if body else ():
            match statement:
                case nodes.Action():
                    self.action(statement.pipe, dot)
                case nodes.Conditional():
                    for branch in statement.branches:
                        value = _followed(self.pipe(branch.condition, dot))
                        self.body(branch.body, value if statement.sets_dot else dot)
                    self.body(statement.else_body, dot)
                case nodes.Range():
                    self.pipe(statement.pipe, dot)
                    self.body(statement.body, "unknown")
                    self.body(statement.else_body, dot)
                case nodes.Invocation():
                    argument = self.pipe(statement.pipe, dot) if statement.pipe else "unknown"
                    self.invoke(statement.name, _followed(argument))

    @abc.abstractmethod
    def pipe(self, pipe: nodes.Pipe, dot: _Type) -> _Type:
        """Visit a pipeline; return the type of its value."""

    def action(self, pipe: nodes.Pipe, dot: _Type) -> None:
        self.pipe(pipe, dot)

    def invoke(self, name: str, argument: _Type) -> None:  # noqa: B027 (not every walk follows it)
        """Visit the invocation of a template."""


class _UnknownFields(_Walk):
    def __init__(self, defined: Mapping[str, nodes.Body], known: Mapping[str, type]) -> None:
        self.defined = defined
        self.known = known
        self.root: _Type = "data"
        """Type of `$`."""
        self.unknown: set[FieldUse] = set()
        self.visited: set[tuple[str, _Type]] = set()
        self.invoked: list[tuple[str, _Type]] = []
        """Templates that are still to be visited, each with the type of its dot."""

    def invoke(self, name: str, argument: _Type) -> None:
        if (name, argument) not in self.visited:
            self.visited.add((name, argument))
            self.invoked.append((name, argument))

    def pipe(self, pipe: nodes.Pipe, dot: _Type) -> _Type:
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
                self.unknown.add(FieldUse(name=_shown(chain, count), offset=chain.offset))
                return "unknown"
        return base


class _Reads(_Walk):
    def __init__(self, fields: frozenset[str]) -> None:
        self.fields = fields
        self.found: list[FieldUse] = []

    def action(self, pipe: nodes.Pipe, dot: _Type) -> None:
        alone = not pipe.variables and len(pipe.commands) == 1
        match pipe.commands[0].operands if alone else ():
            case [nodes.Chain(base=nodes.Dot() | nodes.Variable(name="$"), fields=[name])] if (
                name in self.fields
            ):
                pass  # it is written out
            case [
                nodes.Function(name="index"),
                nodes.Chain() as chain,
                nodes.Literal(value=str(key)),
            ]:
                self.chain(chain, dot, key)
            case _:
                self.pipe(pipe, dot)

    def pipe(self, pipe: nodes.Pipe, dot: _Type) -> _Type:
        for command in pipe.commands:
            for operand in command.operands:
                match operand:
                    case nodes.Dot() if dot == "data":
                        self.found.append(FieldUse(name=".", offset=operand.offset))
                    case nodes.Variable(name="$"):
                        self.found.append(FieldUse(name="$", offset=operand.offset))
                    case nodes.Pipe():
                        self.pipe(operand, dot)
                    case nodes.Chain():
                        self.chain(operand, dot)
        return "unknown"  # a use of the data as a whole is found above

    def chain(self, chain: nodes.Chain, dot: _Type, key: str | None = None) -> None:
        if isinstance(chain.base, nodes.Pipe):
            self.pipe(chain.base, dot)
        if chain.fields[0] in self.fields:
            name = "." + ".".join(chain.fields)
            key = key if len(chain.fields) == 1 else None
            self.found.append(FieldUse(name=name, key=key, offset=chain.offset))


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
