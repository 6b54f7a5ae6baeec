"""external.metrics.k8s.io: queries and answers; tests/parity has more requests."""

from __future__ import annotations

import json

import pytest

from adapter import errors
from rules.query.aggregate import ExternalValue, Value
from tests.adapter import wired

RULES = """
externalRules:
- seriesQuery: '{__name__=~"found_.*"}'
  resources: {namespaced: false}
  metricsQuery: '<<.Series>>'
- seriesQuery: 'queue_length'
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'Cluster_Total'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{a="b",<<.LabelMatchers>>})'
- seriesQuery: 'cluster_total'
  name: {as: CLUSTER_total}
  resources: {namespaced: false}
  metricsQuery: 'scalar(sum(up))'
- seriesQuery: 'nowhere'
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: 'unrenderable'
  resources: {namespaced: false}
  metricsQuery: '<<index .GroupBySlice 7>>'
"""
GROUP = "/apis/external.metrics.k8s.io/v1beta1"
QUEUE = f"{GROUP}/namespaces/team/queue_length"
LABELS = {"queue": "a", "__name__": "queue_length", "ns": "team"}


def row(milli, labels=LABELS, time=100.9):
    return ExternalValue(labels=labels, value=Value(milli=milli, time=time, samples=1))


@pytest.fixture
def evaluation():
    return wired.Evaluation(
        {},
        {
            "queue_length": [row(20500), row(1000, {"queue": "b"}, 99.0)],
            "Cluster_Total": [row(7000, {})],
            "CLUSTER_total": [row(3000, None)],
        },
    )


@pytest.fixture
async def get(evaluation):
    """A function that GETs a target and returns the status and the document."""
    catalog = wired.catalog(RULES, "found_one")
    handler = wired.build_router(catalog, evaluation=evaluation)

    async with wired.listening(handler) as port:

        async def fetch(target):
            reply = await wired.fetch(port, target)
            return reply.status, json.loads(reply.body)

        yield fetch


def queries(evaluation):
    return [plan.promql() for plan in evaluation.calls]


async def test_each_sample_is_an_item_with_sorted_labels_and_its_own_time(get):
    status, document = await get(QUEUE)

    assert status == 200
    assert document == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "queue_length",
                "metricLabels": {"__name__": "queue_length", "ns": "team", "queue": "a"},
                "timestamp": "1970-01-01T00:01:40Z",
                "value": "20500m",
            },
            {
                "metricName": "queue_length",
                "metricLabels": {"queue": "b"},
                "timestamp": "1970-01-01T00:01:39Z",
                "value": "1",
            },
        ],
    }
    assert list(document["items"][0]["metricLabels"]) == ["__name__", "ns", "queue"]


@pytest.mark.parametrize(
    ("target", "promql"),
    [
        (QUEUE, 'queue_length{ns="team"}'),
        (f"{GROUP}/namespaces/%2A/queue_length", 'queue_length{ns="*"}'),
        (f"{GROUP}/namespaces//queue_length", "queue_length{}"),
        (
            f"{QUEUE}?labelSelector=queue%3Da,b!%3Dc,d+in+(e,f),g,!h",
            'queue_length{b!="c",d=~"e|f",g!="",h="",queue="a",ns="team"}',
        ),
        (f"{QUEUE}?limit=1&timeoutSeconds=3&resourceVersion=0", 'queue_length{ns="team"}'),
        (f"{QUEUE}?watch=false", 'queue_length{ns="team"}'),
        (f"{QUEUE}?metricLabelSelector=a===b", 'queue_length{ns="team"}'),
        (f"{GROUP}/namespaces/team/Cluster_Total", 'sum(Cluster_Total{a="b",})'),
        (
            f"{GROUP}/namespaces/team/Cluster_Total?labelSelector=x",
            'sum(Cluster_Total{a="b",x!=""})',
        ),
        (f"{GROUP}/namespaces/team/found_one", "found_one"),
    ],
)
async def test_selector_and_namespace_become_matchers(get, evaluation, target, promql):
    status, _ = await get(target)

    assert status == 200
    assert queries(evaluation) == [promql]


@pytest.mark.parametrize(
    ("requested", "served"),
    [
        ("Cluster_Total", "Cluster_Total"),
        ("CLUSTER_total", "CLUSTER_total"),
        ("cluster_total", "CLUSTER_total"),
    ],
)
async def test_a_metric_matches_by_name_then_ignoring_case(get, evaluation, requested, served):
    status, document = await get(f"{GROUP}/namespaces/team/{requested}")

    assert status == 200
    assert [plan.metric for plan in evaluation.calls] == [served]
    assert [item["metricName"] for item in document["items"]] == [requested]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/namespaces/team/nope?labelSelector=a%3E1", "metric nope for "),
        ("/namespaces//nope", "metric nope for "),
        ("/namespaces/team/", "metric namespaces for "),
        ("/namespaces/default/", "metric namespaces for namespaces"),
        ("/namespaces/team/status", "metric namespaces for "),
        ("/namespaces/team/queue_Length ".replace(" ", "%20"), "metric queue_Length  for "),
    ],
)
async def test_an_unknown_metric_gets_the_404_of_the_original(get, evaluation, target, message):
    status, document = await get(GROUP + target)

    assert (status, document["reason"]) == (404, "NotFound")
    assert document["message"] == f"the server could not find the {message}"
    assert list(document["details"]) == ["causes"]
    assert evaluation.calls == []


@pytest.mark.parametrize(
    "path",
    [
        "/namespaces",
        "/namespaces/team",
        "/namespaces/team/queue_length/",
        "/namespaces/team/queue_length/x",
        "/watch/namespaces/team/queue_length",
        "/watch/namespaces/team",
        "/proxy/team/queue_length",
        "/namespaces/te%2Fam/queue_length",
        "//namespaces/team/queue_length",
        "/",
    ],
)
async def test_other_paths_are_not_routes(get, path):
    status, document = await get(GROUP + path)

    assert (status, document["details"]) == (404, {})
    assert document["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=x&labelSelector=a===b", 'strconv.ParseInt: parsing "x": invalid syntax'),
        ("fieldSelector=foo&watch", "invalid selector: 'foo'; can't understand 'foo'"),
        (
            "fieldSelector=spec.x%3Dy&watch",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "fieldSelector=metadata.name%3Da,metadata.name%3Db,b%3Dc",
            '"b" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "labelSelector=a%3E1",
            (
                "labelSelector: a>1 is not supported, because Prometheus matchers cannot compare "
                "numbers: use =, !=, in, notin, or the key alone"
            ),
        ),
    ],
)
async def test_invalid_options_are_refused(get, evaluation, query, message):
    status, document = await get(f"{QUEUE}?{query}")

    assert (status, document["reason"], document["message"]) == (400, "BadRequest", message)
    assert evaluation.calls == []


async def test_a_field_selector_must_not_contradict_the_path(get):
    status, document = await get(f"{GROUP}/namespaces/team/?fieldSelector=metadata.name%3Dx")

    assert status == 400
    assert document["message"] == "fieldSelector metadata.name doesn't match requested name"


@pytest.mark.parametrize(
    ("query", "reasons", "message"),
    [
        (
            "resourceVersionMatch=x&resourceVersion=1",
            ["FieldValueNotSupported"],
            (
                'resourceVersionMatch: Unsupported value: "x": '
                'supported values: "Exact", "NotOlderThan", ""'
            ),
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0&continue=x",
            ["FieldValueForbidden"] * 2,
            (
                "[resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue "
                "is provided, resourceVersionMatch: Forbidden: resourceVersionMatch "
                '"exact" is forbidden for resourceVersion "0"]'
            ),
        ),
    ],
)
async def test_contradicting_resource_version_options_are_invalid(get, query, reasons, message):
    status, document = await get(f"{QUEUE}?{query}")

    assert (status, document["reason"]) == (422, "Invalid")
    assert document["message"] == f'ListOptions.meta.k8s.io "" is invalid: {message}'
    assert [each["reason"] for each in document["details"]["causes"]] == reasons


@pytest.mark.parametrize(
    "query", ["resourceVersionMatch=NotOlderThan&resourceVersion=0", "resourceVersionMatch="]
)
async def test_valid_resource_version_options_are_ignored(get, query):
    status, _ = await get(f"{QUEUE}?{query}")

    assert status == 200


@pytest.mark.parametrize("metric", ["nowhere", "unrenderable"])
async def test_a_query_that_cannot_be_rendered_is_an_internal_error_with_a_logged_cause(
    get, metric, caplog
):
    status, document = await get(f"{GROUP}/namespaces/team/{metric}")

    assert (status, document["reason"]) == (500, "InternalError")
    assert document["message"] == "Internal error occurred: unable to fetch metrics"
    assert "externalRules[" in caplog.text


@pytest.mark.parametrize(
    ("failure", "message", "reason"),
    [
        (
            errors.Unreachable("no route to 10.0.0.9"),
            "Internal error occurred: unable to fetch metrics",
            "InternalError",
        ),
        (
            errors.NotInstantError("the query answers a matrix"),
            "encountered an unexpected query result type",
            None,
        ),
    ],
)
async def test_the_cause_of_a_failed_query_is_logged_and_not_sent(
    get, evaluation, caplog, failure, message, reason
):
    evaluation.failure = failure

    status, document = await get(QUEUE)

    assert (status, document["message"], document.get("reason")) == (500, message, reason)
    assert str(failure) not in json.dumps(document)
    assert str(failure) in caplog.text


async def test_discovery_lists_pinned_metrics_without_series(get):
    _, document = await get(GROUP)

    names = ["CLUSTER_total", "Cluster_Total", "found_one", "nowhere", "queue_length"]
    assert [each["name"] for each in document["resources"]] == [*names, "unrenderable"]


async def test_the_group_is_served_without_rules(evaluation):
    handler = wired.build_router(evaluation=evaluation)

    async with wired.listening(handler) as port:
        listed = await wired.fetch(port, GROUP)
        asked = await wired.fetch(port, QUEUE)

    assert (listed.status, json.loads(listed.body)["resources"]) == (200, [])
    assert asked.status == 404


@pytest.mark.parametrize(
    "namespace", ["Team", "te.am", "..", "a" * 64, "te%22am", "%ff", "team%0A", "team%25"]
)
async def test_a_namespace_that_cannot_exist_is_not_queried(get, evaluation, namespace):
    status, document = await get(f"{GROUP}/namespaces/{namespace}/queue_length")

    assert (status, document["items"], evaluation.calls) == (200, [], [])


async def test_a_metric_without_namespaces_ignores_the_name_of_the_namespace(get, evaluation):
    status, document = await get(f"{GROUP}/namespaces/Te.am/Cluster_Total")

    assert (status, len(document["items"])) == (200, 1)
