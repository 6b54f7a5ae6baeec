"""PromQL as far as rules need it: series selectors, matchers, and whether a query parses.

Queries are edited as text, because promql-parser does not print every expression as it was written.
It also refuses some valid PromQL, so a query that it refuses is a warning, never an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import promql_parser

from rules.errors import PlanError
from rules.quoting import quote

_CLASSIC_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_MAX_TOKENS = 2000
# An unclosed string or bracket ends with the text. If it did not match, its end would be searched
# for again at each of the quotes in it, which takes a minute for 40 kB.
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*(?:"|\\?\Z) | '(?:\\.|[^'\\])*(?:'|\\?\Z))
      | (?P<raw>`[^`]*`)
      | (?P<comment>\#[^\n]*)
      | (?P<brace>[{}])
      | (?P<space>\s+)
      | (?P<other>\w+|.)""",
    re.DOTALL | re.VERBOSE,
)
_KEYWORD = re.compile(
    r"""(?: "(?:\\.|[^"\\])*(?:"|\\?\Z) | '(?:\\.|[^'\\])*(?:'|\\?\Z) | `[^`]*` | \#[^\n]*
        | \{[^{}]*\} | \[[^\]]*(?:\]|\Z)
        | \b(?:by|without|on|ignoring|group_left|group_right|bool)\b(?:\s*\([^()]*\))?
        | \boffset\s*- | @\s*\w+
      ) | (?P<keyword> \b(?:and|or|unless|atan2)\b | [a-z_]\w*(?=\s*(?:\(|\bby\b|\bwithout\b))
        | [=!<>]=|[-+*/%^<>] ) | [\w.:]+""",
    re.DOTALL | re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One label matcher; the metric name is the label `__name__`."""

    label: str
    operator: str
    """`=`, `!=`, `=~` or `!~`."""
    value: str


def parse(query: str) -> promql_parser.Expr:
    """Parse a query into a syntax tree, for inspection only.

    Raises PlanError with the reason of promql-parser, and for more than 2000 tokens: its time is
    quadratic in them, and deep nesting crashes the process.
    """
    tokens, count = [], 0
    for kind, token in _tokens(query):
        tokens.append((kind, token))
        count += kind not in {"comment", "space"}
        if count > _MAX_TOKENS:  # the rest of a long text is not read
            raise PlanError(f"it has more than {_MAX_TOKENS} tokens, too many to check")
    # promql-parser reads escapes in raw strings, which have none.
    text = "".join(quote(token[1:-1]) if kind == "raw" else token for kind, token in tokens)
    try:
        return promql_parser.parse(text)
    except ValueError as error:
        raise PlanError(str(error)) from error


def selector(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of an instant vector selector, the metric name first.

    It has none if `or` joins alternatives (VictoriaMetrics). Raises PlanError for any other
    expression, and for syntax that promql-parser does not know.
    """
    try:
        parsed = parse(in_expression(text))
    except PlanError as error:
        raise PlanError(f"{text!r} is not a series selector: {error}") from error
    if not isinstance(parsed, promql_parser.VectorSelector) or parsed.offset or parsed.at:
        raise PlanError(
            f"{text!r} is another expression, not a series selector: "
            'write a name, matchers in braces, or both (up{job="x"})'
        )
    name = [Matcher(label="__name__", operator="=", value=parsed.name)] if parsed.name else []
    others = (
        Matcher(label=each.name, operator=OPERATORS[str(each.op)], value=each.value)
        for each in parsed.matchers.matchers
    )
    return (*name, *others)


def pinned_name(matchers: Iterable[Matcher]) -> str | None:
    """Return the one metric name that matchers require by equality; None without one."""
    names = {each.value for each in matchers if (each.label, each.operator) == ("__name__", "=")}
    return names.pop() if len(names) == 1 else None


def one_line(query: str) -> str:
    """Return a query without comments and line breaks; strings stay as they are."""
    parts: list[str] = []
    for kind, token in _tokens(query):
        if kind not in {"comment", "space"}:
            parts.append(token)
        elif parts and parts[-1] != " ":
            parts.append(" ")
    return "".join(parts).strip()


def bare_name(text: str) -> str | None:
    """Return the metric name if a selector consists of nothing else, else None."""
    name = text.strip()
    return name if _CLASSIC_NAME.fullmatch(name) else None


def without_comments(query: str) -> str:
    """Return a query without its comments."""
    return "".join(token for _, token in _without_comments(query))


def keyword_offset(query: str, keywords: Sequence[str], index: int) -> int | None:
    """Return the offset of `keywords[index]`, one of the first keywords of a query.

    Keywords are the operators, functions and aggregations in the order of the text. Returns None
    if the query begins with other ones.
    """
    found = [match for match in _KEYWORD.finditer(query) if match["keyword"]][: len(keywords)]
    if [match["keyword"].lower() for match in found] != list(keywords):
        return None
    return found[index].start()


def in_expression(text: str) -> str:
    """Return a series selector in a form that can be embedded in an expression.

    Comments are dropped, because they would swallow what follows. The name moves into braces that
    also match `__name__`: Prometheus takes `up{__name__!~"x"}` as `match[]` but not in a query.
    Text of another form keeps it, so that Prometheus reports what is wrong.
    """
    code = _without_comments(text)
    parts = _split(code)
    return _join(*parts) if parts else "".join(token for _, token in code).strip()


def with_matchers(text: str, matchers: Sequence[str]) -> str:
    """Return the series selector `text`, as in_expression() has it, with matchers (`a="b"`) added.

    Raises PlanError if `text` is not a name, matchers in one pair of braces, or both.
    """
    code = _without_comments(text)
    parts = _split(code)
    if parts is None or _has_alternatives(code):
        raise PlanError(
            f"cannot add matchers to {text!r}: "
            'write a name, matchers in braces, or both (up{job="x"})'
        )
    name, present = parts
    return _join(name, ",".join([*([present] if present else []), *matchers]))


_Tokens = Sequence[tuple[str, str]]
"""Kind and text of each token."""


def _without_comments(text: str) -> _Tokens:
    return [(kind, token) for kind, token in _tokens(text) if kind != "comment"]


def _split(code: _Tokens) -> tuple[str, str] | None:
    """Return the name before the braces and the matchers in them; None for another form."""
    braces = [index for index, (kind, _) in enumerate(code) if kind == "brace"]
    if "".join(code[index][1] for index in braces) not in {"", "{}"}:
        return None
    first, last = braces or (len(code), len(code))
    name, inside, rest = (
        "".join(token for _, token in part).strip()
        for part in (code[:first], code[first + 1 : last], code[last + 1 :])
    )
    if rest or not (_CLASSIC_NAME.fullmatch(name) if name else braces):
        return None
    return name, inside.removesuffix(",").rstrip()


def _join(name: str, matchers: str) -> str:
    if name and any(token.strip("\"'`") == "__name__" for _, token in _tokens(matchers)):
        name, matchers = "", f"{matcher('__name__', '=', name)},{matchers}"
    return f"{name}{{{matchers}}}" if matchers or not name else name


def _has_alternatives(code: _Tokens) -> bool:
    """Return whether `or` joins matchers, which VictoriaMetrics allows."""
    visible = [each for each in code if each[0] != "space"]
    return any(
        kind in {"string", "raw"} and following == ("other", "or")
        for (kind, _), following in itertools.pairwise(visible)
    )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        assert match.lastgroup is not None  # every alternative is a group
        yield match.lastgroup, match[0]


def label(name: str) -> str:
    """Return a label name as PromQL source: quoted unless it is a classic name."""
    return name if _CLASSIC_LABEL.fullmatch(name) else quote(name)


def matcher(name: str, operator: str, value: str) -> str:
    """Return one matcher as PromQL source: `pod="x"`."""
    return f"{label(name)}{operator}{quote(value)}"


def problem_of(query: str) -> str | None:
    """Return why promql-parser refuses `query`; None if it does not."""
    try:
        parse(query)
    except PlanError as error:
        return str(error)
    return None
