"""Queries of one namespace, on a real Prometheus: the series of another one change no answer.

Two servers have the same series of namespace `a`, and one of them those of `b` as well. A confined
query must get the same answer from both, and the text that is written must mean what was parsed.
"""

from __future__ import annotations

import json
import random
import urllib.error
from collections.abc import Iterator
from typing import Any

import pytest

from rules import promql, syntax
from rules.errors import PlanError
from rules.query.confined import Writer, confine
from tools.real import prometheus
from tools.real.prometheus import Prometheus

QUERIES = 2000
NOW = 1_700_000_000
SEED = 26
LABEL = "ns"


@pytest.fixture(scope="module")
def servers(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Prometheus with the namespaces `a` and `b`, and one with `a` alone."""
    flags = ["--storage.tsdb.retention.time=100y"]
    both_folder, own_folder = (tmp_path_factory.mktemp(each) for each in ("both", "own"))
    with (
        prometheus.run(both_folder, flags=flags) as both,
        prometheus.run(own_folder, flags=flags) as own,
    ):
        for step in range(5):
            at = NOW - 120 + 30 * step
            for server in (both, own):
                server.put(*samples("a", step), at=at)
            both.put(*samples("b", step), at=at)
        yield both, own


def samples(namespace: str, step: int) -> list[str]:
    factor = 1 if namespace == "a" else 1000
    metrics = ["m0", "m1", "m2", *(["m3"] if namespace == "b" else [])]
    return [
        f'{metric}{{ns="{namespace}",pod="p{pod}",zone="{zone}"}} '
        f"{factor * (100 * index + 10 * pod + zone + 1) + step * (pod + 1)}"
        for index, metric in enumerate(metrics)
        for pod in range(3 if namespace == "a" else 4)
        for zone in range(2)
    ]


class Queries:
    """Generates queries of all kinds of nodes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def _one(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _selector(self) -> str:
        return self._one(
            *("m0", "m1", "m2", "m3", 'm0{zone="1"}', 'm1{ns="b"}', 'm2{ns!="a"}'),
            *('m0{ns=~"a|b"}', '{__name__=~"m.*"}', '{__name__=~".+",ns="b"}', '{ns=~".+"}'),
            *('{__name__="m3"}', '{pod="p3"}', 'm1{ns!~"a"} # }', "m0{zone=`1`}", "m0{pod='p1'}"),
        )

    def _shift(self) -> str:
        times = (f"@ {NOW - 45}", "@ end()", "@ start()")
        return self._one("", "", "", " offset 30s", " offset -30s", *(f" {each}" for each in times))

    def _range(self, depth: int) -> str:
        if depth > 0 and self._random.random() < 0.5:
            window = self._one("[2m:30s]", "[90s:15s]", "[1m:]")
            return f"({self.vector(depth - 1)}\n){window}{self._shift()}"
        selector = self._one("m0", "m1", 'm3{ns="b"}', '{__name__=~"m0|m3"}', 'm2{ns=~".*"}')
        return f"{selector}{self._one('[1m]', '[2m]', '[90s]')}{self._shift()}"

    def _scalar(self, depth: int) -> str:
        if depth > 0 and self._random.random() < 0.6:
            return f"scalar({self._one('sum', 'max', 'count')}({self.vector(depth - 1)}\n))"
        return self._one("2", "0.5", "-1", "1e3", "0x10", "time()", "pi()")

    def vector(self, depth: int) -> str:
        """Return an expression with at most `depth` levels."""
        if depth <= 0:
            selector = self._selector()
            return selector if "#" in selector else f"{selector}{self._shift()}"
        below = depth - 1
        inner = f"{self.vector(below)}\n"
        kind = self._random.randrange(13)
        if kind == 0:
            return f"{self._one('abs', 'ceil', 'sort', 'timestamp', 'absent', 'sgn')}({inner})"
        if kind == 1:
            name = self._one("rate", "sum_over_time", "absent_over_time", "changes", "delta")
            return f"{name}({self._range(below)})"
        if kind == 2:
            by = self._one("", "", " by (pod) ", " by (ns) ", " without (zone) ", " by () ")
            return f"{self._one('sum', 'avg', 'max', 'count', 'group')}{by}({inner})"
        if kind == 3:
            name = self._one("topk", "bottomk", "quantile")
            return f"{name}({self._scalar(below)}, {inner})"
        if kind == 4:
            return f'count_values by (ns) ("{self._one("v", "pod", "ns")}", {inner})'
        if kind == 5:
            matching = self._one("", " on (pod) ", " ignoring (ns) ", " on (pod) group_left () ")
            operator = self._one("+", "-", "*", "/", ">", "!= bool", "== bool", "atan2")
            return f"({inner}) {operator}{matching} ({self.vector(below)}\n)"
        if kind == 6:
            matching = self._one("", " on (pod) ", " ignoring (ns) ", " on () ")
            operator = self._one("and", "or", "unless")
            return f"({inner}) {operator}{matching} ({self.vector(below)}\n)"
        if kind == 7:
            return f"({inner}) {self._one('+', '*', '^', '%', '<')} ({self._scalar(below)})"
        if kind == 8:
            name = self._one("ns", "pod", "x")
            return f'label_replace({inner}, "{name}", "$1", "{self._one("ns", "pod")}", "(.*)")'
        if kind == 9:
            return f'label_join({inner}, "{self._one("ns", "pod", "x")}", "-", "pod", "ns")'
        if kind == 10:
            return f"-({inner})"
        if kind == 11:
            return f"vector({self._scalar(below)})"
        return f"clamp_max({inner}, {self._scalar(below)})"


def queries(count: int) -> Iterator[str]:
    """Yield so many queries, the same in each run."""
    generator = Queries(SEED)
    for number in range(count):
        yield generator.vector(number % 4)


def answer(server: Prometheus, query: str) -> Any:
    """Return the samples in any order, rounded, or that the query fails."""
    try:
        result = server.get("/api/v1/query", query=query, time=str(NOW))
    except urllib.error.HTTPError as error:
        kind = json.loads(error.read())["errorType"]
        assert kind == "execution", query
        return "fails"
    found = result["result"]
    if result["resultType"] != "vector":
        return found
    return sorted(
        (sorted(each["metric"].items()), f"{float(each['value'][1]):.9g}") for each in found
    )


def test_no_query_of_a_namespace_reads_another_one(servers: Any) -> None:
    both, own = servers
    told, values = 0, 0
    for query in queries(QUERIES):
        text = confine(query, LABEL, "a")
        found = answer(both, text)
        assert found == answer(own, text), (query, text)
        values += bool(found) and found != "fails"
        told += found != answer(both, query)
    assert values > QUERIES / 3
    assert told > QUERIES / 2


@pytest.mark.slow
def test_a_confined_query_stays_as_it_is() -> None:
    for query in queries(QUERIES):
        text = confine(query, LABEL, "a")
        assert confine(text, LABEL, "a") == text, query


def test_what_is_written_means_what_was_parsed(servers: Any) -> None:
    both, _ = servers
    for query in queries(QUERIES // 4):
        text = Writer("").text(promql.parse(query))
        assert answer(both, text) == answer(both, query), (query, text)


class Leak(Writer):
    """Leaves out the matcher below one kind of node, or in one kind of selector."""

    def __init__(self, kind: str) -> None:
        super().__init__('ns="a"')
        self._kind = kind

    def text(self, node: syntax.Expression) -> str:
        if self._kind in self._kinds(node):
            return Writer("").text(node)
        return super().text(node)

    @staticmethod
    def _kinds(node: syntax.Expression) -> set[str]:
        kinds = {type(node).__name__}
        if isinstance(node, syntax.VectorSelector):
            kinds |= {"named" if node.name else "unnamed"}
            kinds |= {f"matches {each.label} {each.operator}" for each in node.matchers}
            kinds |= {"offset"} if node.offset else set()
            kinds |= {node.at.split("(")[0].rstrip("0123456789.")} if node.at else set()
        if isinstance(node, syntax.Call):
            kinds.add(node.function)
        if isinstance(node, syntax.Aggregation | syntax.Binary):
            kinds.add(node.operator)
        return kinds


@pytest.mark.parametrize(
    "kind",
    [
        *("VectorSelector", "MatrixSelector", "Subquery", "Binary", "Aggregation"),
        *("Call", "Parentheses", "Unary", "named", "unnamed", "offset"),
        *("@ ", "@ start", "@ end"),
        *("matches __name__ =~", "matches ns !=", "matches ns =~"),
        *("matches __name__ =", "matches ns ="),
        *("absent", "absent_over_time", "label_replace", "label_join", "scalar", "vector"),
        *("or", "unless", "and", "+", "topk", "quantile", "count_values"),
    ],
)
def test_a_matcher_that_is_left_out_is_found(servers: Any, kind: str) -> None:
    """The queries above tell the two servers apart, whichever node lacks the matcher."""
    both, own = servers
    leak = Leak(kind)
    assert any(
        answer(both, text) != answer(own, text)
        for query in queries(QUERIES)
        if (text := leak.text(promql.parse(query))) != confine(query, LABEL, "a")
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("info(m0)", "cannot use info()"),
        ('info(m0, {ns="b"})', "cannot use info()"),
        ('m0{ns="b" or pod="p1"}', "cannot join matchers by `or`"),
        ("m0 @ -5", "before 1970"),
        ("m0{", "unexpected end of input"),
        ("m0 m1", "invalid promql query"),
    ],
)
def test_what_cannot_be_confined_is_refused(query: str, message: str) -> None:
    with pytest.raises(PlanError) as refused:
        confine(query, LABEL, "a")
    assert message in str(refused.value)


@pytest.mark.parametrize(("label", "namespace"), [("", "a"), ("ns", "")])
def test_a_confined_query_needs_a_label_and_a_namespace(label: str, namespace: str) -> None:
    with pytest.raises(PlanError):
        confine("m0", label, namespace)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("m0", '{__name__="m0",ns="a"}'),
        ('{__name__=~"x",}', '{__name__=~"x",ns="a"}'),
        ("rate(m0[5m] offset -1w)", 'rate({__name__="m0",ns="a"}[300000ms] offset -604800000ms)'),
        ("rate(m0[5m:])", 'rate(({__name__="m0",ns="a"})[300000ms:])'),
        ("-m0 @ 5.5", '-({__name__="m0",ns="a"} @ 5.500)'),
        ("1e400", "Inf"),
        ("NaN", "NaN"),
        (
            'm0 / on ("a.b") group_left (c) m1',
            '({__name__="m0",ns="a"}) / on ("a.b") group_left (c) ({__name__="m1",ns="a"})',
        ),
        ('m0{x=`"}`} # ,ns="b"}', '{__name__="m0",x="\\"}",ns="a"}'),
        ("'ns'", '"ns"'),
    ],
)
def test_queries_are_written_anew(query: str, text: str) -> None:
    assert confine(query, LABEL, "a") == text
