"""`print`, `println` and `printf` (Go: fmt/print.go and fmt/format.go).

| verb | operand |
|---|---|
| `%v` | any value |
| `%s` `%q` `%x` | string |
| `%d` `%b` `%o` `%x` `%X` `%c` | int |
| `%f` `%F` `%e` `%E` `%g` | float |
| `%t` | bool |

Lists and maps print each element with the verb. A directive may have the flags `+`, `-`, `0` and
space, a width, a precision (not for ints) and an operand's number (`%[1]s`). What does not fit is
printed as in Go: `%!d(string=x)`.
https://pkg.go.dev/fmt#hdr-Printing
"""

from __future__ import annotations

import decimal
import re
import sys
from typing import NamedTuple

from rules import errors, quoting
from rules.template import values

MAX_TEXT = 1 << 20
"""Maximum length, in characters, of a rendered text and of a string that a function returns."""

# Widths and precisions have at most six digits, so that no text becomes too long.
_DIRECTIVE = re.compile(
    r"%(?P<flags>[-+ 0]*)(?P<width>[0-9]{0,6})(?:\.(?P<precision>[0-9]{0,6}))?"
    r"(?:\[(?P<index>[0-9]{1,6})\])?(?P<verb>.?)",
    re.DOTALL,
)


class _Directive(NamedTuple):
    verb: str
    flags: str = ""
    width: int = 0
    precision: int | None = None


_PLAIN = _Directive("v")


def sprint(*operands: object) -> str:
    """Print operands side by side, with a space between two that are not strings."""
    parts = list[str]()
    after_string = True
    for operand in operands:
        is_string = isinstance(operand, str)
        parts += ["" if is_string or after_string else " ", _text(operand)]
        after_string = is_string
    return "".join(parts)


def sprintln(*operands: object) -> str:
    """Print operands with a space between them and a newline behind."""
    return " ".join(map(_text, operands)) + "\n"


def sprintf(template: object, *operands: object) -> str:
    """Print operands as the directives of `template` say. Raises TemplateExecError."""
    if not isinstance(template, str):
        raise errors.TemplateExecError(f"format is not a string but {values.type_name(template)}")
    place, reordered, size = 0, False, 0

    def expand(match: re.Match[str]) -> str:
        nonlocal place, reordered, size
        verb = match["verb"]
        if match["index"]:
            place, reordered = int(match["index"]) - 1, True
        if verb in {"", "%"}:
            return verb or "%!(NOVERB)"
        if not 0 <= place < len(operands):
            return f"%!{verb}({'BADINDEX' if match['index'] else 'MISSING'})"
        place += 1
        precision = match["precision"]
        directive = _Directive(
            verb=verb,
            flags=match["flags"],
            width=int(match["width"] or 0),
            precision=None if precision is None else int(precision or 0),
        )
        operand = operands[place - 1]
        if size + _padding(operand, directive) > MAX_TEXT:
            raise errors.TemplateExecError(f"text grows beyond {MAX_TEXT} characters")
        text = _format(operand, directive)
        size += len(text)
        return text

    text = _DIRECTIVE.sub(expand, template)
    if place < len(operands) and not reordered:
        extra = (_typed(operand, _PLAIN) for operand in operands[place:])
        text += f"%!(EXTRA {', '.join(extra)})"
    return text


def _padding(value: object, directive: _Directive) -> int:
    """Return how many characters a width or precision may add; each element of a list has its."""
    match value:
        case list() | tuple():
            return sum(_padding(element, directive) for element in value)
        case dict():
            return 2 * len(value) * directive.width
        case values.Record():
            return sum(_padding(field, directive) for field in value.fields.values())
        case float():
            return max(directive.width, directive.precision or 0)
        case _:
            return directive.width


def _text(value: object) -> str:
    return _format(value, _PLAIN)


def _typed(value: object, directive: _Directive) -> str:
    """Return a value that does not fit with its type, as Go does."""
    if value is None:
        return "<nil>"
    return f"{values.type_name(value)}={_format(value, directive._replace(verb='v'))}"


def _format(value: object, directive: _Directive) -> str:
    match value:
        case list() | tuple():
            return f"[{' '.join(_format(element, directive) for element in value)}]"
        case dict():
            items = sorted(value.items())
            entries = (
                f"{_format(key, directive)}:{_format(each, directive)}" for key, each in items
            )
            return f"map[{' '.join(entries)}]"
        case values.Record():
            fields = value.fields.values()
            return f"{{{' '.join(_format(field, directive) for field in fields)}}}"
    text = _format_scalar(value, directive)
    return f"%!{directive.verb}({_typed(value, directive)})" if text is None else text


def _format_scalar(value: object, directive: _Directive) -> str | None:
    """Return the text of a value, or None where the verb does not fit."""
    verb = directive.verb
    match value:
        case None if verb == "v":
            return _pad("<nil>", directive)
        case bool():
            return _pad(str(value).lower(), directive) if verb in "tv" else None
        case int():
            return _format_int(value, directive)
        case float():
            return _format_float(value, directive)
        case str():
            return _format_string(value, directive)
    return None


def _format_string(value: str, directive: _Directive) -> str | None:
    value = value[: directive.precision]
    match directive.verb:
        case "s" | "v":
            return _pad(value, directive)
        case "q":
            return _pad(quoting.quote(value), directive)
        case "x":
            return _pad(value.encode().hex(), directive)
        case "X":
            return _pad(value.encode().hex().upper(), directive)
    return None


def _format_int(value: int, directive: _Directive) -> str | None:
    match directive.verb:
        case "v":
            return _number(value, "d", directive)
        case "d" | "b" | "o" | "x" | "X" as base if directive.precision is None:
            return _number(value, base, directive)
        case "c":
            return _pad(chr(value) if 0 <= value <= sys.maxunicode else "\ufffd", directive)
    return None


def _format_float(value: float, directive: _Directive) -> str | None:
    precision = directive.precision
    match directive.verb:
        case "f" | "F" | "e" | "E" as verb:
            return _number(value, f".{6 if precision is None else precision}{verb}", directive)
        case "g" | "v":
            shortest = precision is None
            return _number(value, _shortest(value) if shortest else f".{precision}g", directive)
    return None


def _pad(text: str, directive: _Directive) -> str:
    if "-" in directive.flags:
        return text.ljust(directive.width)
    return text.rjust(directive.width, "0" if "0" in directive.flags else " ")


def _number(value: float, kind: str, directive: _Directive) -> str:
    """Format a number; Python's format specification has the same flags as printf."""
    flags = directive.flags
    sign = "" if directive.verb == "v" else "+" if "+" in flags else " " if " " in flags else ""
    align, zero = ("<", "") if "-" in flags else ("", "0" if "0" in flags else "")
    return format(value, f"{align}{sign}{zero}{directive.width or ''}{kind}")


def _shortest(value: float) -> str:
    """Return the format that prints a float with the fewest digits that read back as it."""
    number = decimal.Decimal(repr(value)).normalize()
    exponent, fraction = number.adjusted(), len(number.as_tuple().digits) - 1
    if -4 <= exponent < 6:
        return f".{max(fraction - exponent, 0)}f"
    return f".{fraction}e"
