"""Evaluation of pipelines (Go: text/template/exec.go, the functions called eval…).

As in Go, some mistakes, such as a wrong number of arguments, are errors only when execution reaches
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from rules import errors
from rules.template import functions, nodes, values
from rules.template.printf import MAX_TEXT

MAX_STEPS = 100_000
"""Maximum number of statements, loop iterations and operands in one rendering; takes less than a
second."""
MAX_WORK = 8 << 20
"""Maximum number of characters that functions get as arguments in one rendering; takes less than
four seconds. A query for 10 000 pods has 0.5 million."""


class Evaluator:
    """Evaluates the pipelines of one rendering and holds its variables."""

    def __init__(self, source: str, data: object) -> None:
        self.source = source
        self.variables: list[tuple[str, object]] = [("$", data)]
        """Stack of names and values; the last variable of a name is the visible one."""
        self._steps = 0
        self._work = 0

    def step(self, count: int = 1) -> None:
        """Count steps of the rendering. Raises TemplateExecError beyond MAX_STEPS."""
        self._steps += count
        if self._steps > MAX_STEPS:
            raise errors.TemplateExecError(f"rendering takes more than {MAX_STEPS} steps")

    def error(self, node: nodes.Node, message: str) -> errors.TemplateExecError:
        """Return an error that begins with the node's line and column."""
        before = self.source[: node.offset]
        line, column = before.count("\n") + 1, node.offset - before.rfind("\n")
        return errors.TemplateExecError(f"{line}:{column}: {message}")

    def pipe(self, pipe: nodes.Pipe, dot: object) -> object:
        """Return the value of the last command, after setting the variables to it."""
        value = self._command(pipe.commands[0], dot)
        for command in pipe.commands[1:]:
            value = self._command(command, dot, value)
        for name in pipe.variables:
            self.set_variable(pipe, name, value)
        return value

    def set_variable(self, pipe: nodes.Pipe, name: str, value: object) -> None:
        """Declare a variable of `pipe`, or assign to the one that exists."""
        if pipe.assigns:
            self.variables[self._find(pipe, name)] = (name, value)
        else:
            self.variables.append((name, value))

    def _find(self, node: nodes.Node, name: str) -> int:
        for place in reversed(range(len(self.variables))):
            if self.variables[place][0] == name:
                return place
        raise self.error(node, f"undefined variable: {name}")

    def _command(self, command: nodes.Command, dot: object, *piped: object) -> object:
        """Evaluate a command; a piped value is its last argument."""
        first, *arguments = command.operands
        if isinstance(first, nodes.Function):
            return self._call(first, arguments, dot, *piped)
        if isinstance(first, nodes.Literal) and first.value is None:
            raise self.error(first, "nil is not a command")
        if arguments or piped:
            raise self.error(first, "cannot give an argument to a value that is not a function")
        return self._operand(first, dot)

    def _operand(self, operand: nodes.Operand, dot: object) -> object:
        self.step()
        match operand:
            case nodes.Dot():
                return dot
            case nodes.Variable():
                return self.variables[self._find(operand, operand.name)][1]
            case nodes.Literal():
                return operand.value
            case nodes.Function():
                return self._call(operand, (), dot)
            case nodes.Pipe():
                return self.pipe(operand, dot)
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
                raise self.error(node, message)
            case dict():
                return value.get(name)
            case None:
                return None
            case _:
                raise self.error(node, f"no field .{name} in {values.type_name(value)}")

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
        if self._work > MAX_WORK:
            message = f"functions of the template get more than {MAX_WORK} characters"
            raise self.error(node, f"{node.name}: {message}")
        try:
            value = function.call(*operands)
        except errors.TemplateExecError as error:
            raise self.error(node, f"{node.name}: {error}") from error
        if isinstance(value, str) and len(value) > MAX_TEXT:
            raise self.error(node, f"{node.name}: text grows beyond {MAX_TEXT} characters")
        return value

    def _wrong_count(
        self, node: nodes.Function, count: int, minimum: int, maximum: float
    ) -> errors.TemplateExecError:
        expected = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        if maximum == functions.UNLIMITED:
            expected = f"at least {minimum}"
        message = f"wrong number of arguments for {node.name}: {count}, not {expected}"
        return self.error(node, message)

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
