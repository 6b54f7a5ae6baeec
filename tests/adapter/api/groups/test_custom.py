from __future__ import annotations

import pytest

from adapter import errors
from adapter.api.groups import GROUPS, custom
from adapter.api.groups.group import Backend, Resource
from adapter.http import request_info
from rules import ruleset
from rules.diagnosis.missing import Reason
from rules.errors import AmbiguousSampleError
from rules.kinds import GroupResource, Kinds
from rules.query import catalog as catalogs
from rules.query.aggregate import Value
from rules.query.catalog import Listing, Series
from tests.adapter import wired

RULES = """
rules:
- seriesQuery: 'gpu_util'
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
      node: {resource: node}
      deployment: {group: apps, resource: deployment}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'nothing'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<if eq .GroupBy "job">>x<<end>>'
"""
PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
NAMESPACES = GroupResource("", "namespaces")
DEPLOYMENTS = GroupResource("apps", "deployments")
LABELS = frozenset({"namespace", "pod", "node", "deployment"})


def value(number: int) -> Value:
    return Value(milli=number * 1000, time=100.5, samples=1)


@pytest.fixture
def objects():
    return wired.Objects(
        Kinds.builtin(),
        {
            (PODS, "default"): {"b": {"app": "web"}, "a": {"app": "web"}, "c": {"app": "db"}},
            (NODES, ""): {"n1": {}, "n2": {}},
            (NAMESPACES, ""): {"default": {}, "other": {}},
            (DEPLOYMENTS, "default"): {"d": {}},
        },
    )


@pytest.fixture
def evaluation():
    return wired.Evaluation(
        {
            (PODS, "a"): value(1),
            (PODS, "b"): value(2),
            (NODES, "n1"): value(3),
            (NAMESPACES, "default"): value(4),
            (DEPLOYMENTS, "d"): value(5),
        }
    )


@pytest.fixture
def absences():
    return wired.MissingMetrics()


@pytest.fixture
def backend(objects, evaluation, absences):
    compiled = ruleset.load([("rules.yaml", RULES)])
    listings = {
        rule.index: Listing(series=(Series(name=name, labels=LABELS),))
        for rule, name in zip(compiled.rules, ("gpu_util", "nothing"), strict=True)
    }
    catalog = catalogs.build(compiled, listings, objects.kinds)
    return Backend(
        catalog=lambda: catalog, objects=objects, evaluation=evaluation, absences=absences
    )


async def answer(backend, path, query="", version="v1beta2"):
    ask = request_info.parse(f"/apis/custom.metrics.k8s.io/{version}{path}", query)
    assert custom.routes(ask.below_version)
    return await custom.answer(ask, backend)


async def refused(backend, path, query=""):
    with pytest.raises(errors.ApiError) as caught:
        await answer(backend, path, query)
    return caught.value


def described(document):
    return {item["describedObject"]["name"]: item["value"] for item in document["items"]}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/namespaces/default/pods/a/gpu_util", {"a": "1"}),
        ("/namespaces/default/pod/a/gpu_util", {"a": "1"}),
        ("/namespaces/default/Pods/a/gpu_util", {"a": "1"}),
        ("/namespaces/default/pods./a/gpu_util", {"a": "1"}),
        ("/namespaces/default/pods/*/gpu_util", {"a": "1", "b": "2"}),
        ("/namespaces/default/pods/%2A/gpu_util", {"a": "1", "b": "2"}),
        ("/namespaces/default/pods//gpu_util", {"a": "1", "b": "2"}),
        ("/namespaces/default/deployments.apps/d/gpu_util", {"d": "5"}),
        ("/namespaces/default/deployments/d/gpu_util", {"d": "5"}),
        ("/nodes/n1/gpu_util", {"n1": "3"}),
        ("/nodes/*/gpu_util", {"n1": "3"}),
        ("/namespaces/default/metrics/gpu_util", {"default": "4"}),
        ("/namespaces/default/metrics/gpu_util/extra", {"default": "4"}),
        ("/namespaces/*/metrics/gpu_util", {"default": "4"}),
        ("/namespaces/default/gpu_util", None),
        ("/namespaces/default/nodes/n1/gpu_util", {"n1": "3"}),
    ],
)
async def test_each_route_describes_its_objects(backend, path, found):
    if found is None:
        assert (await refused(backend, path)).message == "invalid request path"
        return

    assert described(await answer(backend, path)) == found


async def test_items_stand_in_the_order_of_the_objects(backend):
    document = await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert list(described(document)) == ["b", "a"]


async def test_cluster_scoped_objects_below_a_namespace_are_described_without_it(
    backend, evaluation
):
    document = await answer(backend, "/namespaces/default/nodes/n1/gpu_util")

    assert "namespace" not in document["items"][0]["describedObject"]
    assert evaluation.asked[0].namespace == ""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/namespaces/default/pods/a/nope", "metric nope for pods"),
        ("/namespaces/default/pods/*/nope", "metric nope for pods"),
        ("/namespaces/default/pods/c/gpu_util", "metric gpu_util for pods c"),
        ("/namespaces/default/Bogus.x.y/a/gpu_util", "metric gpu_util for Bogus.x.y"),
        ("/namespaces/default/po/a/gpu_util", "metric gpu_util for po"),
        ("/namespaces/default/pods./c/gpu_util", "metric gpu_util for pods c"),
        ("/pods/a/gpu_util", "metric gpu_util for pods"),
        ("/pods/*/gpu_util", "metric gpu_util for pods"),
        ("/namespaces/default/namespaces/other/gpu_util", "metric gpu_util for namespaces"),
        ("/namespaces/other/metrics/gpu_util", "metric gpu_util for namespaces other"),
        ("/namespaces/default/status", "metric status for namespaces"),
        ("/namespaces/default/pods/a/nothing", "metric nothing for pods"),
        ("/namespaces/default/deployments.v1.apps/d/gpu_util", "gpu_util for deployments.v1.apps"),
    ],
)
async def test_what_has_no_value_is_not_found_in_the_originals_words(backend, path, message):
    error = await refused(backend, path)

    assert (error.code, error.reason, error.details) == (404, "NotFound", None)
    assert error.message.startswith("the server could not find the metric ")
    assert error.message.endswith(message)


@pytest.mark.parametrize(
    ("path", "subject", "reason"),
    [
        ("/namespaces/default/pods/*/nope", "pods/nope in namespace default", Reason.NO_SERIES),
        ("/nodes/*/nope", "nodes/nope", Reason.NO_SERIES),
        (
            "/namespaces/default/pods/a/a%0A%FFb",
            r'pods/a/"a\n\xffb" in namespace default',
            Reason.NO_SERIES,
        ),
        (
            "/namespaces/default/pods/c/gpu_util",
            "pods/c/gpu_util in namespace default",
            Reason.NO_SAMPLE,
        ),
        (
            "/namespaces/default/pods/over/gpu_util",
            "pods/over/gpu_util in namespace default",
            Reason.NO_OBJECT,
        ),
        (
            "/namespaces/default/Pod/a/nothing",
            "Pod/a/nothing in namespace default",
            Reason.NO_QUERY,
        ),
        ("/bogus.x/a/gpu_util", "bogus.x/a/gpu_util", Reason.UNKNOWN_RESOURCE),
        ("/pods/*/gpu_util", "pods/gpu_util", Reason.OTHER_SCOPE),
        (
            "/namespaces/default/namespaces/other/gpu_util",
            "namespaces/other/gpu_util in namespace default",
            Reason.OTHER_SCOPE,
        ),
        ("/namespaces/other/metrics/gpu_util", "namespaces/other/gpu_util", Reason.NO_SAMPLE),
    ],
)
async def test_a_missing_metric_says_at_which_stage_to_the_caller_and_the_log(
    backend, objects, absences, path, subject, reason
):
    objects.finished = {"over"}

    error = await refused(backend, path)

    assert [cause.reason for cause in error.causes] == [reason]
    assert not error.causes_visible  # whoever sends it decides
    assert absences.causes_visible == [(subject, error.causes)]


async def test_a_list_without_values_is_explained_to_the_log(backend, evaluation, absences):
    evaluation.known = {}

    document = await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert document["items"] == []
    assert absences.asked == evaluation.asked
    ((subject, (cause,)),) = absences.causes_visible
    assert (subject, cause.reason) == ("pods/gpu_util in namespace default", Reason.NO_SAMPLE)


async def test_nobody_is_told_why_what_is_there_is_missing(backend, absences):
    await answer(backend, "/namespaces/default/pods/*/gpu_util")
    await answer(backend, "/namespaces/default/pods/*/gpu_util", "labelSelector=app%3Dnone")

    assert absences.asked == absences.causes_visible == []


async def test_a_selector_that_selects_nothing_gives_an_empty_list_and_asks_nobody(
    backend, evaluation
):
    document = await answer(
        backend, "/namespaces/default/pods/*/gpu_util", "labelSelector=app%3Dnone"
    )

    assert document["items"] == []
    assert evaluation.asked == []


async def test_the_label_selector_chooses_the_objects(backend, evaluation):
    await answer(backend, "/namespaces/default/pods/*/gpu_util", "labelSelector=app%3Dweb")

    assert evaluation.asked[0].names == ("b", "a")


async def test_the_label_selector_of_a_single_object_is_ignored(backend):
    document = await answer(
        backend, "/namespaces/default/pods/a/gpu_util", "labelSelector=app%3Dnone"
    )

    assert described(document) == {"a": "1"}


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        (
            "labelSelector=a===b",
            400,
            "unable to parse requirement: found '=', expected: identifier",
        ),
        ("limit=abc", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("limit=abc&labelSelector=a===b", 400, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        (
            "metricLabelSelector=a===b",
            500,
            "unable to parse requirement: found '=', expected: identifier",
        ),
        (
            "fieldSelector=status.phase%3DRunning",
            400,
            (
                '"status.phase" is not a known field selector: '
                'only "metadata.name", "metadata.namespace"'
            ),
        ),
        ("fieldSelector=foo", 400, "invalid selector: 'foo'; can't understand 'foo'"),
        (
            "fieldSelector=metadata.name%3Dc",
            400,
            "fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "fieldSelector=metadata.name!%3Da",
            400,
            "fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "fieldSelector=metadata.namespace%3Ddefault",
            400,
            "fieldSelector metadata.name doesn't match requested name",
        ),
        (
            "metricLabelSelector=a%3E1",
            400,
            (
                "metricLabelSelector: a>1 cannot be answered, because no matcher of Prometheus "
                "compares numbers: use =, !=, in, notin, or the key alone"
            ),
        ),
    ],
)
async def test_options_that_cannot_be_met_are_refused(backend, evaluation, query, code, message):
    error = await refused(backend, "/namespaces/default/pods/a/gpu_util", query)

    assert (error.code, error.message) == (code, message)
    assert error.reason == ("BadRequest" if code == 400 else "")
    assert evaluation.asked == []


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("a", "fieldSelector=metadata.name%3Da"),
        ("*", "fieldSelector=metadata.name%3D*"),
        ("*", "watch=true&resourceVersionMatch=Exact&limit=1"),
        ("", "fieldSelector=metadata.namespace%3Ddefault"),
    ],
)
async def test_options_that_change_nothing_are_taken(backend, name, query):
    document = await answer(backend, f"/namespaces/default/pods/{name}/gpu_util", query)

    assert "a" in described(document)


async def test_a_field_selector_names_the_object_where_the_path_does_not(backend):
    document = await answer(
        backend, "/namespaces/default/pods//gpu_util", "fieldSelector=metadata.name%3Db"
    )

    assert described(document) == {"b": "2"}


@pytest.mark.parametrize(
    ("selector", "written"),
    [
        ("", None),
        ("code%3D200", {"matchLabels": {"code": "200"}}),
        (
            "code!%3D500",
            {"matchExpressions": [{"key": "code", "operator": "NotIn", "values": ["500"]}]},
        ),
    ],
)
async def test_the_metric_selector_is_passed_on_and_written_down(
    backend, evaluation, selector, written
):
    path, query = "/namespaces/default/pods/a/gpu_util", f"metricLabelSelector={selector}"

    new = await answer(backend, path, query)
    old = await answer(backend, path, query, version="v1beta1")

    assert new["items"][0]["metric"] == {"name": "gpu_util", "selector": written}
    assert old["items"][0]["selector"] == written
    assert evaluation.asked[0].selector.empty is (written is None)


@pytest.mark.parametrize("path", ["/namespaces/default", "/namespaces/default/", "/nodes/n1"])
async def test_a_path_that_is_too_short_is_refused_or_no_route(backend, path):
    ask = request_info.parse(f"/apis/custom.metrics.k8s.io/v1beta2{path}")
    if not custom.routes(ask.below_version):
        return

    assert (await refused(backend, path)).message == "invalid request path"


async def test_the_metrics_of_a_namespace_need_a_metric(backend):
    error = await refused(backend, "/namespaces/default/metrics/")

    assert (error.code, error.message) == (400, "invalid request path")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/namespaces/default/bogus/*/gpu_util", "unable to list matching resources"),
        ("/namespaces/default/pods/*/gpu_util", "unable to list matching resources"),
    ],
)
async def test_a_listing_that_fails_is_an_internal_error(backend, objects, path, message):
    objects.failure = errors.Refused("pods is forbidden", status=403)

    error = await refused(backend, path)

    assert (error.code, error.reason) == (500, "InternalError")
    assert error.message == f"Internal error occurred: {message}"
    assert error.details == {"causes": [{"message": message}]}
    assert error.__cause__ is not None


async def test_a_kind_that_was_installed_since_is_found(backend, objects):
    objects.discovered, objects.kinds = objects.kinds, Kinds.of(())

    document = await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert described(document) == {"a": "1", "b": "2"}


async def test_kinds_that_cannot_be_refreshed_leave_a_resource_unknown(backend, objects, caplog):
    objects.kinds, objects.failure = Kinds.of(()), errors.Unreachable("no route")

    error = await refused(backend, "/namespaces/default/pods/a/gpu_util")

    assert error.message == "the server could not find the metric gpu_util for pods"
    assert "no route" in caplog.text


@pytest.mark.parametrize(
    "failure", [errors.Unreachable("no route"), AmbiguousSampleError("two samples for pod a")]
)
async def test_an_evaluation_that_fails_is_an_internal_error(backend, evaluation, failure):
    evaluation.failure = failure

    error = await refused(backend, "/namespaces/default/pods/*/gpu_util")

    assert error.message == "Internal error occurred: unable to fetch metrics"
    assert error.__cause__ is failure


async def test_a_finished_pod_is_never_asked_about(backend, objects, evaluation):
    objects.finished.add("a")

    error = await refused(backend, "/namespaces/default/pods/a/gpu_util")

    assert error.message == "the server could not find the metric gpu_util for pods a"
    assert evaluation.asked == []


async def test_a_pod_of_unknown_state_is_asked_about(backend, objects, caplog):
    objects.failure = errors.TimedOut("10 s")

    document = await answer(backend, "/namespaces/default/pods/a/gpu_util")

    assert described(document) == {"a": "1"}
    assert "is unknown, so its metrics are asked for all the same" in caplog.text


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/a/b/c", True),
        ("/namespaces/ns/metrics/m", True),
        ("/namespaces/ns/pods/p/m", True),
        ("/namespaces/ns/metrics/m/x", True),
        ("", False),
        ("/", False),
        ("/nodes", False),
        ("/nodes/n", False),
        ("/namespaces/ns/pods/p", False),
        ("/nodes/n/m/", False),
        ("/namespaces/ns/pods/p/m/", False),
        ("/x/ns/pods/p/m", False),
        ("/namespaces/ns/pods/p/m/extra", False),
    ],
)
def test_routes_are_those_of_the_original(path, found):
    ask = request_info.parse(f"/apis/custom.metrics.k8s.io/v1beta2{path}")

    assert custom.routes(ask.below_version) is found


def test_discovery_lists_each_metric_of_each_resource(backend):
    listed = custom.resources(backend.catalog())

    assert (
        Resource(
            name="deployments.apps/gpu_util",
            namespaced=True,
            kind="MetricValueList",
            verbs=("get",),
        )
        in listed
    )
    assert {entry.name: entry.namespaced for entry in listed}["nodes/gpu_util"] is False


def test_the_group_is_served():
    assert custom in GROUPS
