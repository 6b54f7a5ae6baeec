"""metrics.k8s.io: answers over a socket; tests/parity compares forms and errors with recordings."""

from __future__ import annotations

import json

import pytest

from adapter import errors
from adapter.server.api import groups
from adapter.server.api.groups import resource
from adapter.server.series import generation
from rules import ruleset
from rules.errors import PlanError
from rules.kinds import NODES, PODS, Kinds
from rules.query.catalog import Catalog
from rules.query.resource import Usage
from rules.ruleset import RuleSet
from tests.adapter import wired
from tests.rules.query.test_resource import queries

GROUP = "/apis/metrics.k8s.io/v1beta1"
LIST = f"{GROUP}/namespaces/a/pods"
OBJECTS = {
    (PODS, "a"): {"x": {"app": "web"}, "y": {}},
    (PODS, "b"): {"x": {"app": "web"}},
    (NODES, ""): {"n1": {"zone": "z"}, "n2": {}},
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1beta1;g=meta.k8s.io"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


@pytest.fixture
def evaluation():
    evaluation = wired.Evaluation({})
    evaluation.used = {
        ("cpu", "a", "x"): Usage(milli={"main": 250, "side": 500}, time=100.9),
        ("memory", "a", "x"): Usage(milli={"main": 1_048_576_000}, time=99.0),
        ("cpu", "a", "y"): Usage(milli={"main": 1000}, time=100.0),
        ("cpu", "b", "x"): Usage(milli={"main": 1}, time=100.0),
        ("memory", "b", "x"): Usage(milli={"main": 1000}, time=100.0),
        ("cpu", "", "n1"): Usage(milli={"": 1500}, time=100.0),
        ("memory", "", "n1"): Usage(milli={"": 500}, time=100.0),
    }
    return evaluation


@pytest.fixture
def objects():
    return wired.Objects(Kinds.builtin(), OBJECTS)


@pytest.fixture
def missing():
    return wired.CauseCollector()


@pytest.fixture
async def get(evaluation, objects, missing):
    """A function that GETs a target and returns the status, the document and the warning."""
    handler = wired.build_router(
        Catalog.empty(), objects, evaluation, resources=queries(), collector=missing
    )
    async with wired.listening(handler) as port:

        async def fetch(target, **headers):
            reply = await wired.fetch(port, target, headers=headers)
            return reply.status, json.loads(reply.body), reply.headers.get("Warning", "")

        yield fetch


def names(document):
    return [
        (each["metadata"].get("namespace"), each["metadata"]["name"]) for each in document["items"]
    ]


async def test_a_pod_has_its_containers_by_name_and_the_earliest_time(get):
    status, document, warning = await get(f"{LIST}/x")

    assert status == 200
    assert document == {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            "name": "x",
            "namespace": "a",
            "creationTimestamp": "1970-01-01T00:01:39Z",
            "labels": {"app": "web"},
        },
        "timestamp": "1970-01-01T00:01:39Z",
        "window": "3m0s",
        "containers": [
            {"name": "main", "usage": {"cpu": "250m", "memory": "1Mi"}},
            {"name": "side", "usage": {"cpu": "500m", "memory": "0"}},
        ],
    }
    assert warning == ""


async def test_a_list_lacks_objects_without_cpu_or_memory_and_says_so(get, missing):
    status, document, warning = await get(LIST)

    assert status == 200
    assert names(document) == [("a", "x")]
    assert "1 of 2 pods in namespace a has no memory: y." in warning
    assert missing.causes_visible == []  # only an empty list is logged


async def test_all_namespaces_are_listed_by_one_call_for_all_of_them(get, evaluation):
    _, document, _ = await get(f"{GROUP}/pods?labelSelector=app")

    assert names(document) == [("a", "x"), ("b", "x")]
    assert [(plan.metric, plan.namespace, plan.names) for plan in evaluation.calls] == [
        (metric, namespace, ("x",)) for namespace in ("a", "b") for metric in ("cpu", "memory")
    ]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("metadata.name=x", [("a", "x"), ("b", "x")]),
        ("metadata.name!=x", []),
        ("metadata.namespace=b", [("b", "x")]),
        ("metadata.name=x,metadata.namespace!=b", [("a", "x")]),
    ],
)
async def test_field_selectors_select_names_and_namespaces(get, fields, expected):
    _, document, _ = await get(f"{GROUP}/pods?fieldSelector={fields.replace('=', '%3D')}")

    assert names(document) == expected


async def test_nodes_have_usage_of_their_own(get):
    _, document, warning = await get(f"{GROUP}/nodes")

    (node,) = document["items"]
    assert node["usage"] == {"cpu": "1500m", "memory": "500m"}
    assert "1 of 2 nodes has no cpu: n2. resourceRules.cpu.nodeQuery" in warning


async def test_an_object_without_usage_is_not_found_and_logged(get, missing):
    status, document, warning = await get(f"{LIST}/y")

    assert status == 404
    assert document["message"] == 'podmetrics.metrics.k8s.io "a/y" not found'
    assert list(document["details"]) == ["name", "group", "kind", "causes"]
    assert "NoSample: 1 of 1 pods in namespace a has no memory: y." in warning
    ((subject, causes),) = missing.causes_visible
    assert subject == "pods.metrics.k8s.io/y in namespace a"
    assert [cause.reason.value for cause in causes] == ["NoSample"]


async def test_a_pod_with_a_value_that_is_not_finite_is_left_out_and_the_cause_says_so(
    get, evaluation
):
    evaluation.not_finite = {("memory", "a", "x")}

    status, document, warning = await get(f"{LIST}/x")
    assert (status, document["reason"]) == (404, "NotFound")
    assert (
        "NotFinite: 1 of 1 pods in namespace a has no memory: x. "
        "resourceRules.memory.containerQuery" in warning
    )
    assert "returned NaN or Inf for them" in warning
    assert "NoSample" not in warning

    evaluation.used["memory", "a", "y"] = Usage(milli={"main": 1000}, time=100.0)
    status, document, warning = await get(LIST)
    assert (status, names(document)) == (200, [("a", "y")])
    assert "NotFinite: 1 of 2 pods in namespace a has no memory: x." in warning


@pytest.mark.parametrize(
    ("failure", "warning"),
    [
        (errors.Unreachable("refused"), "PrometheusUnavailable: Prometheus cannot"),
        (PlanError("no label is mapped"), "NoQuery: no label is mapped"),
    ],
)
async def test_a_failed_query_gives_an_empty_list_with_a_warning(
    get, evaluation, missing, failure, warning
):
    evaluation.failure = failure

    status, document, said = await get(LIST)

    assert (status, document["items"]) == (200, [])
    assert warning in said
    assert [subject for subject, _ in missing.causes_visible] == [
        "pods.metrics.k8s.io in namespace a"
    ]


@pytest.mark.parametrize("failing", ["cpu", "memory"])
@pytest.mark.parametrize(
    ("target", "status"), [(LIST, 200), (f"{LIST}/x", 404), (f"{GROUP}/pods", 200)]
)
async def test_the_log_has_the_error_of_a_query_that_failed(
    get, evaluation, caplog, target, status, failing
):
    evaluation.failure = errors.Unreachable("connection refused by 10.0.0.7")
    evaluation.failing = frozenset({failing})

    got, _, warning = await get(target)

    assert got == status
    assert "PrometheusUnavailable" in caplog.text
    assert "connection refused by 10.0.0.7" in caplog.text
    assert "10.0.0.7" not in warning


async def test_a_list_without_an_object_that_has_both_is_logged(get, evaluation, missing):
    del evaluation.used["memory", "a", "x"]

    _, document, _ = await get(LIST)

    assert document["items"] == []
    ((subject, causes),) = missing.causes_visible
    assert subject == "pods.metrics.k8s.io in namespace a"
    assert [cause.reason.value for cause in causes] == ["NoSample"]


async def test_a_refused_query_names_the_key_to_correct(get, evaluation):
    evaluation.failure = errors.Refused("400", status=400)
    evaluation.failure.refusal = "parse error"

    _, _, warning = await get(f"{GROUP}/nodes")

    assert "QueryRefused: resourceRules.cpu.nodeQuery" in warning
    assert "parse error. Correct `nodeQuery`" in warning


@pytest.mark.parametrize("target", [LIST, f"{LIST}/x", f"{GROUP}/nodes"])
async def test_objects_that_cannot_be_read_are_an_internal_error(get, objects, target):
    objects.failure = errors.Unreachable("refused")

    status, document, _ = await get(target)

    assert status == 500
    assert document["message"] == "Internal error occurred: unable to list matching resources"


async def test_a_selector_without_objects_gives_an_empty_list_and_the_reason(get):
    status, document, warning = await get(f"{LIST}?labelSelector=app%3Dnone")

    assert (status, document["items"]) == (200, [])
    assert (
        "NoObject: no unfinished pod in namespace a matches the label selector app=none" in warning
    )


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/nodes/", 400),
        ("/namespaces/a/pods/", 400),
        ("/namespaces/a/pods/?fieldSelector=metadata.name%3Dx", 400),
        ("/pods/x", 404),
        ("/pods/", 404),
        ("/nodes/n1/x", 404),
        ("/namespaces/a/nodes", 404),
        ("/namespaces/a", 404),
        ("/namespaces/a/pods/x/y", 404),
        ("/watch/nodes", 404),
        ("/services", 404),
        ("/nodes?labelSelector=a%3D%3D%3Db", 400),
        ("/nodes/n1?labelSelector=a%3D%3D%3Db&watch=true&limit=x", 200),
    ],
)
async def test_only_the_routes_of_kubernetes_are_served(get, target, status):
    assert (await get(f"{GROUP}{target}"))[0] == status


async def test_an_object_as_a_table_has_the_sums_of_its_containers(get):
    _, document, _ = await get(f"{LIST}/x", Accept=TABLE)

    (row,) = document["rows"]
    assert row["cells"] == ["x", "750m", "1Mi", "3m0s"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_a_table_contains_whole_objects_on_request(get):
    _, document, _ = await get(f"{GROUP}/nodes?includeObject=Object", Accept=TABLE)

    (row,) = document["rows"]
    assert row["object"]["kind"] == "NodeMetrics"
    assert row["object"]["usage"] == {"cpu": "1500m", "memory": "500m"}


async def test_metadata_of_an_object_has_the_requested_version(get):
    _, document, _ = await get(f"{LIST}/x", Accept=PARTIAL)

    assert document["apiVersion"] == "meta.k8s.io/v1beta1"
    assert document["metadata"]["labels"] == {"app": "web"}


async def test_metadata_of_an_empty_list_is_null(get):
    _, document, _ = await get(f"{GROUP}/namespaces/none/pods", Accept=PARTIALS)

    assert document["items"] is None


@pytest.mark.parametrize(
    ("target", "accept", "status", "message"),
    [
        (
            LIST,
            PARTIAL,
            406,
            (
                "you requested PartialObjectMetadata, but the requested object is a list "
                "(*metrics.PodMetricsList)"
            ),
        ),
        (
            f"{LIST}/x",
            PARTIALS,
            406,
            (
                "you requested PartialObjectMetadataList, but the requested object is not a list "
                "(*metrics.PodMetrics)"
            ),
        ),
        (
            f"{LIST}?includeObject=All",
            TABLE,
            400,
            (
                'Unable to convert to Table as requested: includeObject: Invalid value: "All": '
                "must be 'Metadata', 'Object', 'None', or empty"
            ),
        ),
    ],
)
async def test_forms_that_do_not_fit_the_object_are_refused(get, target, accept, status, message):
    code, document, _ = await get(target, Accept=accept)

    assert (code, document["message"]) == (status, message)


def test_the_group_is_served_with_resource_rules_only():
    rules = ruleset.load([("f.yaml", "resourceRules: {window: 1m}")])
    without, having = (
        generation.build(each, {}, {}, Kinds.builtin()) for each in (RuleSet(), rules)
    )

    assert resource not in groups.served(without)
    assert groups.served(having) == groups.GROUPS
