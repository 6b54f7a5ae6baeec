"""Syntax trees: they are those of promql-parser, and cost little whatever the query is."""

from __future__ import annotations

import random
import time
import tracemalloc

import promql_parser
import pytest

from rules import promql, syntax
from rules.errors import PlanError, TooComplexError
from rules.exporters import metric_types
from tests.rules.query import test_confined

QUERIES = [
    *test_confined.queries(400),
    r'a{b=~"x\\.y{2}",c!="\u00e9",d!~`\d+`} offset 5m',
    'label_replace(a, "' + "b" * 100 + '", "$1", \'c\\\'d\', "(.*)")',
    '{"quoted.name","label.with.dots"="x"} @ end()',
    'sum by ("a.b", c) (d) / on ("' + "e" * 100 + '") group_left ("f.g") h',
    '{__name__="' + "m" * 100 + '"}[5m] @ 5',
    "topk(3, a == bool b) unless c atan2 -d ^ 2",
    "max_over_time(a[5m:1m] offset -1m) >= (b <= c)",
]
DEEP = {
    "calls": lambda size: "abs(" * (size - 1) + "a" + ")" * (size - 1),
    "parentheses": lambda size: "(" * (size - 1) + "a" + ")" * (size - 1),
    "operators": lambda size: "+".join("a" * size),
    "powers": lambda size: "^".join("a" * size),
    "signs": lambda size: "-" * (size - 1) + "a",
    "sets": lambda size: " or ".join("a" * size),
    "arguments": lambda size: "clamp_max(" * (size - 1) + "a" + ", 1)" * (size - 1),
    "aggregations": lambda size: "sum by (a) (" * (size - 1) + "a" + ")" * (size - 1),
}


@pytest.mark.parametrize("query", QUERIES)
def test_the_tree_is_that_of_the_parser(query):
    code = promql.without_comments(query).replace("`", '"').replace(r'"\d+"', r'"\\d+"')

    tree = promql.parse(query)

    assert tree == syntax.convert(promql_parser.parse(code), {})
    assert syntax.depth(tree) <= promql._most_levels(list(promql._tokens(code)))


@pytest.mark.parametrize("kind", DEEP)
def test_the_depth_is_that_of_the_tree(kind):
    assert syntax.depth(promql.parse(DEEP[kind](50))) == 50


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("size", [128, 129, 600, 1500])
def test_what_would_be_too_deep_is_not_parsed(kind, size):
    if size == 128:
        promql.parse(DEEP[kind](size))
        return
    with pytest.raises(TooComplexError, match=f"it nests {size} operators|2000 tokens"):
        promql.parse(DEEP[kind](size))


@pytest.mark.parametrize(
    "query",
    [
        "a[99999999y]",
        "a offset 99999999y",
        'a{b="\\d"}',
        'a{b="' + "c" * 100,
        "",
    ],
)
def test_what_is_no_query_is_refused(query):
    with pytest.raises(PlanError):
        promql.parse(query)


def selectors(count: int) -> str:
    """Return a query of so many selectors that is as deep as possible."""
    inner = " or ".join(['a{b=~"\\\\pL{90}|c",d="' + "e" * 100 + '"}'] * (count // 2))
    return "abs(" * (count // 4) + inner + ")" * (count // 4)


def visited(query: str) -> int:
    return sum(1 for _ in syntax.walk(promql.parse(query)))


def test_a_walk_visits_each_expression_once():
    assert visited(DEEP["sets"](100)) == 199
    assert visited(DEEP["calls"](100)) == 100


def memory(query: str) -> int:
    promql.parse(query)
    tracemalloc.start()
    tree = promql.parse(query)
    list(metric_types.problems(tree))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def seconds(query: str) -> float:
    def once() -> float:
        start = time.process_time()
        tree = promql.parse(query)
        list(metric_types.problems(tree))
        return time.process_time() - start

    return min(once() for _ in range(5))


def test_time_and_memory_are_linear_in_the_query():
    small, large = selectors(30), selectors(120)

    assert memory(large) < 8 * memory(small)
    assert seconds(large) < 16 * seconds(small)


def test_regular_expressions_are_not_compiled_by_the_parser():
    plain = "a{" + ",".join(['b=~"cccccccc"'] * 300) + "}"
    costly = plain.replace("cccccccc", "\\\\pL{90}")

    assert seconds(costly) < 20 * seconds(plain)


def test_any_text_is_parsed_or_refused():
    tokens = [
        *"()[]{},+-*/^=<>~!@:#\"'` \n\\",
        "a",
        "sum",
        "by",
        "or",
        "5m",
        "offset",
        "1e5",
        "\ue000",
    ]
    generator = random.Random(41)
    for _ in range(3000):
        text = "".join(generator.choices(tokens, k=generator.randrange(1, 40)))
        try:
            tree = promql.parse(text)
        except PlanError:
            continue
        assert syntax.depth(tree) <= 128


class PanicException(BaseException):
    """As promql-parser raises it: no Exception, and not importable."""


def test_a_panic_of_the_parser_is_a_problem_of_the_query(monkeypatch):
    def panic(text: str) -> None:
        raise PanicException(text)

    monkeypatch.setattr(promql_parser, "parse", panic)

    with pytest.raises(PlanError, match="promql-parser fails: a"):
        promql.parse("a")
