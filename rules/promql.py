"""PromQL as far as rules need it: series selectors, matchers, and whether a query parses.

Queries are edited as text, because promql-parser does not print every expression as it was written.
It also refuses some valid PromQL, so a query that it refuses is a warning, never an error.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

import promql_parser

from rules import syntax
from rules.errors import PlanError, TooComplexError
from rules.quoting import quote
from rules.syntax import Expression, Matcher, VectorSelector

_CLASSIC_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_MAX_TOKENS = 2000
_MAX_TEXT = 64 << 10
_MAX_DEPTH = 128
"""Levels that the parser gets: a query of a team may have 50, and twice as many if confined."""
_MAX_SHOWN = 64
"""Characters of a string that the parser gets as it is."""
_STAND_IN = "\ue000"
"""Begins the strings that stand for others: a character that no name outside quotes has."""
_OPERATORS = frozenset("+ - * / % ^ < > [ and or unless atan2".split())  # noqa: SIM905
"""Tokens that add a level to the expressions beside them: `[` ends that of a range vector."""
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
_DEFAULT = re.compile(r"\s*(?:on\s*\(\s*\)\s*)?vector\s*\(", re.IGNORECASE)
_SET_OPERATOR = re.compile(r"(and|or|unless)\b(\s*(on|ignoring)\s*\([^)]*\))?", re.IGNORECASE)
"""A binary operator below comparisons, and the labels by which it joins."""
_COMPARISON = re.compile(
    r"(?:[<>]=?|[=!]=)\s*[-+]?[\d.]++(?:e[-+]?\d+)?\b(?!\s*[-+*/%^])", re.IGNORECASE
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


def parse(query: str) -> Expression:
    """Parse a query into a syntax tree.

    Raises PlanError with the reason of promql-parser, and TooComplexError for what it could not
    parse in a few milliseconds and megabytes: it copies the subtree of each node, compiles regular
    expressions, and ends the process where expressions nest too deeply.
    """
    tokens, count = [], 0
    for each in _tokens(query):
        if each[0] != "space":
            if each[0] == "comment":
                continue
            count += 1
            if count > _MAX_TOKENS:  # the rest of a long text is not read
                raise TooComplexError(f"it has more than {_MAX_TOKENS} tokens, too many to check")
        tokens.append(each)
    # Each level takes a token.
    if count > _MAX_DEPTH and (depth := _most_levels(tokens)) > _MAX_DEPTH:
        raise TooComplexError(
            f"it nests {depth} operators, functions and parentheses, more than {_MAX_DEPTH}"
        )
    hidden = _HiddenStrings()
    text = "".join(hidden.shown(tokens))
    if len(text) > _MAX_TEXT:
        raise TooComplexError(f"it has more than {_MAX_TEXT} characters beside its strings")
    try:
        return syntax.convert(promql_parser.parse(text), hidden.values)
    except (ValueError, OverflowError) as error:
        raise PlanError(str(error)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of Rust, which is no Exception
            raise
        raise PlanError(f"promql-parser fails: {error}") from error


def tree(query: str) -> Expression | None:
    """Return the syntax tree of a query; None if it cannot be parsed."""
    try:
        return parse(query)
    except PlanError:
        return None


def selector(text: str) -> tuple[Matcher, ...]:
    """Return the matchers of an instant vector selector, the metric name first.

    It has none if `or` joins alternatives (VictoriaMetrics). Raises PlanError for any other
    expression, and for syntax that promql-parser does not know.
    """
    try:
        parsed = parse(in_expression(text))
    except PlanError as error:
        raise PlanError(f"{text!r} is not a series selector: {error}") from error
    if not isinstance(parsed, VectorSelector) or parsed.offset or parsed.at:
        raise PlanError(
            f"{text!r} is another expression, not a series selector: "
            'write a name, matchers in braces, or both (up{job="x"})'
        )
    name = [Matcher(label="__name__", operator="=", value=parsed.name)] if parsed.name else []
    return (*name, *parsed.matchers)


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


def without_default(query: str) -> str | None:
    """Return the last expression to which `or vector(...)` gives a result; None without one."""
    found = None
    for begin, text, starts in _operands(query):
        if text.lower() == "or" and _DEFAULT.match(query, begin + len(text)):
            found = query[starts[-1] : begin].strip()
    return found


def comparison(query: str) -> tuple[str, str] | None:
    """Return what a query compares with a number, and its only such comparison: `x`, `> 5`.

    None for a query with none, or with several.
    """
    found = []
    for begin, _, starts in _operands(query):
        if match := _SET_OPERATOR.match(query, begin):
            starts[-1] = match.end()
        elif match := _COMPARISON.match(query, begin):
            found.append((query[starts[-1] : begin].strip(), match[0].strip()))
    return found[0] if len(found) == 1 else None


def _operands(query: str) -> Iterator[tuple[int, str, list[int]]]:
    """Yield position and text of each token outside braces, and where the operands around it begin.

    The innermost operand is last; it begins at a parenthesis or comma, unless the caller moves it.
    """
    starts, end, in_braces = [0], 0, False
    for kind, text in _tokens(query):
        begin, end = end, end + len(text)
        if kind == "brace":
            in_braces = text == "{"
        elif in_braces or kind != "other":
            continue
        elif text == "(":
            starts.append(end)
        elif text == ")" and len(starts) > 1:
            starts.pop()
        elif text == ",":
            starts[-1] = end
        else:
            yield begin, text, starts


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
        yield match.lastgroup or "", match[0]  # every alternative is a group


class _Level:
    """What is known of the operands between two parentheses, while they are read."""

    def __init__(self) -> None:
        self.operators = 0
        """Number since the last comma: in a chain, all are around the first operand."""
        self.inner = 1
        """Levels of the deepest operand."""
        self.deepest = 0
        """Levels of the arguments before the last comma."""

    def levels(self) -> int:
        return max(self.deepest, self.operators + self.inner)


def _most_levels(tokens: _Tokens) -> int:
    """Return a number that the depth of the syntax tree does not exceed."""
    opened, in_braces, last = [_Level()], False, ""
    for kind, each in tokens:
        level = opened[-1]
        if kind == "brace":
            in_braces = each == "{"
        elif in_braces or kind != "other":
            pass
        elif each == "(":
            opened.append(_Level())
        elif each == ")" and len(opened) > 1:
            opened.pop()
            opened[-1].inner = max(opened[-1].inner, level.levels() + 1)
        elif each == ",":
            level.deepest, level.operators, level.inner = level.levels(), 0, 1
        else:
            # The second character of ==, <= and >= does not count as an operator.
            equals = each == "=" and last not in {"=", "<", ">"}
            level.operators += equals or each.lower() in _OPERATORS
        last = each
    while len(opened) > 1:
        inner = opened.pop().levels() + 1
        opened[-1].inner = max(opened[-1].inner, inner)
    return opened[0].levels()


class _HiddenStrings:
    """Strings that the parser does not get, because it would copy or compile them."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        """What stands for a string -> the string."""

    def shown(self, tokens: _Tokens) -> Iterator[str]:
        """Yield the text of the tokens, with stand-ins. Raises PlanError."""
        for kind, token in tokens:
            if kind == "raw":
                # promql-parser reads escapes in raw strings, which have none.
                token = quote(token[1:-1])  # noqa: PLW2901 (its value stays)
            if kind in {"raw", "string"} and _is_hidden(token):
                yield self._stand_in(token)
            else:
                yield " " if kind == "space" else token

    def _stand_in(self, token: str) -> str:
        try:
            parsed = promql_parser.parse(token)
        except ValueError as error:
            raise PlanError(str(error)) from error
        assert isinstance(parsed, promql_parser.StringLiteral)
        name = f"{_STAND_IN}{len(self.values)}"
        self.values[name] = parsed.val
        return f'"{name}"'


def _is_hidden(token: str) -> bool:
    long = len(token) > _MAX_SHOWN or "\\" in token or "{" in token or _STAND_IN in token
    return long and len(token) > 1 and token[0] == token[-1]


def label(name: str) -> str:
    """Return a label name as PromQL source: quoted unless it is a classic name."""
    return name if _CLASSIC_LABEL.fullmatch(name) else quote(name)


def of_names(names: Iterable[str]) -> str:
    """Return the selector of all series with these names, which may be patterns."""
    return f"{{{matcher('__name__', '=~', '|'.join(names))}}}"


def matcher(name: str, operator: str, value: str) -> str:
    """Return one matcher as PromQL source: `pod="x"`."""
    return f"{label(name)}{operator}{quote(value)}"
