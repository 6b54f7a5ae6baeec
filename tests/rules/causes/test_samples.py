"""Conclusions from the results of queries, beside those in the golden file.

The tests of the API have real results.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.causes import empty_results, ended, questions, samples
from rules.causes.reasons import Reason
from rules.kinds import NODES
from rules.query.aggregate import Sample
from tests import world

RULES = """
rules:
- seriesQuery: gpu_util
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})'
"""
NOW = 10_000.0


def asked(more="", names=("a", "b")):
    (question,) = questions.questions(world.pods_plan(RULES + more, "gpu_util", names))
    return question


def vector(value, **labels):
    return (Sample(labels=labels, value=float(value), time=NOW),)


EMPTY = {"answer": (), "here": (), "every": vector(9), "last": ()}
TARGETS = vector(1, job="gpu", instance="x:1")


@pytest.mark.parametrize(
    ("results", "reason", "sentence"),
    [
        ({}, Reason.NO_SAMPLE, "did not answer the queries for the cause: run `sum by (pod)"),
        (
            {**EMPTY, "answer": vector(1, pod="z"), "here": vector(2)},
            Reason.NO_SAMPLE,
            "the label pod of the result of its query is z, and none is for pods a, b",
        ),
        (
            {**EMPTY, "answer": vector(1, pod="z"), "named": vector(1)},
            Reason.NOT_SCRAPED,
            "and none is for pods a, b",
        ),
        (
            {**EMPTY, "excluded": (*vector(1), *vector(1))},
            Reason.NO_SAMPLE,
            "gpu_util has 2 series for pods a, b in namespace default, but not with the matchers",
        ),
        (
            {**EMPTY, "named": vector(2), "foreign": (), "mapped": vector(3)},
            Reason.NOT_SCRAPED,
            "3 series of gpu_util have the label exported_pod, and none is for pods a, b",
        ),
        ({**EMPTY, "answer": vector(1, pod="a")}, Reason.NO_SAMPLE, "has one now. Retry"),
        ({**EMPTY, "every": ()}, Reason.NO_SERIES, "Prometheus has no series of gpu_util now"),
        (
            {**EMPTY, "last": vector(NOW - 60), "targets": TARGETS},
            Reason.TARGET_GONE,
            "the target gpu/x:1 is not scraped any more; the last sample of gpu_util for pods a, b",
        ),
        (
            {**EMPTY, "named": vector(3), "foreign": ()},
            Reason.EXPORTER_ONLY,
            "the label pod of gpu_util has only the exporter's own pods",
        ),
        (
            {**EMPTY, "last": vector(NOW - 60), "present": vector(1, ns="default", container="a")},
            Reason.LABELS_MISSING,
            "gpu_util names the objects in the label container now; these series have no label pod",
        ),
        (
            {**EMPTY, "present": vector(1, pod="dcgm-x", exported_pod="b")},
            Reason.EXPORTER_ONLY,
            "exported_pod names the requested objects. Map exported_pod in `resources`",
        ),
        (
            {**EMPTY, "named": vector(3), "present": vector(1, pod="c", other="a")},
            Reason.NOT_SCRAPED,
            "3 series of gpu_util have the label pod",
        ),
        (
            {**EMPTY, "every": (), "scraped": ()},
            Reason.NO_SERIES,
            "no `up` of any target. Check that it scrapes the exporter, and that X-Scope-OrgID",
        ),
        (
            {**EMPTY, "named": vector(3)},
            Reason.NOT_SCRAPED,
            "3 series of gpu_util have the label pod, and none is for pods a, b",
        ),
    ],
)
def test_the_most_specific_cause_that_the_results_prove(results, reason, sentence):
    cause = samples.conclude(asked(), results, NOW)

    assert (cause.reason, cause.where.path) == (reason, "rules[0]")
    assert sentence in cause.sentence


@pytest.mark.parametrize(
    ("results", "reason", "sentence"),
    [
        (
            {"newest": vector(NOW - 90), "last": vector(NOW - 30)},
            Reason.SAMPLE_TOO_OLD,
            "is 1m30s old, which",
        ),
        ({"last": vector(NOW - 400)}, Reason.SAMPLE_TOO_OLD, "is 6m40s old, which is beyond"),
        ({}, Reason.SAMPLE_TOO_OLD, "is more than 1h old, which is beyond `maxSampleAge` (60 s)"),
        ({"newest": vector(NOW - 60)}, Reason.NO_SAMPLE, "has one now. Retry"),
        ({"answer": vector("NaN", pod="a")}, Reason.NOT_FINITE, "returned NaN for pods a, b"),
        (
            {"answer": vector(1, pod="z"), "here": vector(1)},
            Reason.NO_SAMPLE,
            "pod of the result of its query is z",
        ),
    ],
)
def test_a_value_of_old_samples_is_missing_because_of_their_age(results, reason, sentence):
    question = asked("  maxSampleAge: 1m\n")
    cause = samples.conclude(question, {**EMPTY, "answer": vector(1, pod="a"), **results}, NOW)

    assert "newest" in questions.queries(question)
    assert "newest" not in questions.queries(asked())
    assert (cause.reason, cause.where.path) == (reason, "rules[0]")
    assert sentence in cause.sentence


def test_targets_are_queried_only_if_series_ended():
    question, of_targets = asked(), {"targets", "up", "first", "count"}

    of_labels = {"present", "excluded", "mapped", "target"}
    assert set(questions.further(question, EMPTY)) == of_labels
    of_scrapes = {"scrapes", "first", "latest"}
    assert set(questions.further(question, {**EMPTY, "here": vector(1)})) == of_scrapes
    answered = {**EMPTY, "here": vector(1), "answer": vector(1, pod="a")}
    assert questions.further(question, answered) == {}
    assert questions.further(question, {"here": ()}) == {}
    assert set(questions.further(question, {**EMPTY, "last": vector(1)})) == {
        *of_labels,
        *of_targets,
    }
    assert set(questions.further(question, {**EMPTY, "every": ()})) == {
        "last",
        "scraped",
        "live",
        *of_targets,
    }


@pytest.mark.parametrize(
    ("query", "seconds", "why"),
    [
        ("rate(a[30s])", 20.0, "the range 30s is shorter than two scrapes"),
        ("rate(a[30s])", 15.0, ""),
        ("max_over_time(a[30s])", 20.0, ""),
        ("max_over_time(a[15s])", 20.0, "the range 15s is shorter than a scrape"),
        ("a", 20.0, ""),
    ],
)
def test_only_a_rate_needs_two_samples(query, seconds, why):
    assert empty_results.short_range(query, seconds).startswith(why)
    assert bool(empty_results.short_range(query, seconds)) == bool(why)


SUBQUERY = "avg_over_time(max by (pod) (a <= 100)[3m:15s])"


@pytest.mark.parametrize(
    ("query", "results", "sentence"),
    [
        (SUBQUERY, {}, "its subquery has one value each 15s, and the series began after the last"),
        (SUBQUERY.replace("15s", ""), {"first": vector(NOW - 8)}, "one value each 60s"),
        (SUBQUERY, {"first": vector(NOW - 60)}, "the query has no result"),
        ("a <= 100", {}, "the query has no result"),
        ("a <= 100", {"compared": vector(101)}, "so its comparison `<= 100` fails"),
        ("a != 1", {"compared": vector(1)}, "so its comparison `!= 1` fails"),
    ],
)
def test_a_comparison_that_holds_is_no_cause(query, results, sentence):
    results = {"scrapes": vector(1), "compared": vector(1), **results}
    found, cure = empty_results.why_empty(asked(), query, results, NOW)

    assert sentence in found
    assert ("fails" in found) == ("fails" in sentence)
    assert "comparison" not in cure or "fails" in found


@pytest.mark.parametrize(
    ("up", "present", "sentence"),
    [
        ((), ("a-1", "n"), "The requested pod is not scraped. Check that a ServiceMonitor"),
        (vector(0), ("a-1", "n"), "The requested pod is down for Prometheus (up = 0)"),
        (vector(1), ("a-1", "n"), "The requested pod is scraped (up = 1) without this series"),
        (vector(1), ("a-1", "m"), "If this pod counts the requests of others"),
    ],
)
def test_a_sibling_with_series_shows_how_the_requested_pod_is_scraped(up, present, sentence):
    text = RULES.replace("gpu_util", "requests")
    planned = world.pods_plan(text, "requests", ["a-0"], namespace="n")
    (question,) = questions.questions(planned)
    name, namespace = present
    of_sibling = vector(1, pod=name, **{question.step.binding.namespace: namespace})
    results = {**EMPTY, "every": vector(1), "named": vector(1), "present": of_sibling, "target": up}

    assert sentence in samples.conclude(question, results, NOW).sentence


@pytest.mark.parametrize(
    ("series", "command"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "`gpu-metrics-adapter presets scrape gpu-dcgm`"),
        ("vllm:num_requests_waiting", "`gpu-metrics-adapter presets scrape inference-vllm`"),
    ],
)
def test_the_cure_of_a_known_exporter_that_is_not_scraped_is_the_command(series, command):
    planned = world.pods_plan(RULES.replace("gpu_util", series), series, ["a"])
    (question,) = questions.questions(planned)

    cause = samples.conclude(question, {**EMPTY, "named": vector(1)}, NOW)

    assert (cause.reason, command in cause.cure) == (Reason.NOT_SCRAPED, True)


@pytest.mark.parametrize(
    ("results", "sentence"),
    [
        (
            {"named": vector(1)},
            (
                "1 series of gpu_util has the label pod, and none is for pod a in namespace "
                "default: the pod uses no GPU, or the exporter on its node is not scraped"
            ),
        ),
        (
            {"answer": vector(1, model="x", zone="y")},
            (
                "has no label pod (only model, zone). Aggregate by (<<.GroupBy>>) in "
                "`metricsQuery`; the query was `sum by"
            ),
        ),
        (
            {"answer": (*vector("NaN", pod="a"), *vector("Inf", pod="a"))},
            "returned +Inf and NaN for pod a in namespace default, and these are not values",
        ),
        (
            {"elsewhere": vector(1, ns="gpu", exported_ns="other")},
            "but has some whose label ns is gpu. If that is the right namespace, request the",
        ),
        (
            {
                "elsewhere": (
                    *vector(1, ns="gpu", exported_ns="default"),
                    *vector(1, ns="team", exported_ns="other"),
                )
            },
            (
                "but has some whose label ns is gpu and whose label exported_ns is default. Map "
                "exported_ns to namespace in `resources` of the rule, or scrape with"
            ),
        ),
    ],
)
def test_the_sentence_names_one_pod_and_what_to_do(results, sentence):
    cause = samples.conclude(asked(names=("a",)), {**EMPTY, **results}, NOW)

    assert sentence in cause.sentence


def test_only_pods_are_said_to_use_no_gpu():
    question = replace(asked(), resource=NODES)

    cause = samples.conclude(question, {**EMPTY, "named": vector(3)}, NOW)

    assert cause.sentence.endswith("the exporter does not report them, or is not scraped")


def test_a_rule_whose_series_did_not_end_has_no_cause():
    assert ended.of_rule(asked().rule, {"last": ()}, NOW) is None
