"""One rendering: what it has printed, its variables, and the bounds of what it may cost."""

from __future__ import annotations

from rules import errors
from rules.template import printer

MAX_STEPS = 1_000_000
"""How many nodes one rendering may execute."""
MAX_DEPTH = 150
"""How deep templates may invoke one another; Go's limit is 100 000."""

_CHARACTERS_PER_STEP = 256
"""Text that a function reads or makes costs steps too."""


class Run:
    """The state of one rendering; a template that is invoked shares all but the variables."""

    __slots__ = ("depth", "parts", "size", "steps", "variables")

    def __init__(self, data: object) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.steps = 0
        self.depth = 0
        self.variables: list[tuple[str, object]] = [("$", data)]
        """A stack: of two variables with one name the later is meant."""

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > printer.MAX_TEXT:
            raise printer.too_long()
        self.parts.append(text)

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise errors.TemplateExecError(f"the template takes more than {MAX_STEPS} steps")

    def spend_on(self, value: object) -> None:
        if isinstance(value, str) and len(value) > _CHARACTERS_PER_STEP:
            self.spend(len(value) // _CHARACTERS_PER_STEP)

    def variable(self, name: str) -> object:
        """The value of a variable; TemplateExecError where it was never set."""
        for known, value in reversed(self.variables):
            if known == name:
                return value
        raise _undefined(name)

    def assign(self, name: str, value: object) -> None:
        """Give a variable that exists another value; TemplateExecError."""
        variables = self.variables
        for place in range(len(variables) - 1, -1, -1):
            if variables[place][0] == name:
                variables[place] = (name, value)
                return
        raise _undefined(name)


def _undefined(name: str) -> errors.TemplateExecError:
    return errors.TemplateExecError(f"undefined variable: {name}")
