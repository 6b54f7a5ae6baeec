"""Pipelines made executable: each becomes a closure that takes the `Run` and dot and gives a value.

What Go refuses only when it gets there (a wrong number of arguments, nil as a command) is refused
only then here too: a branch that is never taken may hold it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from rules import errors
from rules.template import functions, nodes, values
from rules.template.run import Run

Eval = Callable[[Run, object], object]
_Command = Callable[[Run, object, object], object]
"""Takes the value that comes through the pipe as well."""


class Evaluator:
    """Compiles the pipelines of one source; its errors say where."""

    def __init__(self, source: str) -> None:
        self.source = source

    def error(self, node: nodes.Node, message: object) -> errors.TemplateExecError:
        """The error with line and column."""
        before = self.source[: node.offset]
        line, column = before.count("\n") + 1, node.offset - before.rfind("\n")
        return errors.TemplateExecError(f"{line}:{column}: {message}")

    def _failing(self, node: nodes.Node, message: str) -> Eval:
        def fail(_run: Run, _dot: object) -> NoReturn:
            raise self.error(node, message)

        return fail

    def pipe(self, pipe: nodes.Pipe) -> Eval:
        """A pipeline: its value is the last command's, which its variables then hold."""
        first = self._first(pipe.commands[0])
        rest = [self._piped(command) for command in pipe.commands[1:]]
        if not rest and not pipe.variables:
            return first
        names, assigns = pipe.variables, pipe.assigns

        def evaluate(run: Run, dot: object) -> object:
            value = first(run, dot)
            for command in rest:
                value = command(run, dot, value)
            for name in names:
                if assigns:
                    self._assign(pipe, run, name, value)
                else:
                    run.variables.append((name, value))
            return value

        return evaluate

    def _assign(self, node: nodes.Node, run: Run, name: str, value: object) -> None:
        try:
            run.assign(name, value)
        except errors.TemplateExecError as error:
            raise self.error(node, error) from error

    # Commands.

    def _first(self, command: nodes.Command) -> Eval:
        """A command into which nothing is piped."""
        word, arguments = command.operands[0], command.operands[1:]
        if isinstance(word, nodes.Identifier):
            call = self._call(word, arguments, piped=False)
            return lambda run, dot: call(run, dot, None)
        if isinstance(word, nodes.Nil):
            return self._failing(word, "nil is not a command")
        return self._operand(word, has_arguments=bool(arguments))

    def _piped(self, command: nodes.Command) -> _Command:
        """A command that gets the value of the one before as its last argument."""
        word, arguments = command.operands[0], command.operands[1:]
        if isinstance(word, nodes.Identifier):
            return self._call(word, arguments, piped=True)
        operand = self._operand(word, has_arguments=True)
        return lambda run, dot, _value: operand(run, dot)

    def _operand(self, operand: nodes.Operand, *, has_arguments: bool = False) -> Eval:
        """A value; with arguments only what turns out not to exist, as a missing key's field."""
        match operand:
            case nodes.Field():
                return self._fields(operand, lambda _, dot: dot, operand.names, has_arguments)
            case nodes.Variable(fields=fields) if fields:
                return self._fields(operand, self._variable(operand), fields, has_arguments)
            case nodes.Chain():
                base = self._operand(operand.base)
                return self._fields(operand, base, operand.fields, has_arguments)
        if has_arguments:
            return self._failing(operand, "can't give argument to non-function")
        match operand:
            case nodes.Dot():
                return lambda _, dot: dot
            case nodes.Variable():
                return self._variable(operand)
            case nodes.Pipe():
                return self.pipe(operand)
            case nodes.Identifier():
                call = self._call(operand, (), piped=False)
                return lambda run, dot: call(run, dot, None)
            case nodes.Number(value=None):
                return self._failing(operand, f"{operand.text} overflows int")
            case nodes.Nil():
                return lambda _run, _dot: None
        value = operand.value
        return lambda _run, _dot: value

    def _variable(self, node: nodes.Variable) -> Eval:
        name = node.name

        def evaluate(run: Run, _dot: object) -> object:
            try:
                return run.variable(name)
            except errors.TemplateExecError as error:
                raise self.error(node, error) from error

        return evaluate

    # Fields.

    def _fields(
        self, node: nodes.Node, base: Eval, names: tuple[str, ...], has_arguments: bool
    ) -> Eval:
        if isinstance(node, nodes.Field) and len(names) == 1 and not has_arguments:
            return self._field_of_dot(node, names[0])
        last = len(names) - 1

        def evaluate(run: Run, dot: object) -> object:
            value = base(run, dot)
            for place, name in enumerate(names):
                value = self._field(node, value, name, has_arguments and place == last)
            return value

        return evaluate

    def _field_of_dot(self, node: nodes.Node, name: str) -> Eval:
        """The commonest chain, and the fastest."""

        def evaluate(_run: Run, dot: object) -> object:
            if type(dot) is values.Record and name in dot.fields:
                return dot.fields[name]
            return self._field(node, dot, name, has_arguments=False)

        return evaluate

    def _field(self, node: nodes.Node, value: object, name: str, has_arguments: bool) -> object:
        """A field of the data, or a map's value by its key: None where there is no such key."""
        if value is None:
            return None
        if isinstance(value, values.Record):
            if name not in value.fields:
                known = ", ".join(value.fields)
                raise self.error(node, f"there is no field {name}; the data has {known}")
        elif not isinstance(value, dict):
            raise self.error(node, f"can't evaluate field {name} in type {values.type_name(value)}")
        if has_arguments:
            raise self.error(node, f"{name} has arguments but cannot be invoked as function")
        return value.fields[name] if isinstance(value, values.Record) else value.get(name)

    # Functions.

    def _call(
        self, node: nodes.Identifier, arguments: tuple[nodes.Operand, ...], *, piped: bool
    ) -> _Command:
        if node.name in {"and", "or"}:
            return self._logic(node, arguments, piped=piped)
        function = functions.named(node.name)
        count = len(arguments) + piped
        if count < function.fixed or (count > function.fixed and not function.variadic):
            least = "at least " if function.variadic else ""
            wanted = f"want {least}{function.fixed} got {count}"
            return self._wrong(node, f"wrong number of args for {node.name}: {wanted}")
        if function.format_first and arguments and isinstance(arguments[0], nodes.Nil):
            return self._wrong(node, "cannot assign nil to string")
        evaluated = [self._operand(argument) for argument in arguments]
        call = function.call

        def evaluate(run: Run, dot: object, value: object) -> object:
            operands = [argument(run, dot) for argument in evaluated]
            if piped:
                operands.append(value)
            if function.format_first and not isinstance(operands[0], str):
                kind = values.type_name(operands[0])
                raise self.error(node, f"wrong type for {node.name}'s format: string, not {kind}")
            run.spend(1)
            for operand in operands:
                run.spend_on(operand)
            try:
                result = call(*operands)
            except errors.TemplateExecError as error:
                raise self.error(node, f"error calling {node.name}: {error}") from error
            run.spend_on(result)
            return result

        return evaluate

    def _wrong(self, node: nodes.Node, message: str) -> _Command:
        fail = self._failing(node, message)
        return lambda run, dot, _value: fail(run, dot)

    def _logic(
        self, node: nodes.Identifier, arguments: tuple[nodes.Operand, ...], *, piped: bool
    ) -> _Command:
        """`and` and `or`: the first argument that decides, else the last; no more is evaluated."""
        if not arguments and not piped:
            return self._wrong(node, f"wrong number of args for {node.name}: want at least 1 got 0")
        evaluated = [self._operand(argument) for argument in arguments]
        deciding = node.name == "or"

        def evaluate(run: Run, dot: object, value: object) -> object:
            result = None
            for argument in evaluated:
                result = argument(run, dot)
                if values.truth(result) == deciding:
                    return result
            return value if piped else result

        return evaluate
