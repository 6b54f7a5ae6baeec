"""Regular expressions and their expansions, exactly as Go's `regexp` package has them.

The engine is RE2, after which Go's was made. What RE2 takes and Go refuses is refused here too, so
that a file which works here works in the original. A pattern searches, unless it anchors itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import re2

from rules.errors import PatternError

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False  # what is wrong is told once, by PatternError

# Walks over a pattern that RE2 has taken, past what only looks like a group.
_TOKEN = re.compile(
    r"""
    \\Q .*? (?: \\E | \Z )
    | \\ (?P<escaped> . )
    | \[ \^? \]? (?: \[: \^? \w+ :\] | \\ . | [^\]\\] )* \]
    | \( \? P? < (?P<name> [^>]* ) >
    | (?P<unnamed> \( (?! \? ) )
    """,
    re.DOTALL | re.VERBOSE,
)
_REFERENCE = re2.compile(r"\$(?:(\$)|([\pL\p{Nd}_]+)|\{([\pL\p{Nd}_]+)\})")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")  # longer ones are names to Go
_UTF8 = "surrogatepass"
_DEEPEST = 1000
"""As in Go; RE2 would take gigabytes for what nests much deeper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Where a pattern matched."""

    groups: tuple[str | None, ...]
    """The whole match, then each capturing group; None for one that took no part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled regular expression."""

    text: str
    names: tuple[str, ...]
    """The names of its capturing groups, in order; "" for one without a name."""
    regexp: Any = field(repr=False, compare=False)
    """The compiled RE2."""

    def search(self, text: str) -> Match | None:
        """The leftmost match in `text`, as Go's `FindStringSubmatch` finds it."""
        data = text.encode(errors=_UTF8)
        found = self.regexp.search(data)
        # RE2 sees bytes, so \B can hold inside a character; in Go it cannot.
        while found and found.start() < len(data) and data[found.start()] & 0xC0 == 0x80:
            found = self.regexp.search(data, found.start() + 1)
        if not found:
            return None
        groups = (found.group(), *found.groups())
        return Match(groups=tuple(g if g is None else g.decode(errors=_UTF8) for g in groups))


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A text with references to the groups of one pattern."""

    parts: tuple[str | tuple[int, ...], ...]
    """Literal text, and the groups between: of several with one name, the first that matched."""

    def of(self, match: Match) -> str:
        """The text with each group's part of `match` in its place; empty where it has none."""
        return "".join(
            part
            if isinstance(part, str)
            else next((found for number in part if (found := match.groups[number])), "")
            for part in self.parts
        )


def compile(text: str) -> Pattern:  # noqa: A001 (patterns.compile reads as re.compile does)
    r"""Compile a regular expression of Go's syntax (https://github.com/google/re2/wiki/Syntax).

    Raises PatternError for what RE2 or Go refuses: `\C` and group names beyond ASCII are Go's.
    """
    if _depth(text) > _DEEPEST:
        raise _refusal(text, "expression nests too deeply")
    try:
        regexp = re2.compile(text, _OPTIONS)
    except UnicodeEncodeError as error:
        raise _refusal(text, "it is not valid Unicode") from error
    except re2.error as error:
        (reason,) = error.args
        raise _refusal(text, reason.decode(errors="replace")) from error
    names: list[str] = []
    for token in _TOKEN.finditer(text):
        name = token["name"]
        if token["escaped"] == "C":
            raise _refusal(text, r"invalid escape sequence: \C")
        if name and not name.isascii():
            raise _refusal(text, f"invalid named capture group: (?P<{name}>")
        if name or token["unnamed"]:
            names.append(name or "")
    return Pattern(text=text, names=tuple(names), regexp=regexp)


def expansion(text: str, pattern: Pattern) -> Expansion:
    """Prepare `text` for matches of `pattern`, under the rules of Go's `Regexp.Expand`.

    `$name` takes the longest run of letters, digits and `_`; `${name}` is exact; `$$` is `$`; a `$`
    that begins none of these stands for itself; a group that does not exist is empty.
    https://pkg.go.dev/regexp#Regexp.Expand
    """
    try:
        references = tuple(_REFERENCE.finditer(text))
    except UnicodeEncodeError as error:
        raise PatternError(f"cannot expand {text!r}: it is not valid Unicode") from error
    parts: list[str | tuple[int, ...]] = []
    end = 0
    for reference in references:
        parts.append(text[end : reference.start()])
        end = reference.end()
        dollar, name, exact = reference.groups()
        parts.append(dollar or _groups(name or exact, pattern))
    parts.append(text[end:])
    return Expansion(parts=tuple(filter(None, parts)))


def _groups(name: str, pattern: Pattern) -> tuple[int, ...]:
    """The numbers of the groups that a reference means; none where it means no group."""
    if _NUMBER.fullmatch(name):
        return (int(name),) if int(name) <= len(pattern.names) else ()
    return tuple(number for number, known in enumerate(pattern.names, 1) if known == name)


def _depth(text: str) -> int:
    """How deep parentheses nest, at most: those in classes and escaped ones count as well."""
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _refusal(text: str, reason: str) -> PatternError:
    return PatternError(f"cannot compile the regular expression {text!r}: {reason}")
