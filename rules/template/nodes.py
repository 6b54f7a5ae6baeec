"""Syntax tree of a template (Go: text/template/parse/node.go).

A template is a `Body` of statements. A statement computes values with a `Pipe`: commands whose
values are passed on, each a first operand and its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Base of all nodes."""

    offset: int
    """Position in the source, in characters."""


# Operands.


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot(Node):
    """`.`, the current value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Node):
    """`$x`, or `$`, which is the data that the template was invoked with."""

    name: str
    """With the `$`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal(Node):
    """`nil` (None), a bool, a number, a character (its code point) or a string."""

    value: bool | float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function(Node):
    """Name of a function."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe(Node):
    """`$x := command | command`; in parentheses also an operand."""

    commands: tuple[Command, ...]
    variables: tuple[str, ...]
    """Variables that take the value; two only in `range`."""
    assigns: bool
    """Whether the variables exist already (`=`) or are declared here (`:=`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain(Node):
    """`.A.B`, `$x.A`, `(pipe).A` or `function.A`."""

    base: Dot | Variable | Function | Pipe
    fields: tuple[str, ...]


Operand = Dot | Variable | Literal | Function | Pipe | Chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Node):
    """A function and its arguments, or a single value."""

    operands: tuple[Operand, ...]


# Statements.


@dataclass(frozen=True, slots=True, kw_only=True)
class Body(Node):
    """Sequence of statements."""

    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(Node):
    """Literal text, already trimmed."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action(Node):
    """`<<pipe>>`: writes the value, unless the pipe sets a variable."""

    pipe: Pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Node):
    """Condition of an `if` or `with`, and the body it guards."""

    condition: Pipe
    body: Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional(Node):
    """`if` or `with`, with every `else if` or `else with`, and the last `else`."""

    branches: tuple[Branch, ...]
    else_body: Body | None
    sets_dot: bool
    """Whether it is `with`, whose condition is dot in the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range(Node):
    """`range`, with the `else` that is executed when there are no elements."""

    pipe: Pipe
    body: Body
    else_body: Body | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Jump(Node):
    """`break` out of the innermost `range`, or `continue` with its next element."""

    breaks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation(Node):
    """`template "name" pipe`, or the place of a `block`."""

    name: str
    pipe: Pipe | None


Statement = Text | Action | Conditional | Range | Jump | Invocation
