"""PromQL as far as the rules need it: series selectors, matchers, and whether a query parses.

`promql-parser` refuses some of what Prometheus takes, so its refusal is a reason to warn and never
one to fail. Queries are never printed from a parsed expression, only ever changed as text.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import promql_parser

from rules import quoting
from rules.errors import PlanError

_CLASSIC_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_CLASSIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_OPERATORS = {
    "MatchOp.Equal": "=",
    "MatchOp.NotEqual": "!=",
    "MatchOp.Re": "=~",
    "MatchOp.NotRe": "!~",
}
_TOKENS = 2000
_TOKEN = re.compile(
    r"""(?P<string>"(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' | `[^`]*`)
      | (?P<comment>\#[^\n]*)
      | (?P<brace>[{}])
      | (?P<other>\w+|.)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matcher:
    """One condition on one label; the metric's name is the label `__name__`."""

    label: str
    operator: str
    """`=`, `!=`, `=~` or `!~`."""
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorSelector:
    """A series selector, understood."""

    matchers: tuple[Matcher, ...]
    """All of which must hold, the metric's name first; none where `or` joins alternatives."""


def parse(query: str) -> promql_parser.Expr:
    """The syntax tree of a query, to look at and never to print.

    Raises PlanError with promql-parser's reason for refusing it; and for a query of thousands of
    tokens, since its time is quadratic in them and its recursion ends the process.
    """
    tokens = sum(1 for kind, token in _tokens(query) if kind == "string" or not token.isspace())
    if tokens > _TOKENS:
        raise PlanError(f"more than {_TOKENS} names and signs are not looked at")
    try:
        return promql_parser.parse(query)
    except ValueError as error:
        raise PlanError(str(error)) from error


def selector(text: str) -> VectorSelector:
    """The instant vector selector that `text` is.

    Raises PlanError if it is another expression, none, or one that promql-parser does not know.
    """
    try:
        parsed = parse(text)
    except PlanError as error:
        raise PlanError(f"{text!r} is no series selector: {error}") from error
    if not isinstance(parsed, promql_parser.VectorSelector) or parsed.offset or parsed.at:
        raise PlanError(
            f"{text!r} is no series selector but another expression: "
            'write a name, matchers in braces, or both (up{job="x"})'
        )
    name = [Matcher(label="__name__", operator="=", value=parsed.name)] if parsed.name else []
    return VectorSelector(
        matchers=(
            *name,
            *(
                Matcher(label=each.name, operator=_OPERATORS[str(each.op)], value=each.value)
                for each in parsed.matchers.matchers
            ),
        )
    )


def pinned_name(text: str) -> str | None:
    """The one metric name that a series selector asks for by equality; None if there is not one."""
    try:
        names = [each for each in selector(text).matchers if each.label == "__name__"]
    except PlanError:
        return None
    pinned = {each.value for each in names if each.operator == "="}
    return pinned.pop() if len(pinned) == 1 else None


def bare_name(text: str) -> str | None:
    """The metric name that a series selector is nothing but; None if it asks for more or less."""
    name = text.strip()
    return name if _CLASSIC_NAME.fullmatch(name) else None


def with_matchers(text: str, matchers: Sequence[str]) -> str:
    """The series selector `text` with more matchers, each already PromQL (`a="b"`).

    The change is textual: `foo`, `foo{}` and `{a="b",}` are all fit for it, comments are dropped.
    Raises PlanError for text with anything but one pair of braces at its end.
    """
    refusal = PlanError(f"{text!r} is no series selector that matchers can be added to")
    tokens = [(kind, token) for kind, token in _tokens(text) if kind != "comment"]
    braces = [index for index, (kind, _) in enumerate(tokens) if kind == "brace"]
    if not braces:
        if not any(token.strip() for _, token in tokens):
            raise refusal
        braces = [len(tokens), len(tokens) + 1]
        tokens += [("brace", "{"), ("brace", "}")]
    if "".join(tokens[index][1] for index in braces) != "{}" or _is_choice(tokens):
        raise refusal
    before, inside, after = (
        "".join(token for _, token in part).strip()
        for part in (
            tokens[: braces[0]],
            tokens[braces[0] + 1 : braces[1]],
            tokens[braces[1] + 1 :],
        )
    )
    if after or len(before.split()) > 1:
        raise refusal
    present = inside.removesuffix(",").rstrip()
    return f"{before}{{{','.join([*([present] if present else []), *matchers])}}}"


def _is_choice(tokens: Sequence[tuple[str, str]]) -> bool:
    """Whether `or` joins matchers, as some backends have it."""
    visible = [each for each in tokens if not each[1].isspace()]
    return any(
        kind == "string" and following == ("other", "or")
        for (kind, _), following in itertools.pairwise(visible)
    )


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(text):
        assert match.lastgroup is not None  # every alternative is a group
        yield match.lastgroup, match[0]


def quote(text: str) -> str:
    """A string of PromQL that means `text`, escaped as Go's `%q` does (strconv.Quote)."""
    return quoting.quote(text)


def label(name: str) -> str:
    """A label's name as PromQL takes it: names that are not classic ones are quoted."""
    return name if _CLASSIC_LABEL.fullmatch(name) else quote(name)


def matcher(name: str, operator: str, value: str) -> str:
    """One matcher, `pod="x"`."""
    return f"{label(name)}{operator}{quote(value)}"


def problem_of(query: str) -> str | None:
    """Why promql-parser refuses `query`; None if it does not."""
    try:
        parse(query)
    except PlanError as error:
        return str(error)
    return None


def is_text(query: str) -> bool:
    """Whether `query` can be sent: a template can cut a character in two (`slice`)."""
    try:
        query.encode()
    except UnicodeEncodeError:
        return False
    return True
