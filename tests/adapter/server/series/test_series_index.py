"""The index of one selector's series, over a lister in memory."""

from __future__ import annotations

import logging

import pytest

from adapter import errors
from adapter.clients.lister import IndexedNames
from adapter.clients.prometheus_result import Listed
from adapter.server.series.series_index import SeriesIndex
from rules import ruleset
from rules.kinds import Kinds
from tools.waiting import Clock

RULES = """
rules:
- seriesQuery: '{__name__=~"gpu_.*"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
LABELS = frozenset({"namespace", "pod"})
HOUR = 3600.0


class Lister:
    """Lists `indexed` as Prometheus' index; exact queries get a partial answer."""

    def __init__(self) -> None:
        self.indexed: set[str] = set()
        self.failure: errors.BackendError | None = None

    async def index(self, selector, labels, fits):
        if self.failure is not None:
            raise self.failure
        return IndexedNames(names=dict.fromkeys(sorted(self.indexed), LABELS), exact=False)

    async def exact(self, selector):
        return None

    async def live(self, selector, matchers):
        return Listed(tuple(frozenset() for _ in matchers))


@pytest.fixture
def lister():
    return Lister()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def index(lister, clock):
    rules = ruleset.load([("rules.yaml", RULES)]).rules
    selector = rules[0].config.series_query
    return SeriesIndex(selector, rules, lister, clock=clock, monotonic=clock)


def names(index):
    return [series.name for series in index.listings()[0].series]


async def test_a_name_that_left_the_index_is_kept_for_an_hour_if_exact_queries_fail(
    index, lister, clock
):
    lister.indexed = {"gpu_old", "gpu_used"}
    await index.relist(Kinds.builtin())

    lister.indexed = {"gpu_used"}
    clock.now = HOUR
    await index.relist(Kinds.builtin())
    assert names(index) == ["gpu_old", "gpu_used"]

    clock.now = HOUR + 1
    await index.relist(Kinds.builtin())
    assert names(index) == ["gpu_used"]


async def test_memory_is_bounded_if_names_change_and_exact_queries_fail(index, lister, clock):
    for number in range(100):
        clock.now = number * HOUR / 4
        lister.indexed = {f"gpu_{number}"}
        await index.relist(Kinds.builtin())

    assert names(index) == [f"gpu_{number}" for number in range(95, 100)]


async def test_failures_do_not_count_towards_the_hour(index, lister, clock):
    lister.indexed = {"gpu_used"}
    await index.relist(Kinds.builtin())

    lister.failure = errors.Unreachable("no route")
    clock.now = 5 * HOUR
    assert not await index.relist(Kinds.builtin())
    assert names(index) == ["gpu_used"]

    lister.failure = None
    await index.relist(Kinds.builtin())
    assert names(index) == ["gpu_used"]


async def test_a_failure_is_logged_once_when_it_begins_and_once_when_it_ends(index, lister, caplog):
    caplog.set_level(logging.INFO)
    await index.relist(Kinds.builtin())
    lister.failure = errors.Unreachable("no route")
    for _ in range(2):
        await index.relist(Kinds.builtin())
    lister.failure = None
    for _ in range(2):
        await index.relist(Kinds.builtin())

    assert [record.getMessage() for record in caplog.records] == [
        "rules[0] (rules.yaml:3): relist failed, the last result stays in use: no route",
        "rules[0] (rules.yaml:3): relist succeeds again",
    ]


async def test_the_log_does_not_promise_an_earlier_result_before_the_first(index, lister, caplog):
    caplog.set_level(logging.INFO)
    lister.failure = errors.Unreachable("no route")
    await index.relist(Kinds.builtin())
    lister.failure = None
    await index.relist(Kinds.builtin())

    assert [record.getMessage() for record in caplog.records] == [
        "rules[0] (rules.yaml:3): relist failed, and no earlier one succeeded: no route",
        "rules[0] (rules.yaml:3): relist succeeds again",
    ]
