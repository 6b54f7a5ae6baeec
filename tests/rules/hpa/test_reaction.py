"""The terms of the time that an HPA takes to react."""

from __future__ import annotations

from typing import Any

import pytest

from rules.hpa import reaction
from rules.hpa.autoscaler import Pod
from rules.hpa.reaction import Reaction
from rules.query.delay import Delay
from rules.query.pod_age import FirstSamples


def query(sample: float | None, seconds: float = 0.0, function: str = "") -> dict[str, Any]:
    return {"oldestSampleSeconds": sample, "delaySeconds": seconds, "delayedBy": function}


def ready(name: str, created: float | None, since: float, status: Any = "True") -> Pod:
    return Pod(name=name, phase="Running", ready=status, ready_since=since, created=created)


def test_the_slowest_query_of_an_explanation_counts() -> None:
    first = {"since": 100.0, "pods": {"a": 130.0}}
    slow = query(12.4, 180.0, "avg_over_time") | {"intervalSeconds": 30.0, "firstSamples": first}

    found = reaction.of_explanation({"queries": [query(14.0), slow, query(None)]})

    assert found == Reaction(
        interval=30.0,
        sample=12.4,
        delay=Delay(seconds=180.0, function="avg_over_time"),
        first_samples=FirstSamples(100.0, {"a": 130.0}),
    )
    assert str(found) == "210 s: 30 s (interval between samples) + 180 s (avg_over_time)"


def test_an_explanation_without_a_query_or_of_an_earlier_release_has_no_reaction() -> None:
    assert reaction.of_explanation({}) is None
    for each in ({"oldestSampleSeconds": 3}, query(None)):
        assert reaction.of_explanation({"queries": [each]}) is None


@pytest.mark.parametrize(
    ("interval", "sample", "text"),
    [
        (30.0, 59.0, "30 s (interval between samples)"),
        (30.0, 60.0, "60 s (age of the sample)"),
        (None, 12.0, "12 s (age of the sample)"),
        (30.0, None, "30 s (interval between samples)"),
    ],
)
def test_the_age_counts_for_a_late_sample_and_without_an_interval(
    interval: float | None, sample: float | None, text: str
) -> None:
    assert str(Reaction(interval=interval, sample=sample, delay=Delay())) == text


def test_lines_have_metrics_controller_start_and_sum() -> None:
    pods = [
        ready("a", 100, 160),
        ready("b", 100, 195),
        ready("c", 100, 400),
        ready("not-ready", 100, 900, "False"),
        ready("of-an-unknown-age", None, 900),
    ]
    offset = Reaction(sample=None, delay=Delay(seconds=60.0, function="offset"))

    assert list(reaction.lines([None, offset], pods)) == [
        "metric 2 shows the change in full within 60 s (the offset)",
        "the controller acts within 15 s, its default sync period",
        "a new pod is Ready after 95 s, the median of 3 pods",
        "in all within 170 s, on average 162 s",
    ]
    *_, last = reaction.lines([offset], [])
    assert last == "in all within 75 s, on average 68 s, without the start of a new pod"


@pytest.mark.parametrize(
    ("interval", "mean", "longest", "half", "every"),
    [(1.0, 8.5, 17.0, 8.5, 16.1), (2.0, 9.0, 18.0, 9.0, 17.5), (30.0, 23.0, 46.0, 22.9, 44.4)],
)
def test_the_sums_are_those_that_300_autoscalers_took(
    interval: float, mean: float, longest: float, half: float, every: float
) -> None:
    """`half` and `every` were measured by tools.bench.react, in seconds from the step of load."""
    found = Reaction(interval=interval, sample=0.5, delay=Delay(), freshness=1.0)

    document = reaction.document([found], [])

    assert (document["meanSeconds"], document["longestSeconds"]) == (mean, longest)
    assert half == pytest.approx(mean, rel=0.05)
    assert every <= longest


def test_the_first_sample_counts_of_pods_that_are_newer_than_the_series() -> None:
    first = {"before": 400.0, "a": 290.0, "b": 310.0, "recreated": 240.0, "old": 210.0}
    metric = Reaction(
        sample=3.0, delay=Delay(), first_samples=FirstSamples(since=200.0, pods=first)
    )
    pods = [
        ready("before", 200, 230),
        ready("a", 210, 240),
        ready("b", 210, 240),
        ready("recreated", 250, 280),
        ready("without-a-value", 210, 240),
    ]

    assert list(reaction.lines([metric], pods))[2:] == [
        "a new pod is Ready after 30 s, the median of 5 pods",
        "a new pod has its first sample after 90 s, the median of 2 pods",
        "in all within 108 s, on average 100 s",
    ]
    assert list(reaction.lines([metric], pods[:1]))[2:] == [
        "a new pod is Ready after 30 s, the median of 1 pod",
        (
            "the first sample of a new pod is not known: none started beside others for an hour; "
            "Ready counts"
        ),
        "in all within 48 s, on average 40 s",
    ]


def test_of_several_queries_the_last_first_samples_count() -> None:
    found = [FirstSamples(0.0, {"a": 40.0}), None, FirstSamples(0.0, {"a": 50.0})]

    assert reaction.start([ready("a", 10, 70)], found).sample == (40.0, 1)
    assert reaction.start([ready("a", 10, 70)], found).seconds == 60.0
    assert reaction.start([], found).seconds is None


def test_the_document_has_the_terms_of_the_slowest_metric_the_controller_and_a_new_pod() -> None:
    delay = Delay(seconds=180.0, function="avg_over_time")
    slowest = Reaction(interval=12.0, sample=3.0, delay=delay, freshness=1.0)

    found = reaction.document(
        [None, Reaction(sample=30.0, delay=Delay()), slowest], [ready("a", 0, 9)]
    )

    assert found["metrics"][0] is None
    assert found["metrics"][2] == {
        "intervalSeconds": 12.0,
        "sampleSeconds": 3.0,
        "delaySeconds": 180.0,
        "delayedBy": "avg_over_time",
        "freshnessSeconds": 1.0,
    }
    assert [(each["seconds"], each["what"]) for each in found["terms"]] == [
        (12.0, "interval between samples"),
        (180.0, "avg_over_time"),
        (1.0, "freshness"),
        (15.0, "sync period of the controller"),
        (9.0, "start of a new pod"),
    ]
    assert (found["longestSeconds"], found["meanSeconds"]) == (217.0, 203.0)
    assert (found["podReadySeconds"], found["podFirstSampleSeconds"]) == (9.0, None)
    assert reaction.document([None], [])["terms"] == []


@pytest.mark.parametrize(
    ("interval", "seconds", "freshness", "cure"),
    [
        (45.0, 0.0, 0.0, ""),
        (46.0, 0.0, 1.0, "Scrape more often"),
        (5.0, 180.0, 1.0, "Shorten the range"),
        (5.0, 0.0, 60.0, "Shorten `freshness`"),
    ],
)
def test_a_reaction_of_more_than_a_minute_has_a_cure_of_its_longest_term(
    interval: float, seconds: float, freshness: float, cure: str
) -> None:
    delay = Delay(seconds=seconds, function="avg_over_time" if seconds else "")
    metric = Reaction(interval=interval, sample=1.0, delay=delay, freshness=freshness)

    found = reaction.slow("util", metric)

    assert (found is not None) == bool(cure)
    if found:
        assert found.cure.startswith(cure)
        assert found.sentence.startswith("util: shows a change of load in full within ")
