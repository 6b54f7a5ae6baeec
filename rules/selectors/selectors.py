"""Label selectors, parsed and matched as in Kubernetes.

`parse` accepts and refuses what labels.Parse of k8s.io/apimachinery 0.36 does. Its messages reach
clients, so they are the same word for word.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rules.errors import SelectorError
from rules.names import key_problem, value_problem
from rules.quoting import quote, quote_shortened

Operator = Literal["=", "==", "!=", "in", "notin", "exists", "!", "gt", "lt"]

_WRITTEN: Mapping[str, str] = {"in": " in ", "notin": " notin ", "gt": ">", "lt": "<"}
_SAME: Mapping[tuple[str, int], str] = {("==", 1): "=", ("in", 1): "=", ("notin", 1): "!="}
"""Operator and number of values -> an operator with the same meaning."""
_INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted and unique: none for `exists` and `!`, several only for `in` and `notin`."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels meets the requirement.

        As in Kubernetes, an object without the label meets `!=` and `notin`.
        """
        value = labels.get(self.key)
        match self.operator:
            case "=" | "==" | "in":
                return value in self.values
            case "!=" | "notin":
                return value not in self.values
            case "exists":
                return value is not None
            case "!":
                return value is None
        number, bound = _int64(value or ""), _int64(self.values[0])
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "gt" else number < bound

    def __str__(self) -> str:
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key}{_WRITTEN[self.operator]}({','.join(self.values)})"
        return f"{self.key}{_WRITTEN.get(self.operator, self.operator)}{self.values[0]}"


@dataclass(frozen=True, kw_only=True)
class Selector:
    """A label selector; `str()` gives the canonical form, which parses to an equal selector."""

    requirements: tuple[Requirement, ...] = ()
    """Sorted by key, then in the order in which they were written. All must hold."""

    @property
    def empty(self) -> bool:
        """Whether every object matches."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels meets all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    @functools.cached_property
    def meaning(self) -> frozenset[tuple[str, str, tuple[str, ...]]]:
        """The requirements; equal for selectors that are only written in other ways."""
        return frozenset(
            (each.key, _SAME.get((each.operator, len(each.values)), each.operator), each.values)
            for each in self.requirements
        )

    @functools.cached_property
    def size(self) -> int:
        """Number of requirements and values."""
        return sum(1 + len(each.values) for each in self.requirements)

    @functools.cached_property
    def _text(self) -> str:
        return ",".join(map(str, self.requirements))

    def __str__(self) -> str:
        return self._text


EVERYTHING = Selector()


def _int64(text: str) -> int | None:
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


# One token of a selector. As in Go's lexer, a NUL byte ends a token, or the text.
_TOKEN = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^=!(),<> \t\r\n\0]+)\0?")
_OPERATORS: Mapping[str, Operator] = {
    "in": "in",
    "notin": "notin",
    "=": "=",
    "==": "==",
    "!=": "!=",
    ">": "gt",
    "<": "lt",
}
_END = ""
_SYMBOLS = frozenset({_END, "=", "==", "!=", "!", "(", ")", ",", "<", ">"})
_MAX_PROBLEMS = 20
"""Values of one requirement whose problems a message lists."""


def parse(text: str) -> Selector:
    """Parse a label selector; the empty text matches everything.

    Raises SelectorError with the message of labels.Parse (k8s.io/apimachinery, pkg/labels).
    """
    if not text:
        return EVERYTHING
    parser = _Parser(text)
    requirements: list[Requirement] = []
    while parser.next != _END:
        if parser.next != "!" and not parser.at_word:
            raise SelectorError(
                f"found '{parser.next}', expected: !, identifier, or 'end of string'"
            )
        try:
            requirements.append(parser.requirement())
        except SelectorError as error:
            raise SelectorError(f"unable to parse requirement: {error}") from None
        separator = parser.take()
        if separator == _END:
            break
        if separator != ",":
            raise SelectorError(f"found '{separator}', expected: ',' or 'end of string'")
        if parser.next != "!" and not parser.at_word:
            raise SelectorError(f"found '{parser.next}', expected: identifier after ','")
    return Selector(requirements=tuple(sorted(requirements, key=lambda each: each.key)))


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while match := _TOKEN.match(text, position):
        yield match[1]
        position = match.end()


class _Parser:
    """Recursive-descent parser of one selector; the empty token is the end.

    It reads one token ahead, so that an error at the start of a long selector costs nothing.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.next = next(self._tokens, _END)

    @property
    def at_word(self) -> bool:
        return self.next not in _SYMBOLS

    def take(self) -> str:
        taken = self.next
        self.next = next(self._tokens, _END)
        return taken

    def requirement(self) -> Requirement:
        absent = self.next == "!"
        if absent:
            self.take()
        if not self.at_word:
            raise SelectorError(f"found '{self.next}', expected: identifier")
        key = self.take()
        if problem := key_problem(key):
            raise SelectorError(f"<nil>: Invalid value: {quote_shortened(key)}: {problem}")
        if absent:
            return Requirement(key=key, operator="!")
        if self.next in (_END, ","):
            return Requirement(key=key, operator="exists")
        symbol = self.take()
        operator = _OPERATORS.get(symbol)
        if operator is None:
            raise SelectorError(f"found '{symbol}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._set() if operator in ("in", "notin") else self._value()
        requirement = Requirement(key=key, operator=operator, values=tuple(sorted(values)))
        _check_values(requirement)
        return requirement

    def _value(self) -> set[str]:
        if self.next in (_END, ","):
            return {""}
        if not self.at_word:
            raise SelectorError(f"found '{self.next}', expected: identifier")
        return {self.take()}

    def _set(self) -> set[str]:
        opening = self.take()
        if opening != "(":
            raise SelectorError(f"found '{opening}' expected: '('")
        if self.next == ")":
            values = {""}
        elif self.at_word or self.next == ",":
            values = self._words()
        else:
            raise SelectorError(f"found '{self.next}', expected: ',', ')' or identifier")
        self.take()
        return values

    def _words(self) -> set[str]:
        """Parse the words before `)`, which is not taken; a missing word is the empty value."""
        values: set[str] = set()
        while True:
            is_word, taken = self.at_word, self.take()
            if is_word:
                values.add(taken)
                if self.next == ")":
                    return values
                if self.next != ",":
                    raise SelectorError(f"found '{self.next}', expected: ',' or ')'")
            elif taken != ",":
                raise SelectorError(f"found '{taken}', expected: ',', or identifier")
            else:
                if not values or self.next in (",", ")"):
                    values.add("")
                if self.next == ")":
                    return values
                if self.next == ",":
                    self.take()


def _check_values(requirement: Requirement) -> None:
    problems: list[str] = []
    if requirement.operator in ("gt", "lt") and _int64(requirement.values[0]) is None:
        problems.append(
            f"values[0]: Invalid value: {quote(requirement.values[0])}:"
            " for 'Gt', 'Lt' operators, the value must be an integer"
        )
    for index, value in enumerate(requirement.values):
        if problem := value_problem(value):
            place = f"values[{index}][{requirement.key}]"
            problems.append(f"{place}: Invalid value: {quote_shortened(value)}: {problem}")
        if len(problems) == _MAX_PROBLEMS:
            break
    if problems:
        raise SelectorError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")


EXPRESSION_OPERATORS: Mapping[Operator, str] = {
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    "in": "In",
    "notin": "NotIn",
    "exists": "Exists",
    "!": "DoesNotExist",
}
"""Operator -> that of a requirement in a LabelSelector object; `>` and `<` have none."""


def label_selector(selector: Selector) -> dict[str, Any] | None:
    """Return the selector as a metav1.LabelSelector object; None for the empty selector.

    `!=` becomes the equivalent NotIn, which the original refuses. Of several `=` for one key the
    last one is kept as in the original. Raises SelectorError for `>` and `<`.
    """
    equal: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    for requirement in selector.requirements:
        if requirement.operator in ("=", "=="):
            equal[requirement.key] = requirement.values[0]
            continue
        operator = EXPRESSION_OPERATORS.get(requirement.operator)
        if operator is None:
            raise SelectorError(f'"{requirement.operator}" isn\'t supported in label selectors')
        expression: dict[str, Any] = {"key": requirement.key, "operator": operator}
        if requirement.values:
            expression["values"] = list(requirement.values)
        expressions.append(expression)
    document: dict[str, Any] = {}
    if equal:
        document["matchLabels"] = equal
    if expressions:
        document["matchExpressions"] = expressions
    return document or None


_OF_OBJECT: Mapping[str, Operator] = {
    EXPRESSION_OPERATORS[each]: each for each in ("in", "notin", "exists", "!")
}


def of_object(document: Mapping[str, Any] | None) -> Selector:
    """Return the selector of a metav1.LabelSelector object that the API server accepted.

    Raises TypeError, KeyError or AttributeError for a document of another form.
    """
    document = document or {}
    requirements = [
        Requirement(key=key, operator="=", values=(value,))
        for key, value in (document.get("matchLabels") or {}).items()
    ]
    requirements += [
        Requirement(
            key=each["key"],
            operator=_OF_OBJECT[each["operator"]],
            values=tuple(sorted(set(each.get("values") or ()))),
        )
        for each in document.get("matchExpressions") or ()
    ]
    for each in requirements:
        "".join((each.key, *each.values))  # the fastest check that all are strings
    return Selector(requirements=tuple(sorted(requirements, key=lambda each: each.key)))
