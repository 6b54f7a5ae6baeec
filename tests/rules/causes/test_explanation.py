from __future__ import annotations

import pytest

from rules.causes import explanation, explanation_text
from rules.causes.reasons import Reason
from rules.findings import Finding
from rules.kinds import NODES, PODS, GroupResource
from rules.query.aggregate import Sample
from tests.rules.causes.test_missing import (
    CONTAINERS,
    FILTERED,
    NODES_ALONE,
    RATES,
    STALE,
    UPPER,
    UTIL,
    inventory,
)

ASKED = {
    "metric": "duty_cycle",
    "resource": "pods",
    "namespace": "default",
    "name": "*",
    "labelSelector": "app=bert",
    "metricLabelSelector": "",
}


def considered(
    known, metric: str, resource: GroupResource | None = PODS, *, external: bool = False
) -> list[tuple[bool, str]]:
    entry = (
        known.catalog.external_entry(metric)
        if external
        else resource and known.catalog.entry(resource, metric)
    )
    shown = explanation.considered(known, metric, resource, external=external, entry=entry)
    return [(each["taken"], each["reason"]) for each in shown["items"]]


@pytest.mark.parametrize(
    ("known", "metric", "resource", "facts"),
    [
        (
            inventory(UTIL, UTIL, listed=[["gpu_util ns pod"]] * 2),
            "utilisation",
            PODS,
            [
                (True, "takes it from gpu_util"),
                (False, "a later rule has the same metric; `merge: true` in both would combine"),
            ],
        ),
        (
            inventory(UTIL, listed=[["gpu_util ns node"]]),
            "utilisation",
            PODS,
            [(True, "takes it from gpu_util, whose series have no label exported_pod, pod")],
        ),
        (
            inventory(UTIL, listed=[["gpu_util ns pod"]]),
            "utilisation",
            None,
            [(False, "it has the metric, but the cluster does not have the resource")],
        ),
        (
            inventory(NODES_ALONE, RATES, CONTAINERS, listed=[["power node"], [], []]),
            "queue",
            PODS,
            [
                (False, "the name does not match: it produces power"),
                (False, "the name does not match: it names metrics after series in another way"),
                (False, "the name does not match: it names metrics after series in another way"),
            ],
        ),
        (
            inventory(CONTAINERS, listed=[["container_cpu pod"]]),
            "container_memory",
            NODES,
            [(False, 'it names metrics after series, and no series of `{__name__=~"container_')],
        ),
        (
            inventory(FILTERED, listed=[["gpu_util pod"]]),
            "filtered",
            PODS,
            [(False, "`seriesFilters` or `name.matches` reject gpu_util")],
        ),
        (
            inventory(FILTERED, listed=[[]], statuses=[STALE]),
            "filtered",
            PODS,
            [(False, "its last relist failed: the adapter's log has the error")],
        ),
        (
            inventory(FILTERED, listed=[[]]),
            "filtered",
            PODS,
            [(False, 'Prometheus has no series of `{job="gpu"}`')],
        ),
    ],
)
def test_each_rule_says_why_it_takes_the_metric_or_not(known, metric, resource, facts) -> None:
    found = considered(known, metric, resource)

    assert [taken for taken, _ in found] == [taken for taken, _ in facts]
    for (_, reason), (_, beginning) in zip(found, facts, strict=True):
        assert reason.startswith(beginning)


def test_an_external_rule_takes_a_name_in_any_case() -> None:
    known = inventory(external=[UPPER], listed=[["DCGM_UTIL"]])

    found = considered(known, "dcgm_util", None, external=True)

    assert found == [(True, "takes it from DCGM_UTIL")]


def test_of_many_rules_the_first_ten_near_ones_are_shown() -> None:
    shown = explanation.considered(
        inventory(*[UTIL] * 30, listed=[["gpu_util ns pod"]] * 30),
        "utilisation",
        PODS,
        external=False,
        entry=None,
    )

    assert (shown["count"], len(shown["items"])) == (30, 10)


SAMPLE = {"labels": {"pod": "bert-0"}, "value": 23.5}


def query(**changes):
    return {
        "rule": "rules[0] (rules.yaml:2)",
        "source": "default",
        "series": "gpu_util",
        "wantedLabels": ["pod", "namespace"],
        "presentLabels": ["namespace", "pod", "uuid"],
        "promql": 'avg by (pod) (gpu_util{namespace="default",pod="bert-0"})',
        "samples": {"count": 1, "items": [SAMPLE]},
        "otherSamples": 0,
        "error": "",
        "seriesCount": 2,
        "newestSampleSeconds": 1.25,
        "oldestSampleSeconds": 3.5,
        "notes": [],
        **changes,
    }


def explained(asked=ASKED, **changes):
    rule = {
        "rule": "rules[0] (rules.yaml:2)",
        "taken": True,
        "reason": "takes it from gpu_util",
    }
    steps = {
        "rules": {"count": 9, "items": [rule]},
        "objects": explanation.shown(["bert-0"]),
        "entry": None,
        "queries": [query()],
        "values": explanation.shown_values([("bert-0", "23500m")]),
        "causes": (),
    }
    return explanation.document(asked, **{**steps, **changes})


@pytest.mark.parametrize(("length", "more"), [(1000, ""), (1001, "…")])
def test_the_value_of_a_label_is_shown_up_to_a_thousand_characters(length, more) -> None:
    found = explanation.sample(Sample({"pod": "x" * length}, 1.0, 0.0))

    assert found["labels"]["pod"] == "x" * 1000 + more


@pytest.mark.parametrize(("value", "shown"), [("nan", "NaN"), ("-inf", "-Inf"), ("1", 1.0)])
def test_numbers_that_json_does_not_have_are_text(value, shown) -> None:
    assert explanation.sample(Sample({}, float(value), 0.0))["value"] == shown


NAN = Finding(reason=Reason.NOT_FINITE, fact="returned NaN. Correct the query")
IDLE = Finding(reason=Reason.NOT_SCRAPED, fact="they use no GPU")
NONE = explanation.shown_values(())
EXTERNAL = {**ASKED, "metric": "wait_seconds", "resource": "", "name": "", "labelSelector": ""}
TWO = explanation.shown_values([("a=x", "2"), ("a=y", "3")])


@pytest.mark.parametrize(
    ("found", "outcome", "verdict"),
    [
        (
            explained(
                values=explanation.shown_values((f"p{i}", str(i)) for i in range(5)), queries=()
            ),
            "values",
            (
                "duty_cycle of pods/* in namespace default has the values 0 for p0, 1 for p1, 2 "
                "for p2 and 2 more. Nothing to do"
            ),
        ),
        (
            explained(asked=EXTERNAL, values=TWO, queries=[query(promql="sum by (a) (x)")]),
            "values",
            (
                "external metric wait_seconds in namespace default has the values 2 s for a=x, 3 s "
                "for a=y (oldest sample: 4 s). An HPA adds up these 2 values. Nothing to do"
            ),
        ),
        (
            explained(asked=EXTERNAL, values=TWO, queries=[query(promql="avg by (a) (x)")]),
            "values",
            (
                "external metric wait_seconds in namespace default has the values 2 s for a=x, 3 s "
                "for a=y (oldest sample: 4 s). An HPA adds up these 2 values, but each is by its "
                "query a mean, and a sum of means is not a mean. Select one item by "
                "`metric.selector`, or aggregate to one in metricsQuery"
            ),
        ),
        (
            explained(asked=EXTERNAL, values=explanation.shown_values([("a=x", "2")])),
            "values",
            (
                "external metric wait_seconds in namespace default has the value 2 s for a=x "
                "(oldest sample: 4 s). Nothing to do"
            ),
        ),
        (
            explained(values=NONE, causes=(NAN, IDLE)),
            "noValue",
            (
                "duty_cycle of pods/* in namespace default has no value: NotFinite: returned NaN. "
                "Correct the query"
            ),
        ),
        (
            explained(values=NONE),
            "noValue",
            (
                "duty_cycle of pods/* in namespace default has no value: it appeared or "
                "disappeared just now. Retry"
            ),
        ),
        (
            explained(values=NONE, failure="unable to list matching resources"),
            "unknown",
            (
                "duty_cycle of pods/* in namespace default: unable to list matching resources. See "
                "/readyz?verbose and the adapter's log"
            ),
        ),
    ],
)
def test_the_verdict_is_one_sentence_and_what_to_do(found, outcome, verdict) -> None:
    assert (found["outcome"], found["verdict"]) == (outcome, verdict)


def test_the_text_of_a_failed_query_has_its_error_and_long_text_is_wrapped() -> None:
    names = explanation.shown(f"bert-intent-detection-{i}" for i in range(99))
    failed = query(
        source="long-term", samples=None, error="bad_data: parse error", seriesCount=None
    )

    lines = list(explanation_text.lines(explained(queries=[failed], objects=names)))

    assert "  source  long-term" in lines
    assert "  error   bad_data: parse error" in lines
    assert "objects   99 objects, the first 10: bert-intent-detection-0" in "\n".join(lines)
    assert all(len(each) <= 100 for each in lines[:-1])


def test_a_label_cannot_control_the_terminal() -> None:
    hostile = {**SAMPLE, "labels": {"pod": "a\x1b[2J\u202eb\nVERDICT: fine"}}
    with_label = query(samples={"count": 1, "items": [hostile]})

    lines = list(explanation_text.lines(explained(queries=[with_label])))

    assert r"          {pod=a\x1b[2J\u202eb\nVERDICT: fine} 23.5" in lines


def test_of_a_forecast_both_values_and_the_reason_are_shown() -> None:
    ahead = {
        "served": True,
        "sentence": "the forecast is served: a total of 47 instead of the present 23.5",
        "valuesNow": explanation.shown_values([("bert-0", "23500m")]),
    }
    values = explanation.shown_values([("bert-0", "47")])

    document = explained(ahead=ahead, values=values)

    assert " has the forecast value 47 for bert-0" in document["verdict"]
    *_, value, why, now, _ = explanation_text.lines(document)
    assert value == "  bert-0 47"
    assert why == "ahead     the forecast is served: a total of 47 instead of the present 23.5"
    assert now == "  now     bert-0 23.5"
