"""Execution of statements (Go: text/template/exec.go, the functions called walk…).

A rendering is limited in steps, in the work of functions, in the size of its text and in how deep
templates invoke one another, so that no template can block the process for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from rules import errors, quoting
from rules.template import evaluation, nodes, parser, printf, values


def render(source: parser.Source, data: Mapping[str, object]) -> str:
    """Return the text of the template with this data. Raises TemplateExecError."""
    record = values.Record(data)
    rendering = _Rendering(source, record)
    try:
        rendering.body(source.root, record)
        text = "".join(rendering.parts)
        text.encode()
    except RecursionError:
        raise errors.TemplateExecError("templates invoke one another too deeply") from None
    except UnicodeEncodeError as error:
        raise errors.TemplateExecError(f"the text is not valid Unicode: {error}") from error
    return text


class _Break(Exception):
    """Raised by `break` for the innermost range."""


class _Continue(Exception):
    """Raised by `continue` for the innermost range."""


class _Rendering:
    def __init__(self, source: parser.Source, data: values.Record) -> None:
        self.defined = source.defined
        self.evaluator = evaluation.Evaluator(source.text, data)
        self.parts: list[str] = []
        self.size = 0

    def body(self, body: nodes.Body | None, dot: object) -> None:
        if body is None:
            return
        self.evaluator.step(len(body.statements) + 1)
        for statement in body.statements:
            self.statement(statement, dot)

    def statement(self, statement: nodes.Statement, dot: object) -> None:
        match statement:
            case nodes.Text():
                self.write(statement.text)
            case nodes.Action():
                value = self.evaluator.pipe(statement.pipe, dot)
                if not statement.pipe.variables:
                    self.write(value if isinstance(value, str) else _printed(value))
            case nodes.If() | nodes.With():
                scope = len(self.evaluator.variables)
                self.branch(statement, dot)
                del self.evaluator.variables[scope:]
            case nodes.Range():
                scope = len(self.evaluator.variables)
                self.range(statement, dot)
                del self.evaluator.variables[scope:]
            case nodes.Break():
                raise _Break
            case nodes.Continue():
                raise _Continue
            case nodes.Invocation():
                self.invoke(statement, dot)

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > printf.MAX_TEXT:
            message = f"the text grows beyond {printf.MAX_TEXT} characters"
            raise errors.TemplateExecError(message)
        self.parts.append(text)

    def branch(self, statement: nodes.If | nodes.With, dot: object) -> None:
        for branch in statement.branches:
            value = self.evaluator.pipe(branch.condition, dot)
            if value:
                self.body(branch.body, value if isinstance(statement, nodes.With) else dot)
                return
        self.body(statement.else_body, dot)

    def range(self, statement: nodes.Range, dot: object) -> None:
        variables, pipe = self.evaluator.variables, statement.pipe
        value = self.evaluator.pipe(pipe, dot)
        scope = len(variables)
        empty = True
        with suppress(_Break):
            for key, element in self.elements(pipe, value):
                empty = False
                items = (key, element) if len(pipe.variables) > 1 else (element,)
                for name, item in zip(pipe.variables, items, strict=False):
                    self.evaluator.set_variable(pipe, name, item)
                with suppress(_Continue):
                    self.body(statement.body, element)
                del variables[scope:]
            if empty:
                self.body(statement.else_body, dot)

    def elements(self, pipe: nodes.Pipe, value: object) -> Iterator[tuple[object, object]]:
        """Yield index or key with each element; for an int, the numbers below it."""
        match value:
            case None:
                return
            case int() if not isinstance(value, bool):
                if len(pipe.variables) > 1:
                    message = f"range over the number {value} sets only one variable"
                    raise self.evaluator.error(pipe, message)
                yield from ((None, number) for number in range(value))
            case list() | tuple():
                yield from enumerate(value)
            case dict():
                self.evaluator.step(len(value))  # sorting, also if the loop ends at once
                yield from sorted(value.items())
            case _:
                message = f"range cannot iterate over {values.type_name(value)}"
                raise self.evaluator.error(pipe, message)

    def invoke(self, statement: nodes.Invocation, dot: object) -> None:
        body = self.defined.get(statement.name)
        if body is None:
            message = f"template {quoting.quote(statement.name)} not defined"
            raise self.evaluator.error(statement, message)
        argument = self.evaluator.pipe(statement.pipe, dot) if statement.pipe else None
        variables, self.evaluator.variables = self.evaluator.variables, [("$", argument)]
        self.body(body, argument)
        self.evaluator.variables = variables


def _printed(value: object) -> str:
    return "<no value>" if value is None else printf.sprint(value)
