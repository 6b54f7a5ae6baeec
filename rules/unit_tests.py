"""Unit tests of rules: the file format, which follows that of promtool, and its series notation.

`adapter.cli.commands.test` evaluates them on a Prometheus.
https://prometheus.io/docs/prometheus/latest/configuration/unit_testing_rules/
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from rules import promql, quantity
from rules.document import yaml
from rules.document.schema import Fields, SchemaPath
from rules.document.yaml import Node, Scalar
from rules.errors import ConfigError, PlanError, QuantityError, RulesError
from rules.findings import Finding, State, in_file
from rules.kinds import PODS, GroupResource, Kinds
from rules.selectors import selectors
from rules.selectors.selectors import Selector

T = TypeVar("T")

_MAX_VALUES = 100_000
"""Maximum number of values of one series."""
_NUMBER = r"(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|[Ii]nf|[Nn]a[Nn])"
_VALUES = re.compile(
    r"(?P<gap>_)(?:x(?P<gaps>\d+))?|(?P<stale>stale)"
    rf"|(?P<first>[+-]?{_NUMBER})(?:(?P<step>[+-]{_NUMBER})?x(?P<more>\d+))?"
)
_NO_LABELS: Mapping[str, str] = {}
_MINUTE = 60 * 10**9
_CUSTOM, _EXTERNAL = "custom_metric_test", "external_metric_test"
_CASE = ("eval_time", "metric")
"""Required keys of a case."""
_OPTIONAL = ("namespace", "selector")

Value = float | Literal["stale"] | None
"""A number, a staleness marker, or None for no sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSeries:
    """One series of a test."""

    labels: Mapping[str, str]
    """With `__name__`."""
    values: tuple[Value, ...]
    """One for each interval, from time 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A request for a metric, and the expected values."""

    place: str
    """File, line and path, for messages."""
    eval_time: float
    """Seconds after the first value of the series."""
    metric: str
    resource: GroupResource | None
    """None for an external metric."""
    namespace: str
    objects: tuple[str, ...]
    """Names of the requested objects; none for an external metric."""
    selector: Selector
    expected: Mapping[str, int]
    """Object, or labels of an external sample (`labels_text`) -> value in thousandths. There must
    be no other value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTest:
    """Series, and requests that are made of them."""

    name: str
    interval: float
    """Seconds between two values."""
    series: tuple[InputSeries, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A file of tests."""

    rule_files: tuple[str, ...]
    """Relative to the directory of the file."""
    presets: tuple[str, ...]
    tests: tuple[UnitTest, ...]


def parse(content: bytes, *, file: str) -> Suite:
    """Parse a file of tests. Raises ConfigError with all problems."""
    node, invalid = yaml.load(content, file=file)
    problems = list(invalid)
    parser = _Parser(file, problems)
    parsed = parser.file(node)
    if not problems and not parsed.tests:
        problems.append(in_file(State.FAILURE, "contains no tests", file=file))
    if problems:
        raise ConfigError(problems)
    return parsed


def notation(text: str) -> tuple[Value, ...]:
    """Return the values of promtool's notation: `1+2x3 _x2 stale` is 1 3 5 7 _ _ stale.

    Raises ValueError for other text, also for native histograms.
    """
    values: list[Value] = []
    for word in text.split():
        match = _VALUES.fullmatch(word)
        if match is None:
            raise ValueError(f"{word!r} is not a value: write 1, _, stale, 1x3, 1+2x3 or _x3")
        count = int(match["gaps"] or match["more"] or 0)
        if len(values) + count >= _MAX_VALUES:
            raise ValueError(f"more than {_MAX_VALUES} values")
        if match["stale"]:
            values.append("stale")
        elif match["gap"]:
            values += [None] * (count if match["gaps"] else 1)
        else:
            first, step = float(match["first"]), float(match["step"] or 0)
            values += [first + step * index if index else first for index in range(count + 1)]
    return tuple(values)


def labels_text(labels: Mapping[str, str]) -> str:
    """Return labels as PromQL writes them, sorted: `{a="b",c="d"}`."""
    return f"{{{','.join(promql.matcher(name, '=', labels[name]) for name in sorted(labels))}}}"


class _Parser:
    """Reads nodes into values, and collects problems."""

    def __init__(self, file: str, problems: list[Finding]) -> None:
        self._record = SchemaPath(file, "", problems)
        self._kinds = Kinds.builtin()

    def file(self, node: Node | None) -> Suite:
        top = Fields(self._record, node, known=("rule_files", "presets", "tests"))
        return Suite(
            rule_files=tuple(self._texts(top, "rule_files")),
            presets=tuple(self._texts(top, "presets")),
            tests=tuple(self._test(path, each) for path, each in top.items("tests")),
        )

    def _test(self, path: str, node: Node) -> UnitTest:
        known = ("name", "interval", "input_series", _CUSTOM, _EXTERNAL)
        test = Fields(self._record, node, path, known=known)
        cases = [self._custom(*each) for each in test.items(_CUSTOM)]
        cases += [self._external(*each) for each in test.items(_EXTERNAL)]
        if not cases:
            self._record.report(State.FAILURE, path, node, f"has no {_CUSTOM} and no {_EXTERNAL}")
        interval = test.duration("interval")
        if interval == 0:
            test.error("interval", "must be longer than 0s")
        return UnitTest(
            name=test.plain_text("name") or path,
            interval=(interval or _MINUTE) / 1e9,
            series=self._all_series(test),
            cases=tuple(cases),
        )

    def _all_series(self, test: Fields) -> tuple[InputSeries, ...]:
        found: dict[str, InputSeries] = {}
        for path, node in test.items("input_series"):
            series = self._series(path, node)
            text = labels_text(series.labels)
            if series.labels and text in found:
                self._record.report(
                    State.FAILURE, path, node, "is given twice: write all values in one"
                )
            found[text] = series
        return tuple(found.values())

    def _series(self, path: str, node: Node) -> InputSeries:
        fields = self._required(node, path, ("series", "values"), ())
        labels = self._convert(fields, "series", _labels, _NO_LABELS)
        if labels and "__name__" not in labels:
            fields.error("series", "has no name")
        return InputSeries(labels=labels, values=self._convert(fields, "values", notation, ()))

    def _custom(self, path: str, node: Node) -> Case:
        fields = self._required(node, path, _CASE, ("resource", "objects", "exp_values"))
        expected = {
            entry.key.text: self._quantity(below, entry.value)
            for below, entry in fields.entries("exp_values")
        }
        return self._case(
            fields,
            node,
            resource=self._convert(fields, "resource", self._resource, PODS),
            objects=tuple(dict.fromkeys((*self._texts(fields, "objects"), *expected))),
            expected=expected,
        )

    def _external(self, path: str, node: Node) -> Case:
        fields = self._required(node, path, _CASE, ("exp_samples",))
        expected: dict[str, int] = {}
        for below, each in fields.items("exp_samples"):
            sample = self._required(each, below, ("value",), ("labels",))
            labels = labels_text(self._convert(sample, "labels", _labels, _NO_LABELS))
            if labels in expected:
                self._record.report(State.FAILURE, below, each, f"{labels} is given twice")
            expected[labels] = self._convert(sample, "value", quantity.parse, 0)
        return self._case(fields, node, resource=None, objects=(), expected=expected)

    def _case(
        self,
        fields: Fields,
        node: Node,
        *,
        resource: GroupResource | None,
        objects: tuple[str, ...],
        expected: Mapping[str, int],
    ) -> Case:
        return Case(
            place=f"{self._record.file}:{node.line}: {fields.path}",
            eval_time=(fields.duration("eval_time") or 0) / 1e9,
            metric=fields.plain_text("metric"),
            resource=resource,
            namespace=fields.plain_text("namespace") or "default",
            objects=objects,
            selector=self._convert(fields, "selector", selectors.parse, Selector()),
            expected=expected,
        )

    def _required(
        self, node: Node, path: str, required: Sequence[str], others: Sequence[str]
    ) -> Fields:
        """Return the mapping at `path`, and report each required key that is absent."""
        optional = (*others, *(_OPTIONAL if required is _CASE else ()))
        fields = Fields(self._record, node, path, known=(*required, *optional))
        for key in required:
            if fields.get(key) is None:
                self._record.report(State.FAILURE, path, node, f"has no {key}")
        return fields

    def _texts(self, fields: Fields, key: str) -> Iterator[str]:
        for path, node in fields.items(key):
            if isinstance(node, Scalar) and node.text:
                yield node.text
            else:
                self._record.report(State.FAILURE, path, node, "must be text")

    def _convert(self, fields: Fields, key: str, parse: Callable[[str], T], default: T) -> T:
        """Return the parsed value of `key`; the default if it is absent or does not parse."""
        if fields.get(key) is None:
            return default
        try:
            return parse(fields.plain_text(key))
        except (RulesError, ValueError) as error:
            fields.error(key, str(error))
            return default

    def _quantity(self, path: str, node: Node) -> int:
        try:
            return quantity.parse(node.text if isinstance(node, Scalar) else "")
        except QuantityError as error:
            self._record.report(State.FAILURE, path, node, str(error))
            return 0

    def _resource(self, text: str) -> GroupResource:
        name, _, group = text.partition(".")
        return self._kinds.resolve(name, group).group_resource


def _labels(text: str) -> Mapping[str, str]:
    """Parse `name{label="value"}`. Raises PlanError."""
    if text.strip() in {"", "{}"}:
        return {}
    matchers = promql.selector(text)
    if other := next((each for each in matchers if each.operator != "="), None):
        raise PlanError(f"{other.label}{other.operator}... is not a label: use = only")
    return {each.label: each.value for each in matchers}
