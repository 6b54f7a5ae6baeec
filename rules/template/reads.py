"""Where a template uses a field of its data for more than to write it out.

Such a template may render a different text for each value of the field, not only in its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from rules.template import nodes, parser


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A use of a field that is not `<<.Field>>`."""

    name: str
    """The field with its dot; `.` or `$` for the whole data."""
    key: str | None
    """The key in `<<index .Field "key">>`, which writes out one value; None for any other use."""
    offset: int
    """Position in the source, in characters."""


def reads(source: parser.Source, fields: Collection[str]) -> list[Read]:
    """Return the uses of `fields` other than `<<.Field>>`, in source order.

    Includes every use of the data as a whole, because all fields could be read from the value.
    """
    found = list(_Reads(frozenset(fields)).body(source.root, data=True))
    for body in source.defined.values():
        if body is not source.root:
            # Its dot is data only where an invocation passes the data, which is found there.
            found += _Reads(frozenset(fields)).body(body, data=False)
    return sorted(found, key=lambda read: read.offset)


class _Reads:
    def __init__(self, fields: frozenset[str]) -> None:
        self.fields = fields

    def body(self, body: nodes.Body | None, *, data: bool) -> Iterator[Read]:
        """Yield the reads of a body; `data` says whether its dot is the data."""
        for statement in body.statements if body else ():
            match statement:
                case nodes.Action():
                    if not self._writes(statement.pipe):
                        key = _key(statement.pipe)
                        yield from self.pipe(statement.pipe, key, data=data)
                case nodes.If() | nodes.With():
                    for branch in statement.branches:
                        yield from self.pipe(branch.condition, data=data)
                        inner = data and isinstance(statement, nodes.If)
                        yield from self.body(branch.body, data=inner)
                    yield from self.body(statement.else_body, data=data)
                case nodes.Range():
                    yield from self.pipe(statement.pipe, data=data)
                    yield from self.body(statement.body, data=False)
                    yield from self.body(statement.else_body, data=data)
                case nodes.Invocation() if statement.pipe:
                    yield from self.pipe(statement.pipe, data=data)

    def pipe(self, pipe: nodes.Pipe, key: str | None = None, *, data: bool) -> Iterator[Read]:
        for command in pipe.commands:
            for operand in command.operands:
                match operand:
                    case nodes.Dot() if data:
                        yield Read(name=".", key=None, offset=operand.offset)
                    case nodes.Variable(name="$"):
                        yield Read(name="$", key=None, offset=operand.offset)
                    case nodes.Pipe():
                        yield from self.pipe(operand, data=data)
                    case nodes.Chain():
                        yield from self.chain(operand, key, data=data)

    def chain(self, chain: nodes.Chain, key: str | None, *, data: bool) -> Iterator[Read]:
        if isinstance(chain.base, nodes.Pipe):
            yield from self.pipe(chain.base, data=data)
        if chain.fields[0] in self.fields:
            name = "." + ".".join(chain.fields)
            yield Read(name=name, key=key if len(chain.fields) == 1 else None, offset=chain.offset)

    def _writes(self, pipe: nodes.Pipe) -> bool:
        """Return whether a pipe is nothing but one of the fields."""
        if pipe.variables or len(pipe.commands) != 1:
            return False
        match pipe.commands[0].operands:
            case [nodes.Chain(base=nodes.Dot() | nodes.Variable(name="$"), fields=[name])]:
                return name in self.fields
            case _:
                return False


def _key(pipe: nodes.Pipe) -> str | None:
    """Return the key of `index .Field "key"`."""
    if pipe.variables or len(pipe.commands) != 1:
        return None
    match pipe.commands[0].operands:
        case [nodes.Function(name="index"), nodes.Chain(), nodes.Literal(value=str() as key)]:
            return key
        case _:
            return None
