"""Sums of external metrics that are not what their author wants."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.hpa import judgement, proposal, report
from rules.hpa.proposal import Proposal
from tests.rules.hpa.documents import external_metric, hpa, scale


def proposed(
    *items: int, name: str = "queue_length", query: str = "", average: bool = False
) -> Proposal:
    target = {"averageValue": "5"} if average else {"value": "5"}
    (metric,) = hpa(external_metric(**target)).metrics
    metric = replace(metric, name=name)
    found = proposal.of_value(
        metric, proposal.total(metric, items), 2, scale(2), tolerances=(0.1, 0.1)
    )
    return replace(found, items=items, query=query)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ttft_p95_seconds", "percentile"),
        ("p99:latency", "percentile"),
        ("request_latency_quantile", "percentile"),
        ("latency_median_seconds", "percentile"),
        ("duty_cycle_current", "percentage"),
        ("cpu_percent", "percentage"),
        ("vllm:gpu_cache_usage_perc", "ratio"),
        ("cache_hit_ratio", "ratio"),
        ("queue_size_average_current", "mean"),
        ("avg_wait_seconds", "mean"),
        ("queue_length", ""),
        ("p2p_bytes", ""),
        ("requests_total", ""),
        ("http_5xx", ""),
        ("averaged", ""),
    ],
)
def test_a_name_tells_that_items_must_not_be_added_up(name: str, kind: str) -> None:
    found = judgement.doubt_of(proposed(*[374_000 if kind else 374] * 2, name=name))
    of = " s" if name.endswith("seconds") else " %" if kind == "percentage" else ""

    assert judgement.doubt_of(proposed(374, name=name)) is None
    if not kind:
        assert found is None
        return
    assert found.sentence == (
        f"{name} is 748{of}: the controller adds 2 items (374{of}, 374{of}), but each is by its "
        f"name a {kind}, and a sum of {kind}s is not a {kind}. Select one item by "
        "`metric.selector`, or aggregate to one in metricsQuery"
    )


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("histogram_quantile(0.95, sum by (le, a) (rate(x_bucket[5m])))", "percentile"),
        ("1000 * histogram_quantile(0.95, sum by (le, a) (rate(x_bucket[5m])))", "percentile"),
        ("(histogram_quantile(0.5, x)) * 1000 or vector(0)", "percentile"),
        ("quantile by (a) (0.9, x)", "percentile"),
        ("max by (a) (quantile_over_time(0.9, x[5m]))", "percentile"),
        ("sum by (a) (x) / sum by (a) (y)", "ratio"),
        ("100 * sum by (a) (x) / sum by (a) (y)", "ratio"),
        ("clamp_min(sum by (a) (x) / on (a) y, 0)", "ratio"),
        ("avg by (a) (x)", "mean"),
        ("round(avg by (a) (x), 0.1)", "mean"),
        ("sum by (a) (x)", ""),
        ("sum by (a) (x) / 1000", ""),
        ("1000 * sum by (a) (rate(x[5m]))", ""),
        ("sum by (a) (avg by (a, b) (x))", ""),
        ("x", ""),
        ("x{", ""),
        ("sum(", ""),
    ],
)
def test_a_query_tells_that_items_must_not_be_added_up(query: str, kind: str) -> None:
    given = proposed(374, 374, name="latency", query=query)

    assert judgement.needs_query(given)
    found = judgement.doubt_of(given)
    assert bool(found) == bool(kind)
    assert not found or f"but each is by its query a {kind}," in found.fact


def test_a_query_is_not_needed_for_one_item_or_a_name_that_says_it() -> None:
    assert not judgement.needs_query(proposed(374, name="latency"))
    assert not judgement.needs_query(proposed(374, 374, name="latency_p95"))


@pytest.mark.parametrize(
    ("items", "average", "words"),
    [
        ((-3000,), True, "The value is below 0 (-3): Kubernetes"),
        ((-1,), True, "The value is below 0 (-0.001): Kubernetes"),
        ((10_000, -1000), True, "queue_length has an item of -1. While"),
        ((-1000, 10_000), True, "queue_length has an item of -1. While"),
        ((0,), True, ""),
        ((-3000,), False, ""),
    ],
)
def test_a_negative_value_is_named_if_the_target_is_an_average(
    items: tuple[int, ...], average: bool, words: str
) -> None:
    found = judgement.doubt_of(proposed(*items, average=average))

    assert bool(found) == bool(words)
    assert not found or found.fact.startswith(words)
    assert not found or found.cure == "Write clamp_min(..., 0) in metricsQuery"


def test_the_lines_say_how_many_items_are_added_up() -> None:
    lines = "\n".join(report._proposal(proposed(*[1000] * 7), 2))
    negative = "\n".join(report._proposal(proposed(-3000, average=True), 2))

    assert "the controller adds up 7 items: 1, 1, 1 and 4 more" in lines
    assert "overflow" not in lines
    assert "the sum is below 0, which the controller takes for an overflow" in negative
