"""From tokens to nodes: the grammar of Go's text/template, and what it refuses at parse time.

Nesting is bounded, so that no source can exhaust the interpreter's stack.
https://pkg.go.dev/text/template#hdr-Actions
"""

from __future__ import annotations

from dataclasses import dataclass

from rules.template import lexer, literals, nodes, pipelines

_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A parsed source: its own body and the templates that it defines, by name."""

    root: nodes.Body
    defined: dict[str, nodes.Body]


def parse(source: str, name: str) -> Source:
    """Parse the source of the template called `name`; raises TemplateSyntaxError."""
    parser = _Parser(source, name)
    parser.run()
    return Source(root=parser.defined[name], defined=parser.defined)


def _is_empty(body: nodes.Body) -> bool:
    """Whether it holds only white space; Go lets such a template be defined again."""
    return all(
        isinstance(node, nodes.Text) and not node.text.strip(_GO_SPACE) for node in body.nodes
    )


class _Parser(pipelines.Pipelines):
    def __init__(self, source: str, name: str) -> None:
        super().__init__(source)
        self.name = name
        self.ranges = 0
        self.defined: dict[str, nodes.Body] = {}

    def run(self) -> None:
        parts = list[nodes.Statement]()
        while self.peek().kind != "eof":
            start = self.at
            left = self.next()
            if left.kind == "left" and self.is_keyword("define"):
                self.next()
                self.define(left.offset)
                continue
            self.at = start
            if self.is_stop():
                raise self.failure(f"unexpected <<{self.peek().text}>>: nothing is open")
            parts.append(self.statement())
        self.add(self.name, nodes.Body(offset=0, nodes=tuple(parts)), len(self.source))

    def is_stop(self) -> bool:
        """Whether an `end` or `else` is next; if so its word is the next token."""
        start = self.at
        if self.peek().kind == "left":
            self.next()
            if self.is_keyword("end", "else"):
                return True
        self.at = start
        return False

    def body(self) -> tuple[nodes.Body, lexer.Token]:
        """A body up to `end` or `else`, and that word, which is taken."""
        offset, parts = self.peek().offset, list[nodes.Statement]()
        while self.peek().kind != "eof":
            if self.is_stop():
                word = self.next()
                if word.text == "end" or not self.is_keyword("if", "with"):
                    self.expect({"right"}, word.text)
                return nodes.Body(offset=offset, nodes=tuple(parts)), word
            parts.append(self.statement())
        raise self.failure("unexpected end of template: an action is not closed by <<end>>")

    def last_body(self, context: str) -> nodes.Body:
        """A body that only `end` may close."""
        body, stop = self.body()
        if stop.text != "end":
            raise self.failure(f"unexpected <<else>> in {context}", stop.offset)
        return body

    def statement(self) -> nodes.Statement:
        token = self.take()
        if token.kind == "text":
            return nodes.Text(offset=token.offset, text=token.text)
        if token.kind != "left":
            raise self.unexpected(token, "input")
        word = self.peek()
        if word.kind != "keyword":
            pipe = self.pipe("command", "right")
            return nodes.Action(offset=pipe.offset, pipe=pipe)
        self.next()
        self.nest()
        node = self.keyword(word)
        self.depth -= 1
        return node

    def keyword(self, word: lexer.Token) -> nodes.Statement:
        offset = word.offset
        match word.text:
            case "if":
                arms, otherwise = self.arms("if")
                return nodes.If(offset=offset, arms=arms, otherwise=otherwise)
            case "with":
                arms, otherwise = self.arms("with")
                return nodes.With(offset=offset, arms=arms, otherwise=otherwise)
            case "range":
                return self.range(offset)
            case "break" | "continue":
                self.expect({"right"}, f"<<{word.text}>>")
                if not self.ranges:
                    raise self.failure(f"<<{word.text}>> outside <<range>>", offset)
                kind = nodes.Break if word.text == "break" else nodes.Continue
                return kind(offset=offset)
            case "template":
                return self.invoke(offset)
            case "block":
                return self.block(offset)
            case _:
                raise self.unexpected(word, "command")

    # Actions with bodies.

    def arms(self, word: str) -> tuple[tuple[nodes.Arm, ...], nodes.Body | None]:
        """The conditions and bodies of `if` or `with`, after its first word."""
        scope, arms = len(self.variables), list[nodes.Arm]()
        otherwise = None
        while True:
            pipe = self.pipe(word, "right")
            body, stop = self.body()
            arms.append(nodes.Arm(offset=pipe.offset, pipe=pipe, body=body))
            if stop.text == "end":
                break
            if self.is_keyword(word):
                self.next()
                continue
            otherwise = self.last_body(f"the <<else>> of <<{word}>>")
            break
        del self.variables[scope:]
        return tuple(arms), otherwise

    def range(self, offset: int) -> nodes.Range:
        scope = len(self.variables)
        pipe = self.pipe("range", "right")
        self.ranges += 1
        body, stop = self.body()
        self.ranges -= 1
        otherwise = None if stop.text == "end" else self.last_body("the <<else>> of <<range>>")
        del self.variables[scope:]
        return nodes.Range(offset=offset, pipe=pipe, body=body, otherwise=otherwise)

    def invoke(self, offset: int) -> nodes.Invoke:
        name = self.template_name("template clause")
        if self.peek().kind == "right":
            self.next()
            return nodes.Invoke(offset=offset, name=name, pipe=None)
        pipe = self.pipe("template clause", "right")
        return nodes.Invoke(offset=offset, name=name, pipe=pipe)

    def block(self, offset: int) -> nodes.Invoke:
        name = self.template_name("block clause")
        pipe = self.pipe("block clause", "right")
        self.template(name, "block clause", offset)
        return nodes.Invoke(offset=offset, name=name, pipe=pipe)

    def define(self, offset: int) -> None:
        name = self.template_name("define clause")
        self.expect({"right"}, "define clause")
        self.template(name, "define clause", offset)

    def template_name(self, context: str) -> str:
        return self.unquoted(self.expect({"string"}, context))

    def template(self, name: str, context: str, offset: int) -> None:
        """The body of a template of its own, which sees no variable of where it stands."""
        outer = self.variables, self.ranges
        self.variables, self.ranges = ["$"], 0
        body = self.last_body(context)
        self.variables, self.ranges = outer
        self.add(name, body, offset)

    def add(self, name: str, body: nodes.Body, offset: int) -> None:
        known = self.defined.get(name)
        if known is None or _is_empty(known):
            self.defined[name] = body
        elif not _is_empty(body):
            raise self.failure(f"template {literals.quote(name)} is defined twice", offset)
