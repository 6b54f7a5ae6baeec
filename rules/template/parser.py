"""Syntax tree of a template's source (Go: text/template/parse/parse.go).

Refuses what Go refuses at parse time. Errors of execution, such as a missing template or a wrong
number of arguments, are left to `execution`. Nesting is limited, because the parser is recursive.
https://pkg.go.dev/text/template#hdr-Actions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from rules import quoting
from rules.template import functions, lexer, literals, nodes

MAX_NESTING = 100
"""Maximum depth of actions and parentheses; Go allows 10 000 parentheses."""

_CONSTANTS = {"nil": None, "true": True, "false": False}
_LITERALS: Mapping[str, Callable[[str], str | float]] = {
    "string": literals.string,
    "character": literals.character,
    "number": literals.number,
}
"""Kind of a token -> the function that returns its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTemplate:
    """Parsed source."""

    text: str
    root: nodes.Body
    defined: dict[str, nodes.Body]
    """Bodies of every `define` and `block`, and the root, by name."""


def parse(source: str, name: str) -> ParsedTemplate:
    """Parse the source of the template called `name`. Raises TemplateSyntaxError."""
    return _Parser(source).parse(name)


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.tokens = lexer.TokenStream(source)
        self.depth = 0
        self.ranges = 0
        """Number of `range` bodies around the current position."""
        self.variables = ["$"]
        """Variables that are visible at the current position."""
        self.defined: dict[str, nodes.Body] = {}

    def parse(self, name: str) -> ParsedTemplate:
        body, stop = self.body(top=True)
        if stop.kind != "eof":
            raise self.tokens.failure(f"unexpected <<{stop.text}>>: no action is open", stop)
        self.define(name, body, stop)
        return ParsedTemplate(text=self.source, root=self.defined[name], defined=self.defined)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Count a level of nesting. Raises TemplateSyntaxError beyond MAX_NESTING."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            message = f"actions and parentheses are nested deeper than {MAX_NESTING}"
            raise self.tokens.failure(message, self.tokens.current)
        yield
        self.depth -= 1

    # Statements.

    def body(self, *, top: bool = False) -> tuple[nodes.Body, lexer.Token]:
        """Parse statements up to `end`, `else` or the end of the source, and take that token."""
        offset, statements = self.tokens.current.offset, list[nodes.Statement]()
        while (token := self.tokens.next()).kind != "eof":
            if token.kind == "text":
                statements.append(nodes.Text(offset=token.offset, text=token.text))
            elif stop := self.tokens.accept("end", "else"):
                token = stop
                break
            elif top and (word := self.tokens.accept("define")):
                self.define_clause(word)
            else:
                statements.append(self.action())
        return nodes.Body(offset=offset, statements=tuple(statements)), token

    def closed_body(self, opening: lexer.Token) -> nodes.Body:
        """Parse a body up to its `<<end>>`; `opening` is the keyword that it belongs to."""
        body, stop = self.body()
        if stop.text == "else":
            raise self.tokens.failure(f"unexpected <<else>> in <<{opening.text}>>", stop)
        self.end(stop, opening)
        return body

    def end(self, stop: lexer.Token, opening: lexer.Token) -> None:
        if stop.kind == "eof":
            raise self.tokens.failure(f"<<{opening.text}>> has no <<end>>", opening)
        self.tokens.expect("right", "<<end>>")

    def action(self) -> nodes.Statement:
        """Parse what follows a left delimiter."""
        word = self.tokens.accept(*lexer.KEYWORDS)
        if word is None:
            pipe = self.pipe("action", "right")
            return nodes.Action(offset=pipe.offset, pipe=pipe)
        scope = len(self.variables)
        with self.nested():
            statement = self.keyword_action(word)
        del self.variables[scope:]
        return statement

    def keyword_action(self, word: lexer.Token) -> nodes.Statement:
        match word.text:
            case "if" | "with":
                return self.conditional(word)
            case "range":
                return self.range(word)
            case "break" | "continue":
                self.tokens.expect("right", f"<<{word.text}>>")
                if not self.ranges:
                    raise self.tokens.failure(f"<<{word.text}>> outside <<range>>", word)
                return nodes.Jump(offset=word.offset, breaks=word.text == "break")
            case "template":
                return self.invocation(word)
            case "block":
                return self.block(word)
            case _:
                raise self.tokens.failure(f"<<{word.text}>> inside another action", word)

    def conditional(self, word: lexer.Token) -> nodes.Conditional:
        """Parse the branches of `if` or `with`, and the last `else`."""
        branches, else_body = list[nodes.Branch](), None
        while True:
            condition = self.pipe(f"<<{word.text}>>", "right")
            body, stop = self.body()
            branches.append(nodes.Branch(offset=condition.offset, condition=condition, body=body))
            if stop.text != "else":
                self.end(stop, word)
                break
            if not self.tokens.accept(word.text):
                else_body = self.else_body(word)
                break
        return nodes.Conditional(
            offset=word.offset,
            branches=tuple(branches),
            else_body=else_body,
            sets_dot=word.text == "with",
        )

    def else_body(self, opening: lexer.Token) -> nodes.Body:
        self.tokens.expect("right", "<<else>>")
        return self.closed_body(opening)

    def range(self, word: lexer.Token) -> nodes.Range:
        pipe = self.pipe("<<range>>", "right")
        self.ranges += 1
        body, stop = self.body()
        self.ranges -= 1
        else_body = None
        if stop.text == "else":
            else_body = self.else_body(word)
        else:
            self.end(stop, word)
        return nodes.Range(offset=word.offset, pipe=pipe, body=body, else_body=else_body)

    # Templates.

    def invocation(self, word: lexer.Token) -> nodes.Invocation:
        name, pipe = self.template_name(word), None
        if self.tokens.peek().kind == "right":
            self.tokens.next()
        else:
            pipe = self.pipe("<<template>>", "right")
        return nodes.Invocation(offset=word.offset, name=name, pipe=pipe)

    def block(self, word: lexer.Token) -> nodes.Invocation:
        name, pipe = self.template_name(word), self.pipe("<<block>>", "right")
        self.define(name, self.template_body(word), word)
        return nodes.Invocation(offset=word.offset, name=name, pipe=pipe)

    def define_clause(self, word: lexer.Token) -> None:
        name = self.template_name(word)
        self.tokens.expect("right", "<<define>>")
        self.define(name, self.template_body(word), word)

    def template_name(self, word: lexer.Token) -> str:
        return str(self.literal(self.tokens.expect("string", f"<<{word.text}>>")))

    def template_body(self, word: lexer.Token) -> nodes.Body:
        """Parse the body of `define` or `block`, which does not see the variables around it."""
        variables, ranges = self.variables, self.ranges
        self.variables, self.ranges = ["$"], 0
        body = self.closed_body(word)
        self.variables, self.ranges = variables, ranges
        return body

    def define(self, name: str, body: nodes.Body, token: lexer.Token) -> None:
        """Add a template. As in Go, it replaces an empty one, and an empty one replaces none."""
        known = self.defined.get(name)
        if known is None or _is_empty(known):
            self.defined[name] = body
        elif not _is_empty(body):
            raise self.tokens.failure(f"template {quoting.quote(name)} is defined twice", token)

    # Pipelines.

    def pipe(self, context: str, end: str) -> nodes.Pipe:
        """Parse a pipeline and the token `end` behind it."""
        offset = self.tokens.peek().offset
        variables, assigns = self.declarations(context)
        commands = list[nodes.Command]()
        while self.tokens.peek().kind != end:
            command = self.command(context)
            if commands and isinstance(command.operands[0], nodes.Dot | nodes.Literal):
                message = f"stage {len(commands) + 1} of the pipeline is not a function"
                raise self.tokens.failure(message, command)
            commands.append(command)
        if not commands:
            raise self.tokens.failure(f"missing value for {context}", self.tokens.peek())
        self.tokens.next()
        return nodes.Pipe(
            offset=offset, commands=tuple(commands), variables=tuple(variables), assigns=assigns
        )

    def declarations(self, context: str) -> tuple[list[str], bool]:
        """Parse `$x :=`, `$x =` or, in a range, `$i, $x :=`."""
        start, names = self.tokens.position, list[str]()
        while True:
            variable, operator = self.tokens.next(), self.tokens.peek()
            if variable.kind != "variable" or operator.kind not in {"declare", "assign", "comma"}:
                break
            self.tokens.next()
            names.append(variable.text)
            self.variables.append(variable.text)
            if operator.kind != "comma":
                return names, operator.kind == "assign"
            if context != "<<range>>" or len(names) > 1:
                raise self.tokens.failure(f"too many declarations in {context}", operator)
        if names:
            raise self.tokens.failure("range expects $index, $element := pipeline", variable)
        self.tokens.position = start
        return names, False

    def command(self, context: str) -> nodes.Command:
        """Parse operands up to a `|`, which is taken, or to the end of the pipeline."""
        offset, operands = self.tokens.peek().offset, [self.operand(context)]
        while self.tokens.current.kind == "space" and self.tokens.peek().kind not in {
            "pipe",
            "right",
            "close",
        }:
            operands.append(self.operand(context))
        following = self.tokens.peek()
        if following.kind == "pipe":
            self.tokens.next()
        elif following.kind not in {"right", "close"}:
            raise self.tokens.unexpected(following, "operand")
        return nodes.Command(offset=offset, operands=tuple(operands))

    def operand(self, context: str) -> nodes.Operand:
        """Parse a term and the fields behind it."""
        token = self.tokens.peek()
        offset = token.offset
        term = self.term(context)
        fields = list[str]()
        while self.tokens.current.kind == "field":
            fields.append(self.tokens.next().text[1:])
        if not fields:
            return term
        match term:
            case nodes.Chain():
                return nodes.Chain(offset=offset, base=term.base, fields=(*term.fields, *fields))
            case nodes.Variable() | nodes.Function() | nodes.Pipe():
                return nodes.Chain(offset=offset, base=term, fields=tuple(fields))
            case _:
                raise self.tokens.failure(f"unexpected . after {lexer.describe(token)}", token)

    def term(self, context: str) -> nodes.Operand:
        token = self.tokens.next()
        offset, text = token.offset, token.text
        match token.kind:
            case "field":
                return nodes.Chain(offset=offset, base=nodes.Dot(offset=offset), fields=(text[1:],))
            case "dot":
                return nodes.Dot(offset=offset)
            case "variable":
                if text not in self.variables:
                    raise self.tokens.failure(f"undefined variable {text}", token)
                return nodes.Variable(offset=offset, name=text)
            case "string" | "character" | "number":
                return nodes.Literal(offset=offset, value=self.literal(token))
            case "word" if text in _CONSTANTS:
                return nodes.Literal(offset=offset, value=_CONSTANTS[text])
            case "word":
                if text not in functions.NAMES:
                    raise self.tokens.failure(f"function {quoting.quote(text)} not defined", token)
                return nodes.Function(offset=offset, name=text)
            case "open":
                with self.nested():
                    return self.pipe("parenthesized pipeline", "close")
            case _:
                raise self.tokens.unexpected(token, context)

    def literal(self, token: lexer.Token) -> str | float:
        try:
            return _LITERALS[token.kind](token.text)
        except literals.LiteralError as error:
            raise self.tokens.failure(str(error), token) from error


def _is_empty(body: nodes.Body) -> bool:
    """Return whether a body holds only white space."""
    return all(
        isinstance(statement, nodes.Text) and not statement.text.strip()
        for statement in body.statements
    )
