"""What a parsed template consists of, as data.

Every node knows its `offset`: where it begins in the source, in characters. A template's text is a
`Body`; what an action computes is a `Pipe` of `Command`s, each a first word and its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Anything that stands in a template."""

    offset: int
    """Where it begins, in characters from the start of the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot(Node):
    """The dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nil(Node):
    """The literal `nil`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bool(Node):
    """The literal `true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Node):
    """A number or a character; `value` is None where it does not fit Go's int."""

    text: str
    value: int | float | complex | None


@dataclass(frozen=True, slots=True, kw_only=True)
class String(Node):
    """A quoted or raw string."""

    value: str
    """Without quotes and escapes; bytes that are not UTF-8 as `surrogateescape` has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identifier(Node):
    """A function's name."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Node):
    """`.A.B`: a chain of fields on dot."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Node):
    """`$x` or `$x.A.B`; `$` alone is the template's argument."""

    name: str
    """With its `$`."""
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe(Node):
    """`$x := command | command`; in parentheses also an argument."""

    variables: tuple[str, ...]
    """What it declares or assigns; two only in a `range`."""
    assigns: bool
    """Whether the variables must exist (`=`) or are new (`:=`)."""
    commands: tuple[Command, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Node):
    """`(pipeline).A.B`, or the fields of what a function without arguments returns."""

    base: Pipe | Identifier
    fields: tuple[str, ...]


Operand = Dot | Nil | Bool | Number | String | Identifier | Field | Variable | Chain | Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Node):
    """A function with its arguments, or a single value."""

    operands: tuple[Operand, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Node):
    """A run of text and actions."""

    nodes: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Node):
    """What is copied to the output, already trimmed."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Node):
    """`<<pipeline>>`: prints its value, unless it declares or assigns."""

    pipe: Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm(Node):
    """One condition of an `if` or `with` and what it guards."""

    pipe: Pipe
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class If(Node):
    """`if`, every `else if`, and the last `else`."""

    arms: tuple[Arm, ...]
    otherwise: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class With(Node):
    """`with`, every `else with`, and the last `else`; an arm's value is dot in its body."""

    arms: tuple[Arm, ...]
    otherwise: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Node):
    """`range`; `otherwise` is for when there is nothing to go through."""

    pipe: Pipe
    body: Body
    otherwise: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Break(Node):
    """`break`: leaves the innermost range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continue(Node):
    """`continue`: the next turn of the innermost range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invoke(Node):
    """`template "name" pipeline`, also what remains of a `block` in its place."""

    name: str
    pipe: Pipe | None


Statement = Text | Action | If | With | Range | Break | Continue | Invoke
