"""custom.metrics.k8s.io, over objects and values in memory; tests/parity has more requests."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from adapter import errors
from adapter.server.api.groups import custom, group, question
from adapter.server.api.groups.backend import Backend
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.negotiation import UNCHANGED
from rules.causes.reasons import Reason
from rules.findings import State
from rules.kinds import GroupResource, Kinds
from rules.query.aggregate import Value
from rules.query.ahead import Forecast
from rules.query.catalog import Catalog
from rules.selectors import selectors
from tests import world
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
      pool: {group: example.com, resource: gpupool}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
- seriesQuery: 'nothing'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<if eq .GroupBy "job">>x<<end>>'
"""
PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
NAMESPACES = GroupResource("", "namespaces")
DEPLOYMENTS = GroupResource("apps", "deployments")
POOLS = GroupResource("example.com", "gpupools")
LABELS = ("namespace", "pod", "node", "deployment", "pool")
KINDS = Kinds.of(
    (
        *Kinds.builtin().groups,
        world.group("example.com", "gpupools GpuPool*"),
    )
)


def value(number: int) -> Value:
    return Value(milli=number * 1000, time=100.5, samples=1)


@pytest.fixture
def objects():
    return wired.Objects(
        KINDS,
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
            (POOLS, "p1"): value(6),
        }
    )


@pytest.fixture
def collector():
    return wired.CauseCollector()


@pytest.fixture
def backend(objects, evaluation, collector):
    catalog = wired.catalog(RULES, "gpu_util", "nothing", labels=LABELS, kinds=objects.kinds)
    return Backend(
        generation=wired.generation(catalog),
        kinds=objects.kinds,
        objects=objects,
        evaluation=evaluation,
        collector=collector,
    )


async def answer(backend, path, query="", version="v1beta2"):
    info = request_info.parse(f"/apis/custom.metrics.k8s.io/{version}{path}", query)
    assert custom.routes(info.below_version)
    info = custom.to_object_scope(info, backend.kinds)
    deadline = asyncio.get_running_loop().time() + 60
    return (await group.answer(custom, info, backend, deadline=deadline)).build(UNCHANGED)


async def error_of(backend, path, query=""):
    with pytest.raises(errors.ApiError) as caught:
        await answer(backend, path, query)
    return caught.value


def info_of(path):
    return request_info.parse(f"/apis/custom.metrics.k8s.io/v1beta2{path}")


PODS_OF_WEB = "/namespaces/default/pods/*/gpu_util", "labelSelector=app%3Dweb"
RISING = Forecast(reason="Rising", now=3.0, expected=6.0, error=0.1)


@pytest.fixture
def ahead(backend, objects):
    """Return a backend whose rule looks ahead."""
    text = RULES.replace("  resources:", "  ahead: {season: 7d}\n  resources:", 1)
    catalog = wired.catalog(text, "gpu_util", "nothing", labels=LABELS, kinds=objects.kinds)
    return dataclasses.replace(backend, generation=wired.generation(catalog))


async def values(backend):
    return [each["value"] for each in (await answer(backend, *PODS_OF_WEB))["items"]]


async def predict(backend):
    info = request_info.parse(
        f"/apis/custom.metrics.k8s.io/v1beta2{PODS_OF_WEB[0]}", PODS_OF_WEB[1]
    )
    key = question.forecast_key(await question.resolve(info, backend))
    backend.forecasts.predict(key, (RISING,), season=604_800.0, horizon=240.0)


async def test_pods_have_the_values_of_a_forecast_only_if_their_rule_looks_ahead(backend, ahead):
    await predict(ahead)
    await predict(backend)

    assert await values(ahead) == ["4", "2"]
    assert await values(backend) == ["2", "1"]
    one = await answer(ahead, "/namespaces/default/pods/b/gpu_util")
    assert [each["value"] for each in one["items"]] == ["2"]  # no HPA sends this request


async def test_a_new_forecast_replaces_the_last_answer(ahead, evaluation, monkeypatch):
    monkeypatch.setattr(evaluation, "repeats", lambda *_: True)
    info = request_info.parse(
        f"/apis/custom.metrics.k8s.io/v1beta2{PODS_OF_WEB[0]}", PODS_OF_WEB[1]
    )
    requested = await custom.resolve(info, ahead)
    monkeypatch.setattr(ahead.objects, "present_names", lambda *_, **__: requested.names)
    query = custom.plan(requested)
    found = await custom.evaluate(requested, query, ahead, deadline=1e9)
    before = await custom.content(requested, query, found, ahead)
    assert before.is_current()

    await predict(ahead)

    assert not before.is_current()
    after, again = [await custom.content(requested, query, found, ahead) for _ in range(2)]
    assert after.is_current()
    assert after.sources[1] is again.sources[1] is not before.sources[1]


async def test_a_question_is_remembered_as_long_as_its_request(backend):
    info = info_of("/namespaces/default/pods/a/gpu_util")

    assert await question.resolve(info, backend) is await question.resolve(info, backend)
    del info
    assert len(backend.questions.cache) == 0


async def test_questions_of_a_team_and_of_others_are_remembered_together(backend):
    catalog = dataclasses.replace(Catalog.empty(), cluster=backend.generation.catalog)
    team = dataclasses.replace(backend, generation=wired.generation(catalog))
    infos = [info_of("/namespaces/default/pods/a/gpu_util") for _ in range(2)]

    for info, each in zip(infos, (team, backend), strict=True):
        await question.resolve(info, each)

    assert len(backend.questions.cache) == 2


@pytest.mark.parametrize("changed", ["catalog", "kinds"])
async def test_no_question_keeps_an_old_snapshot(backend, changed):
    infos = [info_of("/namespaces/default/pods/a/gpu_util") for _ in range(5)]
    catalog = backend.generation.catalog

    for info in infos:
        if changed == "catalog":
            catalog = dataclasses.replace(catalog)
            backend = dataclasses.replace(backend, generation=wired.generation(catalog))
        else:
            backend = dataclasses.replace(backend, kinds=Kinds.of(KINDS.groups))
        await question.resolve(info, backend)

    assert len(backend.questions.cache) == 1


def values_of(document):
    return {item["describedObject"]["name"]: item["value"] for item in document["items"]}


@pytest.mark.parametrize(
    ("objects_", "values", "namespace"),
    [
        ("namespaces/default/Pods/a", {"a": "1"}, "default"),
        ("namespaces/default/pods./a", {"a": "1"}, "default"),
        ("namespaces/default/pods/%2A", {"a": "1", "b": "2"}, "default"),
        ("namespaces/default/pods/", {"a": "1", "b": "2"}, "default"),
        ("namespaces/*/metrics", {"default": "4"}, ""),
        ("gpupools.example.com/p1", {"p1": "6"}, ""),
        # A named cluster-scoped object is answered below a namespace, too.
        ("namespaces/default/nodes/n1", {"n1": "3"}, ""),
        ("namespaces/default/Node/n1", {"n1": "3"}, ""),
        ("namespaces/default/gpupools.example.com/p1", {"p1": "6"}, ""),
        ("namespaces/default/gpupool/p1", {"p1": "6"}, ""),
    ],
)
async def test_each_route_answers_for_its_objects(backend, evaluation, objects_, values, namespace):
    document = await answer(backend, f"/{objects_}/gpu_util")

    assert values_of(document) == values
    assert evaluation.calls[0].namespace == namespace
    assert document["items"][0]["describedObject"].get("namespace", "") == namespace


@pytest.mark.parametrize(
    ("path", "query", "namespace"),
    [
        ("/namespaces/default/nodes/n1/m", "", ""),
        ("/namespaces/default/nodes//m", "fieldSelector=metadata.name%3Dn1", ""),
        ("/namespaces/default/gpupools.example/p1/m", "", ""),
        ("/namespaces/default/nodes/*/m", "", "default"),
        ("/namespaces/default/nodes/%2A/m", "", "default"),
        ("/namespaces/default/nodes//m", "", "default"),
        ("/namespaces/default/pods/a/m", "", "default"),
        ("/namespaces/default/namespaces/other/m", "", "default"),
        ("/namespaces/default/status", "", "default"),
        ("/namespaces/default/metrics/m", "", "default"),
        ("/namespaces/default/bogus/n1/m", "", "default"),
        ("/nodes/n1/m", "", ""),
    ],
)
def test_only_a_named_cluster_scoped_object_is_authorized_at_cluster_scope(path, query, namespace):
    info = request_info.parse(f"/apis/custom.metrics.k8s.io/v1beta2{path}", query)

    scoped = custom.to_object_scope(info, KINDS)

    assert scoped.namespace == namespace
    assert custom.to_object_scope(info, KINDS) is scoped
    assert (scoped.resource, scoped.name, scoped.verb) == (info.resource, info.name, info.verb)


@pytest.mark.parametrize(
    ("path", "message", "subject", "reason"),
    [
        ("pods/*/nope", "nope for pods", "pods/nope", Reason.NO_SERIES),
        ("/nodes/*/nope", "nope for nodes", "nodes/nope", Reason.NO_SERIES),
        ("pods/a/a%0A%FFb", "a\n\udcffb for pods", r'pods/a/"a\n\xffb"', Reason.NO_SERIES),
        ("pods./c/gpu_util", "gpu_util for pods c", "pods/c/gpu_util", Reason.NO_SAMPLE),
        (
            "pods/finished/gpu_util",
            "gpu_util for pods finished",
            "pods/finished/gpu_util",
            Reason.NO_OBJECT,
        ),
        (
            "pods/absent/gpu_util",
            "gpu_util for pods absent",
            "pods/absent/gpu_util",
            Reason.NO_OBJECT,
        ),
        ("nodes/*/gpu_util", "gpu_util for nodes", "nodes/gpu_util", Reason.OTHER_SCOPE),
        ("nodes//gpu_util", "gpu_util for nodes", "nodes/gpu_util", Reason.OTHER_SCOPE),
        ("Pod/a/nothing", "nothing for Pod", "Pod/a/nothing", Reason.NO_QUERY),
        (
            "/bogus.x/a/gpu_util",
            "gpu_util for bogus.x",
            "bogus.x/a/gpu_util",
            Reason.UNKNOWN_RESOURCE,
        ),
        ("po/a/gpu_util", "gpu_util for po", "po/a/gpu_util", Reason.UNKNOWN_RESOURCE),
        (
            "deployments.v1.apps/d/gpu_util",
            "gpu_util for deployments.v1.apps",
            "deployments.v1.apps/d/gpu_util",
            Reason.UNKNOWN_RESOURCE,
        ),
        ("/pods/*/gpu_util", "gpu_util for pods", "pods/gpu_util", Reason.OTHER_SCOPE),
        (
            "namespaces/other/gpu_util",
            "gpu_util for namespaces",
            "namespaces/other/gpu_util",
            Reason.OTHER_SCOPE,
        ),
        (
            "/namespaces/other/metrics/gpu_util",
            "gpu_util for namespaces other",
            "namespaces/other/gpu_util",
            Reason.NO_SAMPLE,
        ),
        ("status", "status for namespaces", "namespaces/default/status", Reason.NO_SERIES),
    ],
)
async def test_a_404_has_the_message_of_the_original_and_its_cause_which_is_logged(
    backend, objects, collector, path, message, subject, reason
):
    objects.finished = {"finished"}
    if not path.startswith("/"):
        path, subject = f"/namespaces/default/{path}", f"{subject} in namespace default"

    error = await error_of(backend, path)

    assert (error.code, error.reason, error.details) == (404, "NotFound", None)
    assert error.message == f"the server could not find the metric {message}"
    assert [cause.reason for cause in error.causes] == [reason]
    assert not error.causes_visible  # the router decides
    assert collector.causes_visible == [(subject, error.causes)]


async def test_a_pod_counts_as_present_while_the_api_server_fails(backend, objects):
    objects.failure = errors.Unreachable("gone")

    error = await error_of(backend, "/namespaces/default/pods/absent/gpu_util")

    assert [cause.reason for cause in error.causes] == [Reason.NO_SAMPLE]


async def test_the_cause_of_an_empty_list_is_logged(backend, evaluation, collector):
    evaluation.known = {}

    document = await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert document["items"] == []
    assert collector.calls == evaluation.calls
    ((subject, (cause,)),) = collector.causes_visible
    assert (subject, cause.reason) == ("pods/gpu_util in namespace default", Reason.NO_SAMPLE)


async def test_nothing_is_diagnosed_if_values_are_found(backend, collector):
    await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert collector.calls == collector.causes_visible == []


async def test_a_selector_without_objects_gives_an_empty_list_without_a_query_or_a_diagnosis(
    backend, evaluation, collector
):
    document = await answer(
        backend, "/namespaces/default/pods/*/gpu_util", "labelSelector=app%3Dnone"
    )

    ((subject, (cause,)),) = collector.causes_visible
    assert document["items"] == evaluation.calls == collector.calls == []
    assert (subject, cause.reason) == ("pods/gpu_util in namespace default", Reason.NO_OBJECT)


@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("/namespaces/Team/pods/a/gpu_util", "pods a"),
        ("/namespaces/te.am/pods/a/gpu_util", "pods a"),
        ("/namespaces/default/pods/../gpu_util", "pods .."),
        ("/namespaces/default/pods/a%25/gpu_util", "pods a%"),
        ("/namespaces/default/pods/" + "a" * 254 + "/gpu_util", "pods " + "a" * 254),
        ("/nodes/%ff/gpu_util", "nodes \udcff"),
        ("/namespaces/Te%22am/metrics/gpu_util", 'namespaces Te"am'),
    ],
)
async def test_a_name_that_kubernetes_refuses_is_a_missing_object(
    backend, evaluation, path, subject
):
    error = await error_of(backend, path)

    assert (error.code, error.reason, error.details) == (404, "NotFound", None)
    assert error.message == f"the server could not find the metric gpu_util for {subject}"
    assert [cause.reason for cause in error.causes] == [Reason.NO_OBJECT]
    assert evaluation.calls == []


async def test_all_objects_of_a_namespace_that_cannot_exist_are_none(backend, objects, evaluation):
    objects.failure = errors.Unreachable("not listed")

    document = await answer(backend, "/namespaces/Te.am/pods/*/gpu_util")

    assert (document["items"], evaluation.calls) == ([], [])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=abc&labelSelector=a===b", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("fieldSelector=foo", "invalid selector: 'foo'; can't understand 'foo'"),
        *(
            (f"fieldSelector={each}", "fieldSelector metadata.name doesn't match requested name")
            for each in ("metadata.name!%3Da", "metadata.namespace%3Ddefault")
        ),
        (
            "metricLabelSelector=a%3E1",
            (
                "metricLabelSelector: a>1 is not supported, because Prometheus matchers cannot "
                "compare numbers: use =, !=, in, notin, or the key alone"
            ),
        ),
    ],
)
async def test_invalid_options_are_refused(backend, evaluation, query, message):
    error = await error_of(backend, "/namespaces/default/pods/a/gpu_util", query)

    assert (error.code, error.reason, error.message) == (400, "BadRequest", message)
    assert evaluation.calls == []


@pytest.mark.parametrize(
    ("name", "query", "found"),
    [
        ("a", "fieldSelector=metadata.name%3Da", "a"),
        ("a", "labelSelector=app%3Dnone", "a"),
        ("*", "fieldSelector=metadata.name%3D*", "ab"),
        ("*", "resourceVersionMatch=Exact&limit=1&watch=true", "ab"),
        ("*", "labelSelector=app%3Dweb", "ab"),
        ("", "fieldSelector=metadata.namespace%3Ddefault", "ab"),
        ("", "fieldSelector=metadata.name%3Db", "b"),
    ],
)
async def test_selectors_choose_objects_and_other_options_have_no_effect(
    backend, evaluation, name, query, found
):
    document = await answer(backend, f"/namespaces/default/pods/{name}/gpu_util", query)

    assert "".join(sorted(values_of(document))) == found
    assert "labelSelector" not in query or "c" not in evaluation.calls[0].names


@pytest.mark.parametrize("resource", ["bogus", "pods"])
async def test_a_failed_list_is_an_internal_error(backend, objects, resource):
    objects.failure = errors.Refused("pods is forbidden", status=403)

    error = await error_of(backend, f"/namespaces/default/{resource}/*/gpu_util")

    message = "unable to list matching resources"
    assert (error.code, error.reason) == (500, "InternalError")
    assert error.message == f"Internal error occurred: {message}"
    assert error.details == {"causes": [{"message": message}]}
    assert error.__cause__ is not None


async def test_an_unknown_kind_is_discovered(backend):
    backend = dataclasses.replace(backend, kinds=Kinds.of(()))

    document = await answer(backend, "/namespaces/default/pods/*/gpu_util")

    assert values_of(document) == {"a": "1", "b": "2"}


async def test_a_kind_stays_unknown_if_discovery_fails(backend, objects, caplog):
    backend = dataclasses.replace(backend, kinds=Kinds.of(()))
    objects.failure = errors.Unreachable("no route")

    error = await error_of(backend, "/namespaces/default/pods/a/gpu_util")

    assert error.message == "the server could not find the metric gpu_util for pods"
    assert "no route" in caplog.text


@pytest.fixture
def aged(backend, objects):
    """The backend with a rule whose pods must have been Ready for a minute; `a` is old enough."""
    text = RULES.replace("  resources:", "  minPodAge: 1m\n  resources:", 1)
    catalog = wired.catalog(text, "gpu_util", labels=LABELS, kinds=objects.kinds)
    objects.ready = {"a": 60.0, "b": 59.0}
    return dataclasses.replace(backend, generation=wired.generation(catalog))


async def test_young_pods_are_left_out_of_a_list(aged, evaluation):
    info = info_of("/namespaces/default/pods/*/gpu_util")
    deadline = asyncio.get_running_loop().time() + 60
    content = await group.answer(custom, info, aged, deadline=deadline)

    assert values_of(content.build(UNCHANGED)) == {"a": "1"}
    assert evaluation.calls[0].names == ("a",)
    (cause,) = content.causes
    assert cause.reason == Reason.POD_TOO_YOUNG
    assert cause.sentence.startswith("rules[0] (rules.yaml:")
    assert cause.sentence.endswith(
        "leaves out pods until they have been Ready for 60 s (`minPodAge`): "
        "b, c in namespace default; the oldest has been for 59 s. Wait, or lower `minPodAge`"
    )


async def test_a_young_pod_alone_gets_404_with_the_cause_and_is_not_queried(aged, evaluation):
    error = await error_of(aged, "/namespaces/default/pods/b/gpu_util")

    assert error.code == 404
    assert [cause.reason for cause in error.causes] == [Reason.POD_TOO_YOUNG]
    assert evaluation.calls == []


async def test_a_list_of_young_pods_is_empty_and_has_the_cause(aged, objects, collector):
    objects.ready = {}
    document = await answer(aged, "/namespaces/default/pods/*/gpu_util")

    assert document["items"] == []
    ((_, (cause,)),) = collector.causes_visible
    assert cause.reason == Reason.POD_TOO_YOUNG
    assert cause.state is State.PENDING
    assert "none is Ready. Wait" in cause.sentence


async def test_only_pods_have_an_age(aged):
    assert values_of(await answer(aged, "/nodes/*/gpu_util")) == {"n1": "3"}
    assert values_of(await answer(aged, "/namespaces/default/metrics/gpu_util")) == {"default": "4"}


async def test_unknown_ages_are_an_error(aged, objects):
    objects.younger_failure = errors.BackendError("the API server is down")

    error = await error_of(aged, "/namespaces/default/pods/*/gpu_util")

    assert (error.code, error.message) == (
        500,
        "Internal error occurred: unable to list matching resources",
    )


@pytest.fixture
def of_pods(backend, objects):
    """The backend with a rule by which a metric of pods is also one of their workloads."""
    text = RULES.replace("  resources:", "  workloads: avg\n  resources:", 1)
    text = text.replace("      deployment: {group: apps, resource: deployment}\n", "")
    catalog = wired.catalog(text, "gpu_util", labels=LABELS, kinds=objects.kinds)
    objects.selectors[DEPLOYMENTS, "default"] = {
        "d": selectors.parse("app=web"),
        "none": selectors.parse("app=nothing"),
    }
    objects.known[DEPLOYMENTS, "default"] = {"d": {}, "none": {}, "new": {}}
    return dataclasses.replace(backend, generation=wired.generation(catalog))


async def test_the_value_of_a_deployment_is_that_of_its_pods(of_pods, evaluation):
    document = await answer(of_pods, "/namespaces/default/deployments.apps/d/gpu_util")

    assert values_of(document) == {"d": "1500m"}
    (item,) = document["items"]
    assert item["describedObject"] == {
        "kind": "Deployment", "namespace": "default", "name": "d", "apiVersion": "apps/v1"
    }  # fmt: skip
    (plan,) = evaluation.calls
    assert (plan.resource, sorted(plan.names)) == (PODS, ["a", "b"])


async def test_a_list_has_the_deployments_with_a_value(of_pods, evaluation):
    document = await answer(of_pods, "/namespaces/default/deployments.apps/*/gpu_util")

    assert values_of(document) == {"d": "1500m"}
    assert len(evaluation.calls) == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none", "If it is scaled to 0, use an external metric to scale from 0"),
        ("other", "deployments.apps other in namespace default does not exist"),
    ],
)
async def test_a_deployment_without_pods_gets_404_with_the_cause(
    of_pods, evaluation, name, sentence
):
    error = await error_of(of_pods, f"/namespaces/default/deployments.apps/{name}/gpu_util")

    assert error.code == 404
    (cause,) = error.causes
    assert cause.reason == Reason.NO_OBJECT
    assert sentence in cause.sentence
    assert evaluation.calls == []


async def test_a_target_whose_scale_is_not_read_gets_404_with_what_to_do(objects, evaluation):
    rollouts = GroupResource("argoproj.io", "rollouts")
    groups = (*KINDS.groups, world.group(rollouts.group, "rollouts Rollout"))
    kinds = Kinds.of(groups, [rollouts])
    text = RULES.replace("  resources:", "  workloads: avg\n  resources:", 1)
    catalog = wired.catalog(text, "gpu_util", labels=LABELS, kinds=kinds)
    objects.selectors[rollouts, "default"] = {"web": selectors.parse("app=web")}
    backend = Backend(
        generation=wired.generation(catalog),
        kinds=kinds,
        objects=objects,
        evaluation=evaluation,
        collector=wired.CauseCollector(),
    )

    document = await answer(backend, "/namespaces/default/rollouts.argoproj.io/web/gpu_util")
    error = await error_of(backend, "/namespaces/default/rollouts.argoproj.io/new/gpu_util")

    assert values_of(document) == {"web": "1500m"}
    (cause,) = error.causes
    assert cause.sentence == (
        "rollouts.argoproj.io new in namespace default: its scale has not been read yet, does not "
        "exist, or has no selector. Let an HPA refer to it, and let the adapter get "
        "rollouts/scale: it reads each scale once a minute"
    )


async def test_deployments_that_cannot_be_read_are_an_error(of_pods, objects):
    objects.failure = errors.BackendError("the API server is down")

    error = await error_of(of_pods, "/namespaces/default/deployments.apps/d/gpu_util")

    assert (error.code, error.message) == (
        500,
        "Internal error occurred: unable to list matching resources",
    )


async def test_a_pod_that_the_cluster_does_not_have_is_queried(backend, evaluation):
    evaluation.known[PODS, "absent"] = value(7)

    document = await answer(backend, "/namespaces/default/pods/absent/gpu_util")

    assert values_of(document) == {"absent": "7"}


async def test_a_pod_of_unknown_phase_is_queried(backend, objects, caplog):
    objects.failure = errors.TimedOut("10 s")

    document = await answer(backend, "/namespaces/default/pods/a/gpu_util")

    assert values_of(document) == {"a": "1"}
    assert "pod default/a: phase unknown; its metrics are queried anyway: 10 s" in caplog.text


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/a/b/c", True),
        ("/namespaces/ns/metrics/", True),
        ("/namespaces/ns/metrics/m/x", False),
        ("/namespaces/ns/metrics/m/", False),
        ("", False),
        ("/nodes/n/m/", False),
        ("/x/ns/pods/p/m", False),
    ],
)
def test_routes(path, found):
    info = request_info.parse(f"/apis/custom.metrics.k8s.io/v1beta2{path}")

    assert custom.routes(info.below_version) is found
