"""Go's Printf, Print and Println: format strings, and operands side by side.

https://pkg.go.dev/fmt#hdr-Explicit_argument_indexes and #hdr-Format_errors
"""

from __future__ import annotations

from collections.abc import Sequence

from rules.template import printer, values

_MAX_NUMBER = 1_000_000
"""Go's bound for widths and precisions."""

_FLAGS = {"#": "sharp", "0": "zero", "+": "plus", "-": "minus", " ": "space"}


def sprint(operands: Sequence[object]) -> str:
    """Go's fmt.Sprint: a space between two operands that are both no strings."""
    out = printer.Printer()
    after_string = True
    for operand in operands:
        is_string = isinstance(operand, str)
        if not (is_string or after_string):
            out.write(" ")
        out.value(operand, "v")
        after_string = is_string
    return out.text()


def sprintln(operands: Sequence[object]) -> str:
    """Go's fmt.Sprintln: a space between operands, a newline at the end."""
    out = printer.Printer()
    for place, operand in enumerate(operands):
        if place:
            out.write(" ")
        out.value(operand, "v")
    out.write("\n")
    return out.text()


def sprintf(template: str, operands: Sequence[object]) -> str:
    """Go's fmt.Sprintf, with its answers to verbs that do not fit."""
    return _Format(template, operands).run()


def _number(text: str, start: int, end: int) -> tuple[int | None, int]:
    """A number in the text and where it ends; one beyond Go's bound takes all that follows."""
    value, at = None, start
    while at < end and "0" <= text[at] <= "9":
        if value is not None and value > _MAX_NUMBER:
            return None, end
        value, at = (value or 0) * 10 + int(text[at]), at + 1
    return value, at


class _Format:
    def __init__(self, text: str, operands: Sequence[object]) -> None:
        self.text = text
        self.operands = operands
        self.out = printer.Printer()
        self.at = 0
        self.operand = 0
        """The place of the operand that is next."""
        self.reordered = False
        self.valid = True
        """Whether the explicit indexes of the current verb name operands."""
        self.indexed = False
        """Whether an explicit index came just before."""

    def run(self) -> str:
        text, out = self.text, self.out
        while True:
            percent = text.find("%", self.at)
            if percent < 0:
                out.write(text[self.at :])
                break
            out.write(text[self.at : percent])
            self.at = percent + 1
            self.verb()
        if not self.reordered and self.operand < len(self.operands):
            self.extra()
        return out.text()

    def char(self) -> str:
        """The next character, or nothing at the end."""
        return self.text[self.at : self.at + 1]

    def verb(self) -> None:
        out = self.out
        out.clear()
        self.valid = True
        while self.char() in _FLAGS:
            setattr(out, _FLAGS[self.char()], True)
            self.at += 1
        self.index()
        self.width()
        if self.char() == "." and self.at + 1 < len(self.text):
            self.precision()
        if not self.indexed:
            self.index()
        verb = self.char()
        self.at += 1
        if not verb:
            out.write("%!(NOVERB)")
        elif verb == "%":
            out.write("%")
        elif not self.valid:
            out.write(f"%!{verb}(BADINDEX)")
        elif self.operand >= len(self.operands):
            out.write(f"%!{verb}(MISSING)")
        else:
            if verb in "vw":
                out.sharp_v, out.sharp = out.sharp, False
                out.plus_v, out.plus = out.plus, False
            out.value(self.operands[self.operand], verb)
            self.operand += 1

    def width(self) -> None:
        out = self.out
        if self.char() == "*":
            out.width = self.star()
            if out.width is None:
                out.write("%!(BADWIDTH)")
            elif out.width < 0:
                out.width, out.minus, out.zero = -out.width, True, False
            return
        out.width = self.number()
        if self.indexed and out.width is not None:
            self.valid = False

    def precision(self) -> None:
        self.at += 1
        if self.indexed:
            self.valid = False
        self.index()
        if self.char() == "*":
            precision = self.star()
            if precision is None or precision < 0:
                self.out.write("%!(BADPREC)")
            else:
                self.out.precision = precision
        else:
            self.out.precision = self.number() or 0

    def star(self) -> int | None:
        """The next operand as a width or precision."""
        self.at += 1
        self.indexed = False
        if self.operand >= len(self.operands):
            return None
        value = self.operands[self.operand]
        self.operand += 1
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_NUMBER:
            return None
        return value

    def number(self) -> int | None:
        value, self.at = _number(self.text, self.at, len(self.text))
        return value

    def index(self) -> None:
        """An explicit index such as `[2]`, if there is one."""
        self.indexed = False
        if self.char() != "[":
            return
        self.reordered = True
        end = self.text.find("]", self.at)
        if end < 0 or len(self.text) - self.at < 3:
            self.valid = False
            self.at += 1
            return
        place, digits_end = _number(self.text, self.at + 1, end)
        self.at = end + 1
        self.indexed = place is not None and digits_end == end
        if place is not None and self.indexed and 0 < place <= len(self.operands):
            self.operand = place - 1
        else:
            self.valid = False

    def extra(self) -> None:
        out = self.out
        out.clear()
        out.write("%!(EXTRA ")
        for place, operand in enumerate(self.operands[self.operand :]):
            if place:
                out.write(", ")
            if operand is not None:
                out.write(f"{values.type_name(operand)}=")
            out.value(operand, "v")
        out.write(")")
