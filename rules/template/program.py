"""Templates made executable: bodies and control structures, as closures over their parts.

Variables live on a stack: a declaration holds until the control structure around it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rules import errors
from rules.template import evaluate, literals, nodes, printf, values
from rules.template.run import MAX_DEPTH, Run

_NEXT, _BREAK, _CONTINUE = 0, 1, 2

_Exec = Callable[[Run, object], int]
"""Takes the run and dot; answers how it ended: `_NEXT`, `_BREAK` or `_CONTINUE`."""


class Program:
    """Everything that one source defines, ready to run; it keeps no state between renderings."""

    def __init__(self, source: str, root: nodes.Body, defined: Mapping[str, nodes.Body]) -> None:
        self.evaluator = evaluate.Evaluator(source)
        self.defined = {name: self.body(body) for name, body in defined.items()}
        self.root = self.body(root)

    def render(self, data: Mapping[str, object]) -> str:
        """The text of the root with this data; TemplateExecError."""
        record = values.Record(data)
        run = Run(record)
        try:
            self.root(run, record)
            return literals.normal("".join(run.parts))
        except RecursionError:
            raise errors.TemplateExecError("templates invoke one another too deeply") from None
        except UnicodeEncodeError as error:
            raise errors.TemplateExecError("the data is no Unicode text") from error

    def body(self, body: nodes.Body) -> _Exec:
        statements = [self.statement(node) for node in body.nodes]
        steps = len(statements) + 1

        def execute(run: Run, dot: object) -> int:
            run.spend(steps)
            for statement in statements:
                ended = statement(run, dot)
                if ended:
                    return ended
            return _NEXT

        return execute

    def statement(self, node: nodes.Statement) -> _Exec:
        match node:
            case nodes.Text():
                return self.text(node.text)
            case nodes.Action():
                return self.action(node)
            case nodes.If() | nodes.With():
                return self.choice(node)
            case nodes.Range():
                return self.range(node)
            case nodes.Break():
                return lambda _run, _dot: _BREAK
            case nodes.Continue():
                return lambda _run, _dot: _CONTINUE
            case nodes.Invoke():
                return self.invoke(node)

    def text(self, text: str) -> _Exec:
        def execute(run: Run, _dot: object) -> int:
            run.write(text)
            return _NEXT

        return execute

    def action(self, node: nodes.Action) -> _Exec:
        pipe = self.evaluator.pipe(node.pipe)
        silent = bool(node.pipe.variables)

        def execute(run: Run, dot: object) -> int:
            value = pipe(run, dot)
            if not silent:
                run.write(value if type(value) is str else _shown(value))
            return _NEXT

        return execute

    def choice(self, node: nodes.If | nodes.With) -> _Exec:
        arms = [(self.evaluator.pipe(arm.pipe), self.body(arm.body)) for arm in node.arms]
        otherwise = self.body(node.otherwise) if node.otherwise else None
        moves_dot = isinstance(node, nodes.With)

        def execute(run: Run, dot: object) -> int:
            outer, ended = len(run.variables), _NEXT
            for condition, body in arms:
                value = condition(run, dot)
                if values.truth(value):
                    ended = body(run, value if moves_dot else dot)
                    break
            else:
                if otherwise is not None:
                    ended = otherwise(run, dot)
            del run.variables[outer:]
            return ended

        return execute

    def range(self, node: nodes.Range) -> _Exec:
        pipe, body = self.evaluator.pipe(node.pipe), self.body(node.body)
        otherwise = self.body(node.otherwise) if node.otherwise else None
        names, assigns = node.pipe.variables, node.pipe.assigns

        def bind(run: Run, index: object, element: object) -> None:
            items = (index, element) if len(names) > 1 else (element,)
            for place, (name, value) in enumerate(zip(names, items, strict=True)):
                if assigns:
                    run.assign(name, value)
                else:
                    run.variables[place - len(names)] = (name, value)

        def execute(run: Run, dot: object) -> int:
            outer = len(run.variables)
            value = pipe(run, dot)
            inner = len(run.variables)
            ended, empty = _NEXT, True
            for index, element in self.elements(node, value):
                empty = False
                if names:
                    bind(run, index, element)
                ended = body(run, element)
                del run.variables[inner:]
                if ended == _BREAK:
                    break
                ended = _NEXT
            if empty and otherwise is not None:
                ended = otherwise(run, dot)
            del run.variables[outer:]
            return _CONTINUE if ended == _CONTINUE else _NEXT

        return execute

    def elements(self, node: nodes.Range, value: object) -> Iterator[tuple[object, object]]:
        """What a range goes through: index or key, and element; of an integer no index."""
        match value:
            case None:
                return
            case int() if not isinstance(value, bool):
                if len(node.pipe.variables) > 1:
                    message = f"can't use {value} to iterate over more than one variable"
                    raise self.evaluator.error(node.pipe, message)
                kind = type(value)
                for number in range(value):
                    yield None, kind(number)
            case list() | tuple():
                yield from enumerate(value)
            case dict():
                yield from sorted(value.items())
            case _:
                message = f"range can't iterate over {values.type_name(value)}"
                raise self.evaluator.error(node.pipe, message)

    def invoke(self, node: nodes.Invoke) -> _Exec:
        pipe = self.evaluator.pipe(node.pipe) if node.pipe else None

        def execute(run: Run, dot: object) -> int:
            body = self.defined.get(node.name)
            if body is None:
                message = f"template {literals.quote(node.name)} not defined"
                raise self.evaluator.error(node, message)
            if run.depth == MAX_DEPTH:
                message = f"templates invoke one another more than {MAX_DEPTH} deep"
                raise self.evaluator.error(node, message)
            argument = pipe(run, dot) if pipe else None
            outer, run.variables = run.variables, [("$", argument)]
            run.depth += 1
            body(run, argument)
            run.depth -= 1
            run.variables = outer
            return _NEXT

        return execute


def _shown(value: object) -> str:
    return "<no value>" if value is None else printf.sprint((value,))
