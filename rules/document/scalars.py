"""YAML scalars as gopkg.in/yaml.v2 reads them, and where each of their characters stands.

What a plain `yes`, `0x1F` or `~` is, and what becomes of it where text or a boolean is wanted,
follows resolve.go and decode.go of yaml.v2 2.4 (YAML 1.1 with its own exceptions).
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import date

import yaml

from rules.errors import RulesError


class ScalarError(RulesError):
    """A scalar that is not what its tag, or its place, asks for."""


_TRUE = frozenset(["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
_FALSE = frozenset(["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
_NULL = frozenset(["", "~", "null", "Null", "NULL"])
_NOT_FINITE = frozenset(
    sign + word for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")
) | {".nan", ".NaN", ".NAN"}
_INT = re.compile(
    r"[-+]?(?:0|[1-9][0-9]*|0[0-7]+|0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+)", re.ASCII
)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d?-\d\d?)"
    r"(?:[Tt]\d\d?:\d\d?:\d\d?(?:[.,]\d+)?(?:Z|[-+]\d\d:\d\d)| \d\d?:\d\d?:\d\d?(?:[.,]\d+)?)?",
    re.ASCII,
)
_CORE = "tag:yaml.org,2002:"
_RESOLVED = frozenset(_CORE + name for name in ("str", "bool", "int", "float", "null", "timestamp"))
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)*")
_TOKENS = {
    "'": re.compile(r"''|.", re.DOTALL),
    '"': re.compile(r"\\(?:x..|u.{4}|U.{8}|\r\n|.)|.", re.DOTALL),
}
_CHARACTER = re.compile(r".", re.DOTALL)
_BLANK_ESCAPES = frozenset(["\\n", "\\t", "\\r", "\\ ", "\\_", "\\N", "\\L", "\\P", "\\\t"])
_BLANK_ESCAPES |= {"\\\n", "\\\r\n", "\\v", "\\f"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scalar:
    """A scalar as written; `text()` and `flag()` are what Go makes of it."""

    value: str
    tag: str | None
    plain: bool
    """Without quotes and without a tag, or with the tag `!`."""
    style: str
    """`'`, `"`, `|`, `>`, or empty."""
    raw: str
    """The source, from its first character after anchor and tag."""
    line: int
    column: int

    @classmethod
    def of(cls, event: yaml.ScalarEvent, text: str) -> Scalar:
        start, end = event.start_mark, event.end_mark
        assert start is not None  # libyaml marks every event
        assert end is not None
        source = text[start.index : end.index]
        prefix = _PROPERTIES.match(source)
        skipped = prefix[0] if prefix else ""
        line, column = _after(skipped, start.line + 1, start.column + 1)
        return cls(
            value=event.value,
            tag=event.tag,
            plain=event.implicit[0],
            style=event.style or "",
            raw=source[len(skipped) :],
            line=line,
            column=column,
        )

    @property
    def is_merge(self) -> bool:
        return self.value == "<<" and (self.plain or self.tag == _CORE + "merge")

    @property
    def is_absent(self) -> bool:
        """Leaves a Go pointer nil. `Null` and `NULL` are null, too, and do not (decode.go)."""
        if self.tag is not None:
            return self.tag == _CORE + "null" and self.value in _NULL
        return self.value in {"null", "~"} or (self.value == "" and self.plain)

    @property
    def is_null(self) -> bool:
        return self.is_absent or self.kind() == "null"

    def kind(self) -> str:
        """What the scalar is: str, bool, int, float, null, timestamp, or a tag of its own.

        ScalarError where the text is not what its tag says.
        """
        if self.tag is None:
            return _guess(self.value) if self.plain else "str"
        if self.tag not in _RESOLVED:
            return self.tag.removeprefix(_CORE)
        wanted = self.tag.removeprefix(_CORE)
        found = "str" if wanted == "str" else _guess(self.value)
        if found != wanted and (found, wanted) != ("int", "float"):
            raise ScalarError(f"{self.value!r} is no {wanted}, as its tag says")
        return wanted

    def text(self) -> str:
        """The scalar where text is wanted: as it is written, whatever it would be elsewhere."""
        kind = self.kind()
        if kind == "null":
            return ""
        if kind != "binary":
            return self.value
        try:
            packed = self.value.replace("\n", "").replace("\r", "")
            return base64.b64decode(packed, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise ScalarError("!!binary does not hold text in base64") from error

    def flag(self) -> bool:
        """The scalar where a boolean is wanted; null is false, as for a Go bool."""
        kind = self.kind()
        if kind not in {"bool", "null"}:
            quoted = "quoted text" if not self.plain else "no boolean"
            raise ScalarError(f"must be true or false, and {self.value!r} is {quoted}")
        return self.value in _TRUE

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column in the file of the character at `offset` of the value.

        White space may be folded, so what is found is the nearest character that is not blank.
        """
        before = sum(not character.isspace() for character in self.value[:offset])
        begin = self.raw.find("\n") + 1 if self.style in {"|", ">"} else len(self.style)
        for token in _TOKENS.get(self.style, _CHARACTER).finditer(self.raw, begin):
            if _is_blank(token[0]):
                continue
            if before == 0:
                return _after(self.raw[: token.start()], self.line, self.column)
            before -= 1
        return _after(self.raw.rstrip(), self.line, self.column)


def _is_blank(token: str) -> bool:
    """Whether one character of the source, or one escape, stands for white space or nothing."""
    if token[:2] in {"\\x", "\\u", "\\U"}:
        return chr(int(f"0x{token[2:]}", 0)).isspace()
    return token.isspace() or token in _BLANK_ESCAPES


def _after(text: str, line: int, column: int) -> tuple[int, int]:
    """The place behind `text`, which begins at `line` and `column`."""
    breaks = text.count("\n")
    if not breaks:
        return line, column + len(text)
    return line + breaks, len(text) - text.rfind("\n")


def _guess(value: str) -> str:
    """The tag of a plain scalar (resolve.go)."""
    if value in _NULL:
        return "null"
    if value in _TRUE or value in _FALSE:
        return "bool"
    if value in _NOT_FINITE:
        return "float"
    if _is_timestamp(value):
        return "timestamp"
    digits = value.replace("_", "") if value[:1] in "+-0123456789" else value
    if value[:1] in "+-0123456789" and _INT.fullmatch(digits) and _fits(digits):
        return "int"
    if _FLOAT.fullmatch(digits):
        return "float"
    return "str"


def _fits(digits: str) -> bool:
    """Whether Go's ParseInt or ParseUint takes it into 64 bits."""
    plain = digits.lstrip("+-")
    octal = len(plain) > 1 and plain[0] == "0" and plain[1].isdigit()
    number = int(plain, 8 if octal else 0)
    if digits.startswith("-"):
        return number <= 2**63
    return number < (2**63 if digits.startswith("+") else 2**64)


def _is_timestamp(value: str) -> bool:
    if not (match := _TIMESTAMP.fullmatch(value)):
        return False
    year, month, day = (int(part) for part in match[1].split("-"))
    try:
        date(year or 2000, month, day)
    except ValueError:
        return False
    return True
