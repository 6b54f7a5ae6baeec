"""Go's package fmt for the values of templates: one value by one verb, with its flags.

https://pkg.go.dev/fmt#hdr-Printing
"""

from __future__ import annotations

from rules import errors
from rules.template import floats, literals, values

MAX_TEXT = 1 << 20
"""The longest text, in characters, that a template may print or keep in a variable."""

_MAX_RUNE = 0x10FFFF


def too_long() -> errors.TemplateExecError:
    return errors.TemplateExecError(f"the text grows beyond {MAX_TEXT} characters")


class Printer:
    """Collects what is printed; its flags are those of the verb being printed."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.erroring = False
        self.clear()

    def clear(self) -> None:
        """No flags, no width, no precision."""
        self.width: int | None = None
        self.precision: int | None = None
        self.minus = self.plus = self.sharp = self.space = self.zero = False
        self.plus_v = self.sharp_v = False

    def text(self) -> str:
        return literals.normal("".join(self.parts))

    def write(self, text: str) -> None:
        self.size += len(text)
        if self.size > MAX_TEXT:
            raise too_long()
        self.parts.append(text)

    def pad(self, text: str, *, zero: bool | None = None) -> None:
        """Write the text within the width; zeros only go to the left."""
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            self.write(text)
            return
        zeros = self.zero if zero is None else zero
        padding = ("0" if zeros and not self.minus else " ") * missing
        self.write(text + padding if self.minus else padding + text)

    # Values.

    def value(self, value: object, verb: str) -> None:
        """One operand, as Printf prints it."""
        if value is None:
            if verb in "Tv":
                self.pad("<nil>")
            else:
                self.bad_verb(value, verb)
        elif verb == "T":
            self.string(values.type_name(value), "s")
        elif verb == "p":
            self.bad_verb(value, verb)
        else:
            self.element(value, verb)

    def element(self, value: object, verb: str) -> None:
        """A value that is not nil: an operand, or what is inside one."""
        match value:
            case bool():
                if verb in "tv":
                    self.pad("true" if value else "false")
                else:
                    self.bad_verb(value, verb)
            case int():
                self.integer(value, verb)
            case float():
                self.floating(value, verb)
            case complex():
                self.imaginary(value, verb)
            case str():
                self.string(value, verb)
            case list() | tuple():
                self.sequence(value, verb)
            case dict():
                self.mapping(value, verb)
            case values.Record():
                self.record(value, verb)
            case _:
                values.kind(value)

    def bad_verb(self, value: object, verb: str) -> None:
        self.erroring = True
        self.write(f"%!{verb}(")
        if value is None:
            self.write("<nil>")
        else:
            self.write(f"{values.type_name(value)}=")
            self.element(value, "v")
        self.write(")")
        self.erroring = False

    def sequence(self, value: list[object] | tuple[object, ...], verb: str) -> None:
        if verb == "w":
            self.bad_verb(value, verb)
            return
        self.write("[]string{" if self.sharp_v else "[")
        for place, item in enumerate(value):
            if place:
                self.write(", " if self.sharp_v else " ")
            self.element(item, verb)
        self.write("}" if self.sharp_v else "]")

    def mapping(self, value: dict[str, object], verb: str) -> None:
        if verb == "w":
            self.bad_verb(value, verb)
            return
        self.write("map[string]string{" if self.sharp_v else "map[")
        for place, key in enumerate(sorted(value)):
            if place:
                self.write(", " if self.sharp_v else " ")
            self.element(key, verb)
            self.write(":")
            self.element(value[key], verb)
        self.write("}" if self.sharp_v else "]")

    def record(self, value: values.Record, verb: str) -> None:
        if verb == "w" and not self.erroring:
            self.bad_verb(value, verb)
            return
        if value.is_label and verb in "vsxXq" and not self.sharp_v and not self.erroring:
            self.string(str(value), verb)
            return
        self.write(f"{values.type_name(value)}{{" if self.sharp_v else "{")
        for place, (name, field) in enumerate(value.items()):
            if place:
                self.write(", " if self.sharp_v else " ")
            if self.plus_v or self.sharp_v:
                self.write(f"{name}:")
            self.element(field, verb)
        self.write("}")

    # Text.

    def string(self, value: str, verb: str) -> None:
        match verb:
            case "q":
                self.quoted(value)
            case "v" if self.sharp_v:
                self.quoted(value)
            case "s" | "v":
                self.pad(value[: self.precision])
            case "x" | "X":
                self.hexadecimal(value, verb)
            case _:
                self.bad_verb(value, verb)

    def quoted(self, value: str) -> None:
        value = value[: self.precision]
        if self.sharp and literals.can_backquote(value):
            self.pad(f"`{value}`")
        else:
            self.pad(literals.quote(value, ascii_only=self.plus))

    def hexadecimal(self, value: str, verb: str) -> None:
        prefix = f"0{verb}" if self.sharp else ""
        data = literals.encode(value)[: self.precision]
        if self.space:
            shown = " ".join(f"{prefix}{byte:02x}" for byte in data)
        else:
            shown = prefix + data.hex() if data else ""
        self.pad(shown.upper() if verb == "X" else shown)

    # Numbers.

    def integer(self, value: int, verb: str) -> None:
        match verb:
            case "v" if self.sharp_v and isinstance(value, values.Byte):
                self.digits(value, f"{value:x}", "0x")
            case "d" | "v":
                self.digits(value, f"{abs(value)}", "")
            case "b":
                self.digits(value, f"{abs(value):b}", "0b" if self.sharp else "")
            case "o":
                self.digits(value, f"{abs(value):o}", "0" if self.sharp else "")
            case "O":
                self.digits(value, f"{abs(value):o}", "0o0" if self.sharp else "0o")
            case "x":
                self.digits(value, f"{abs(value):x}", "0x" if self.sharp else "")
            case "X":
                self.digits(value, f"{abs(value):X}", "0X" if self.sharp else "")
            case "c":
                self.pad(_rune(value))
            case "q":
                self.pad(literals.quote_character(_rune(value), ascii_only=self.plus))
            case "U":
                self.unicode(value)
            case _:
                self.bad_verb(value, verb)

    def digits(self, value: int, shown: str, prefix: str) -> None:
        """An integer's digits: filled up to the precision, or to the width where zeros fill it."""
        sign = "-" if value < 0 else "+" if self.plus else " " if self.space else ""
        if self.precision is not None:
            if not self.precision and not value:
                self.write(" " * (self.width or 0))
                return
            shown = shown.rjust(self.precision, "0")
        elif self.zero and not self.minus and self.width is not None:
            shown = shown.rjust(self.width - len(sign), "0")
        if prefix[:1] == "0" and prefix[-1] == "0" and shown[0] == "0":
            prefix = prefix[:-1]  # an octal number begins with one zero, not two
        self.pad(sign + prefix + shown, zero=False)

    def unicode(self, value: int) -> None:
        code = value & 0xFFFFFFFFFFFFFFFF
        shown = f"U+{code:0{max(4, self.precision or 0)}X}"
        if self.sharp and code <= _MAX_RUNE and literals.is_print(chr(code)):
            shown += f" '{chr(code)}'"
        self.pad(shown, zero=False)

    def floating(self, value: float, verb: str) -> None:
        if verb not in "vbgGxXfFeE":
            self.bad_verb(value, verb)
            return
        kind = {"v": "g", "F": "f"}.get(verb, verb)
        precision = self.precision
        if precision is None and kind in "feE":
            precision = 6
        shown = floats.text(value, kind, precision)
        sign = "+"
        if shown[0] == "-":
            sign, shown = "-", shown[1:]
        elif self.space and not self.plus:
            sign = " "
        if self.sharp and verb != "b":
            shown = _pointed(shown, kind, precision)
        if not self.plus and sign == "+":
            self.pad(shown)
        elif self.zero and not self.minus and (self.width or 0) > len(shown) + 1:
            self.write(sign + shown.rjust((self.width or 0) - 1, "0"))
        else:
            self.pad(sign + shown)

    def imaginary(self, value: complex, verb: str) -> None:
        if verb not in "vbgGxXfFeE":
            self.bad_verb(value, verb)
            return
        plus = self.plus
        self.write("(")
        self.floating(value.real, verb)
        self.plus = True
        self.floating(value.imag, verb)
        self.write("i)")
        self.plus = plus


def _rune(value: int) -> str:
    """The character of a number, or U+FFFD where there is none."""
    if 0 <= value <= _MAX_RUNE and not 0xD800 <= value <= 0xDFFF:
        return chr(value)
    return "\ufffd"


def _pointed(shown: str, verb: str, precision: int | None) -> str:
    """A number as the `#` flag wants it: with a decimal point and %g's trailing zeros."""
    digits = 0
    if verb in "gGx":
        digits = 6 if precision is None else precision
    marks = "pP" if verb in "xX" else "eE"
    mark = next((place for place, char in enumerate(shown) if char in marks), len(shown))
    number, tail = shown[:mark], shown[mark:]
    digits -= len(number.replace(".", "").lstrip("0"))
    if "." not in number:
        if number == "0":
            digits -= 1
        number += "."
    return number + "0" * digits + tail
