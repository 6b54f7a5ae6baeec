"""The grammar of pipelines: declarations, commands, operands.

https://pkg.go.dev/text/template#hdr-Pipelines
"""

from __future__ import annotations

from rules.template import functions, lexer, literals, nodes, stream

_OPERANDS = frozenset(
    {
        "bool",
        "character",
        "dot",
        "field",
        "identifier",
        "nil",
        "number",
        "open",
        "string",
        "variable",
    }
)
_LITERALS = (nodes.Bool, nodes.Dot, nodes.Nil, nodes.Number, nodes.String)


class Pipelines(stream.Stream):
    """Parses pipelines; knows the variables that are visible where it stands."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.variables = ["$"]

    def pipe(self, context: str, end: lexer.Kind) -> nodes.Pipe:
        offset = self.peek().offset
        variables, assigns = self.declarations(context)
        commands = list[nodes.Command]()
        while (token := self.peek()).kind != end:
            if token.kind not in _OPERANDS:
                raise self.unexpected(token, context)
            commands.append(self.command())
        if not commands:
            raise self.failure(f"missing value for {context}")
        for stage, command in enumerate(commands[1:], start=2):
            if isinstance(command.operands[0], _LITERALS):
                raise self.failure(
                    f"non executable command in pipeline stage {stage}", command.offset
                )
        self.next()
        return nodes.Pipe(
            offset=offset, variables=tuple(variables), assigns=assigns, commands=tuple(commands)
        )

    def declarations(self, context: str) -> tuple[list[str], bool]:
        """`$x :=`, `$x =` and, in a range, `$i, $x :=`, if the pipeline begins so."""
        declared = list[str]()
        while self.peek().kind == "variable":
            start = self.at
            name = self.next().text
            token = self.peek()
            if token.kind in {"assign", "declare"}:
                self.next()
                declared.append(name)
                self.variables.append(name)
                return declared, token.kind == "assign"
            if (token.kind, token.text) != ("other", ","):
                self.at = start
                break
            self.next()
            declared.append(name)
            self.variables.append(name)
            if context != "range" or len(declared) > 1:
                raise self.failure(f"too many declarations in {context}", token.offset)
            if self.peek().kind not in {"variable", "right", "close"}:
                raise self.failure("range can only initialize variables")
        return declared, False

    def command(self) -> nodes.Command:
        offset, operands = self.peek().offset, list[nodes.Operand]()
        while True:
            self.peek()
            operand = self.operand()
            if operand is not None:
                operands.append(operand)
            token = self.tokens[self.at]
            if token.kind in {"right", "close"}:
                break
            self.next()
            if token.kind == "pipe":
                break
            if token.kind != "space":
                raise self.unexpected(token, "operand")
        return nodes.Command(offset=offset, operands=tuple(operands))

    def operand(self) -> nodes.Operand | None:
        token = self.tokens[self.at]
        term = self.term(token)
        fields = list[str]()
        while term is not None and self.tokens[self.at].kind == "field":
            fields.append(self.next().text[1:])
        if term is None or not fields:
            return term
        match term:
            case nodes.Field():
                return nodes.Field(offset=term.offset, names=(*term.names, *fields))
            case nodes.Variable():
                return nodes.Variable(offset=term.offset, name=term.name, fields=tuple(fields))
            case nodes.Pipe() | nodes.Identifier():
                return nodes.Chain(offset=term.offset, base=term, fields=tuple(fields))
            case _:
                raise self.failure(f"unexpected . after {stream.shown(token)}", token.offset)

    def term(self, token: lexer.Token) -> nodes.Operand | None:
        if token.kind not in _OPERANDS:
            return None
        self.next()
        offset, text = token.offset, token.text
        match token.kind:
            case "identifier":
                if text not in functions.NAMES:
                    raise self.failure(f"function {literals.quote(text)} not defined", offset)
                return nodes.Identifier(offset=offset, name=text)
            case "dot":
                return nodes.Dot(offset=offset)
            case "nil":
                return nodes.Nil(offset=offset)
            case "bool":
                return nodes.Bool(offset=offset, value=text == "true")
            case "field":
                return nodes.Field(offset=offset, names=(text[1:],))
            case "variable":
                if text not in self.variables:
                    raise self.failure(f"undefined variable {literals.quote(text)}", offset)
                return nodes.Variable(offset=offset, name=text, fields=())
            case "string":
                return nodes.String(offset=offset, value=self.unquoted(token))
            case "open":
                self.nest()
                pipe = self.pipe("parenthesized pipeline", "close")
                self.depth -= 1
                return pipe
            case _:
                return self.number(token)

    def number(self, token: lexer.Token) -> nodes.Number:
        read = literals.character if token.kind == "character" else literals.number
        try:
            value = read(token.text)
        except literals.LiteralError as error:
            raise self.failure(str(error), token.offset) from error
        return nodes.Number(offset=token.offset, text=token.text, value=value)

    def unquoted(self, token: lexer.Token) -> str:
        try:
            return literals.unquote(token.text)
        except literals.LiteralError as error:
            raise self.failure(f"{error} in {stream.shown(token)}", token.offset) from error
