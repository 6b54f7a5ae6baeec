"""Regular expressions and expansions with the syntax and results of Go's `regexp` package.

The engine is RE2, the model for Go's. Syntax that RE2 accepts and Go refuses is refused here too,
so that a rules file that works here also works in the original. Patterns are not anchored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import re2

from rules.errors import PatternError
from rules.quoting import shorten

_MAX_MEMORY = 64 << 20
"""Bytes of one pattern. Go allows 3.4 million instructions. RE2 needs more, because it matches
bytes: `\\pL` takes 1200. Its default of 8 MiB allows 0.35 million, and 64 MiB allow almost 3."""
_MIN_MEMORY = 1 << 10
"""Enough for the patterns of most rules."""
_BYTES_OF_INSTRUCTION = 32
"""Of the memory that RE2 must have to compile a pattern."""
_STEP = 1 << 20
_MAX_CACHED = 64 << 10
"""Bytes of the largest pattern that stays in the cache of re2, which keeps 128."""

# Walks over a pattern that RE2 accepted, past text that only looks like a group.
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
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")  # Go takes longer ones for names
_ERRORS = "surrogatepass"
_MAX_SHOWN = 200
"""Characters of a pattern that a message repeats."""
_MAX_DEPTH = 1000
"""As in Go; RE2 needs gigabytes for deeper nesting."""


Match = tuple[str | None, ...]
"""The whole match, then each capturing group; None for a group that did not participate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled regular expression."""

    text: str
    names: tuple[str, ...]
    """Names of the capturing groups, in order; "" for an unnamed group."""
    regexp: Any = field(repr=False, compare=False)
    """The compiled RE2."""
    memory: int = field(default=0, compare=False)
    """Bytes that count in the `PatternBudget`."""

    def search(self, text: str) -> Match | None:
        """Return the leftmost match in `text`, as Go's `FindStringSubmatch` does."""
        data = text.encode(errors=_ERRORS)
        found = self.regexp.search(data)
        # RE2 works on bytes, so \B can match inside a character; in Go it cannot.
        while found and found.start() < len(data) and data[found.start()] & 0xC0 == 0x80:
            found = self.regexp.search(data, found.start() + 1)
        if not found:
            return None
        groups = (found.group(), *found.groups())
        return tuple(g if g is None else g.decode(errors=_ERRORS) for g in groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """A text with references to the groups of one pattern."""

    parts: tuple[str | tuple[int, ...], ...]
    """Literal text, and references as group numbers: several where groups share a name."""

    def of(self, match: Match, limit: int) -> str | None:
        """Expand the references; of several groups the first non-empty one counts.

        Returns None for a text of more than `limit` characters.
        """
        return "".join(self._texts(match)) if self.size(match) <= limit else None

    def size(self, match: Match) -> int:
        """Return the number of characters of the expanded text."""
        return sum(map(len, self._texts(match)))

    def _texts(self, match: Match) -> Iterator[str]:
        for part in self.parts:
            if isinstance(part, str):
                yield part
            else:
                yield next((group for number in part if (group := match[number])), "")


class PatternBudget:
    """Memory that several patterns may take together, in bytes; by default that of one pattern.

    With `minimal`, no pattern gets more than its program needs, so that matching allocates nothing
    beyond the budget. Without it, RE2 may use the rest to remember states, which is faster.
    `beyond` is what messages say about a pattern that exceeds the budget.
    """

    def __init__(
        self, memory: int = _MAX_MEMORY, *, minimal: bool = False, beyond: str = ""
    ) -> None:
        self._left = memory
        self._minimal = minimal
        self._beyond = beyond or f"it may take {memory} bytes"

    def regexp(self, text: str) -> tuple[Any, int]:
        """Return the compiled RE2 and the bytes that it takes. Raises PatternError."""
        # Each character takes more than 8 bytes; RE2 takes 0 bytes for no limit.
        fits = self._left >= max(_MIN_MEMORY, 8 * len(text))
        if (
            not fits
            or (found := self._smallest(text) if self._minimal else self._fast(text)) is None
        ):
            # What would come close to the budget again takes a second.
            self._left = min(self._left, _MAX_CACHED)
            raise _error(text, f"pattern too large: {self._beyond}")
        _, memory = found
        if memory > _MAX_CACHED:
            re2.purge()
        self._left -= memory
        return found

    def _smallest(self, text: str) -> tuple[Any, int] | None:
        memory = _MIN_MEMORY
        while (regexp := self.compiled(text, memory)) is None:
            if memory == self._left:
                return None
            memory = min(2 * memory, self._left)
        return regexp, memory

    def _fast(self, text: str) -> tuple[Any, int] | None:
        # Rounded, so that the cache of re2 finds equal patterns.
        regexp = self.compiled(text, self._left // _STEP * _STEP or self._left)
        return regexp and (regexp, _BYTES_OF_INSTRUCTION * regexp.programsize)

    @staticmethod
    def compiled(text: str, memory: int) -> Any:
        """Return the compiled RE2; None if that takes more memory."""
        options = re2.Options()
        options.log_errors = False  # PatternError reports them
        options.max_mem = memory
        try:
            return re2.compile(text, options)
        except re2.error as error:
            (reason,) = error.args
            if b"too large" in reason:
                return None
            raise _error(text, reason.decode(errors="replace")) from error


def check(text: str) -> None:
    """Raise PatternError for what RE2 refuses, except for its size."""
    PatternBudget.compiled(text, _MAX_CACHED)


def compile(  # noqa: A001 (patterns.compile, as re.compile)
    text: str, budget: PatternBudget | None = None
) -> Pattern:
    r"""Compile a regular expression of Go's syntax (https://github.com/google/re2/wiki/Syntax).

    Raises PatternError for what RE2 refuses; for `\C` and non-ASCII group names, which Go refuses;
    and for more than the budget, by default 64 MiB, which Go may accept.
    """
    if _depth(text) > _MAX_DEPTH:
        raise _error(text, "expression nests too deeply")
    regexp, memory = (budget or PatternBudget()).regexp(text)
    names: list[str] = []
    for token in _TOKEN.finditer(text):
        name = token["name"]
        if token["escaped"] == "C":
            raise _error(text, r"invalid escape sequence: \C")
        if name and not name.isascii():
            raise _error(text, f"invalid named capture group: (?P<{name}>")
        if name or token["unnamed"]:
            names.append(name or "")
    return Pattern(text=text, names=tuple(names), regexp=regexp, memory=memory)


def expansion(text: str, pattern: Pattern) -> Expansion:
    """Parse a replacement text for matches of `pattern`, by the rules of Go's `Regexp.Expand`.

    `$name` takes the longest run of letters, digits and `_`; `${name}` is exact; `$$` is `$`; any
    other `$` is literal; a group that does not exist is empty.
    https://pkg.go.dev/regexp#Regexp.Expand
    """
    parts: list[str | tuple[int, ...]] = []
    end = 0
    for reference in _REFERENCE.finditer(text):
        parts.append(text[end : reference.start()])
        end = reference.end()
        dollar, name, exact = reference.groups()
        parts.append(dollar or _groups(name or exact, pattern))
    parts.append(text[end:])
    return Expansion(parts=tuple(filter(None, parts)))


def _groups(reference: str, pattern: Pattern) -> tuple[int, ...]:
    """Return the numbers of the groups that `reference` names; none if no group has the name."""
    if _NUMBER.fullmatch(reference):
        return (int(reference),) if int(reference) <= len(pattern.names) else ()
    return tuple(number for number, name in enumerate(pattern.names, 1) if name == reference)


def _depth(text: str) -> int:
    """Return the nesting depth of parentheses; escaped ones and those in classes count too."""
    deepest = depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        deepest = max(deepest, depth)
    return deepest


def _error(text: str, reason: str) -> PatternError:
    return PatternError(
        f"cannot compile the regular expression {shorten(text, _MAX_SHOWN)!r}: {reason}"
    )
