"""Execution of a template (Go: text/template/exec.go): statements, then the pipelines in them.

As in Go, some mistakes, such as a wrong number of arguments, are errors only when execution reaches
them. A rendering is limited in steps, in the work of functions, in the size of its text and in how
deep templates invoke one another, so that no template can block the process for long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from rules import errors, quoting
from rules.template import functions, nodes, parser, printf, values

MAX_STEPS = 100_000
"""Maximum number of statements, loop iterations and operands in one rendering; takes less than a
second."""
_MAX_WORK = 8 << 20
"""Maximum number of characters that functions get as arguments in one rendering; takes less than
four seconds. A query for 10 000 pods has 0.5 million."""


def render(source: parser.ParsedTemplate, data: Mapping[str, object], *, share: float = 1.0) -> str:
    """Return the text of the template with this data. Raises TemplateExecError.

    Steps and work may take this share of their limits.
    """
    record = values.Record(data)
    rendering = _Rendering(source, record, share)
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
    """One rendering: its text so far, its variables and what it has used of its limits."""

    def __init__(self, source: parser.ParsedTemplate, data: values.Record, share: float) -> None:
        self.parts: list[str] = []
        self._source = source.text
        self._defined = source.defined
        self._size = 0
        self._variables: list[tuple[str, object]] = [("$", data)]
        """Stack of names and values; the last variable of a name is the visible one."""
        self._steps = 0
        self._max_steps = int(MAX_STEPS * share)
        self._work = 0
        self._max_work = int(_MAX_WORK * share)

    # Statements.

    def body(self, body: nodes.Body | None, dot: object) -> None:
        if body is None:
            return
        self._step(len(body.statements) + 1)
        for statement in body.statements:
            self._statement(statement, dot)

    def _statement(self, statement: nodes.Statement, dot: object) -> None:
        match statement:
            case nodes.Text():
                self._write(statement.text)
            case nodes.Action():
                value = self._pipe(statement.pipe, dot)
                if not statement.pipe.variables:
                    self._write("<no value>" if value is None else printf.sprint(value))
            case nodes.Conditional() | nodes.Range():
                scope = len(self._variables)
                if isinstance(statement, nodes.Range):
                    self._range(statement, dot)
                else:
                    self._branch(statement, dot)
                del self._variables[scope:]
            case nodes.Jump():
                raise _Break if statement.breaks else _Continue
            case nodes.Invocation():
                self._invoke(statement, dot)

    def _write(self, text: str) -> None:
        self._size += len(text)
        if self._size > printf.MAX_TEXT:
            message = f"the text grows beyond {printf.MAX_TEXT} characters"
            raise errors.TemplateExecError(message)
        self.parts.append(text)

    def _branch(self, statement: nodes.Conditional, dot: object) -> None:
        for branch in statement.branches:
            value = self._pipe(branch.condition, dot)
            if value:
                self.body(branch.body, value if statement.sets_dot else dot)
                return
        self.body(statement.else_body, dot)

    def _range(self, statement: nodes.Range, dot: object) -> None:
        variables, pipe = self._variables, statement.pipe
        value = self._pipe(pipe, dot)
        scope = len(variables)
        empty = True
        with suppress(_Break):
            for key, element in self._elements(pipe, value):
                empty = False
                items = (key, element) if len(pipe.variables) > 1 else (element,)
                for name, item in zip(pipe.variables, items, strict=False):
                    self._set_variable(pipe, name, item)
                with suppress(_Continue):
                    self.body(statement.body, element)
                del variables[scope:]
            if empty:
                self.body(statement.else_body, dot)

    def _elements(self, pipe: nodes.Pipe, value: object) -> Iterator[tuple[object, object]]:
        """Yield index or key with each element; for an int, the numbers below it."""
        match value:
            case None:
                return
            case int() if not isinstance(value, bool):
                if len(pipe.variables) > 1:
                    message = f"range over the number {value} sets only one variable"
                    raise self._error(pipe, message)
                yield from ((None, number) for number in range(value))
            case list() | tuple():
                yield from enumerate(value)
            case dict():
                self._step(len(value))  # sorting, also if the loop ends at once
                yield from sorted(value.items())
            case _:
                message = f"range cannot iterate over {values.type_name(value)}"
                raise self._error(pipe, message)

    def _invoke(self, statement: nodes.Invocation, dot: object) -> None:
        body = self._defined.get(statement.name)
        if body is None:
            message = f"template {quoting.quote(statement.name)} not defined"
            raise self._error(statement, message)
        argument = self._pipe(statement.pipe, dot) if statement.pipe else None
        variables, self._variables = self._variables, [("$", argument)]
        self.body(body, argument)
        self._variables = variables

    # Pipelines.

    def _step(self, count: int = 1) -> None:
        """Count steps of the rendering. Raises TemplateExecError beyond the limit."""
        self._steps += count
        if self._steps > self._max_steps:
            raise errors.TemplateExecError(f"rendering takes more than {self._max_steps} steps")

    def _error(self, node: nodes.Node, message: str) -> errors.TemplateExecError:
        """Return an error that begins with the node's line and column."""
        before = self._source[: node.offset]
        line, column = before.count("\n") + 1, node.offset - before.rfind("\n")
        return errors.TemplateExecError(f"{line}:{column}: {message}")

    def _pipe(self, pipe: nodes.Pipe, dot: object) -> object:
        """Return the value of the last command, after setting the variables to it."""
        value = self._command(pipe.commands[0], dot)
        for command in pipe.commands[1:]:
            value = self._command(command, dot, value)
        for name in pipe.variables:
            self._set_variable(pipe, name, value)
        return value

    def _set_variable(self, pipe: nodes.Pipe, name: str, value: object) -> None:
        """Declare a variable of `pipe`, or assign to the one that exists."""
        if pipe.assigns:
            self._variables[self._find(pipe, name)] = (name, value)
        else:
            self._variables.append((name, value))

    def _find(self, node: nodes.Node, name: str) -> int:
        for place in reversed(range(len(self._variables))):
            if self._variables[place][0] == name:
                return place
        raise self._error(node, f"undefined variable: {name}")

    def _command(self, command: nodes.Command, dot: object, *piped: object) -> object:
        """Evaluate a command; a piped value is its last argument."""
        first, *arguments = command.operands
        if isinstance(first, nodes.Function):
            return self._call(first, arguments, dot, *piped)
        if isinstance(first, nodes.Literal) and first.value is None:
            raise self._error(first, "nil is not a command")
        if arguments or piped:
            raise self._error(first, "cannot give an argument to a value that is not a function")
        return self._operand(first, dot)

    def _operand(self, operand: nodes.Operand, dot: object) -> object:
        self._step()
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Variable():
                return self._variables[self._find(operand, operand.name)][1]
            case nodes.Literal():
                return operand.value
            case nodes.Function():
                return self._call(operand, (), dot)
            case nodes.Pipe():
                return self._pipe(operand, dot)
            case nodes.Chain():
                value = self._operand(operand.base, dot)
                for name in operand.fields:
                    value = self._field(operand, value, name)
                return value

    def _field(self, node: nodes.Node, value: object, name: str) -> object:
        """Return a field of the data, or a map's value: None where the key is missing."""
        match value:
            case values.Record(fields) if name in fields:
                return fields[name]
            case values.Record(fields):
                message = f"no field .{name}; the data has .{', .'.join(fields)}"
                raise self._error(node, message)
            case dict():
                return value.get(name)
            case None:
                return None
            case _:
                raise self._error(node, f"no field .{name} in {values.type_name(value)}")

    def _call(
        self, node: nodes.Function, arguments: Sequence[nodes.Operand], dot: object, *piped: object
    ) -> object:
        if node.name in {"and", "or"}:
            return self._logic(node, arguments, dot, *piped)
        function = functions.FUNCTIONS[node.name]
        count = len(arguments) + len(piped)
        if count < function.minimum or count > function.maximum:
            raise self._wrong_count(node, count, function.minimum, function.maximum)
        operands = [*(self._operand(argument, dot) for argument in arguments), *piped]
        self._work += sum(map(_length, operands))
        if self._work > self._max_work:
            message = f"functions of the template get more than {self._max_work} characters"
            raise self._error(node, f"{node.name}: {message}")
        try:
            value = function.call(*operands)
        except errors.TemplateExecError as error:
            raise self._error(node, f"{node.name}: {error}") from error
        if isinstance(value, str) and len(value) > printf.MAX_TEXT:
            raise self._error(node, f"{node.name}: text grows beyond {printf.MAX_TEXT} characters")
        return value

    def _wrong_count(
        self, node: nodes.Function, count: int, minimum: int, maximum: float
    ) -> errors.TemplateExecError:
        expected = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        if maximum == functions.UNLIMITED:
            expected = f"at least {minimum}"
        message = f"wrong number of arguments for {node.name}: {count}, not {expected}"
        return self._error(node, message)

    def _logic(
        self, node: nodes.Function, arguments: Sequence[nodes.Operand], dot: object, *piped: object
    ) -> object:
        """Return the first argument that decides `and` or `or`, else the last; skip the rest."""
        if not arguments and not piped:
            raise self._wrong_count(node, 0, 1, functions.UNLIMITED)
        value: object = None
        for argument in arguments:
            value = self._operand(argument, dot)
            if bool(value) == (node.name == "or"):
                return value
        return piped[0] if piped else value


def _length(value: object) -> int:
    """Return the number of characters in a string, a list, a map or the data."""
    match value:
        case str():
            return len(value)
        case list() | tuple():
            return len(value) + sum(map(_length, value))
        case dict():
            return len(value) + sum(map(_length, value.keys())) + sum(map(_length, value.values()))
        case values.Record(fields):
            return sum(map(_length, fields.values()))
        case _:
            return 0
