"""The requests of the controller in their order, and what follows from the replies."""

from __future__ import annotations

from typing import Any

import pytest

from rules.errors import UnreadableError
from rules.hpa import decision, reading, report
from rules.hpa.reading import ApiReply, ApiRequest, Observation
from tests.rules.hpa.documents import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    document,
    external_metric,
    object_metric,
    pods_metric,
    resource_metric,
)

NOW = 1_000_000.0
HPA = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/gpu-hpa"
SCALE = "/apis/apps/v1/namespaces/default/deployments/serving/scale"
PODS = "/api/v1/namespaces/default/pods"
CUSTOM = "/apis/custom.metrics.k8s.io"
VALUES = f"{CUSTOM}/v1beta2/namespaces/default/pods/*/duty_cycle_current"
OBJECT = f"{CUSTOM}/v1beta2/namespaces/default/deployments.apps/cuda-test/cuda_test_gpu_avg"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"
RESOURCE = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods"


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"}]
    containers = [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]
    status = {
        "phase": phase,
        "startTime": "1970-01-01T00:00:00Z",
        "conditions": conditions if phase == "Running" else [],
    }
    return {"metadata": {"name": name}, "spec": {"containers": containers}, "status": status}


def values(**by_pod: str) -> dict[str, Any]:
    return {
        "items": [
            {"describedObject": {"name": name}, "value": value} for name, value in by_pod.items()
        ]
    }


def documents(*metrics: dict[str, Any], replicas: int = 1, **spec: Any) -> dict[str, Any]:
    """Return the API server's documents by path."""
    versions = [{"version": "v1beta2"}, {"version": "v1beta1"}]
    return {
        HPA: document(*metrics, kind="deployment", **spec),
        "/apis/apps/v1": {
            "resources": [
                {"name": "deployments/scale", "kind": "Deployment"},
                {"name": "deployments", "kind": "Deployment"},
            ]
        },
        SCALE: {
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas, "selector": "app=serving"},
        },
        PODS: {"items": [pod(f"p{index}") for index in range(replicas)]},
        CUSTOM: {"preferredVersion": versions[0], "versions": versions},
        VALUES: values(p0="63"),
        OBJECT: values(deployment="12"),
        EXTERNAL: {"items": [{"value": "60"}, {"value": "40"}]},
        RESOURCE: {
            "items": [
                {
                    "metadata": {"name": "p0"},
                    "timestamp": "2026-01-01T00:10:00Z",
                    "window": "15s",
                    "containers": [{"name": "a", "usage": {"cpu": "900000000n"}}],
                }
            ]
        },
    }


def read(known: dict[str, Any]) -> tuple[Observation, list[ApiRequest]]:
    steps, requests = reading.read("default", "gpu-hpa", lambda: NOW), []
    try:
        request = next(steps)
        while True:
            requests.append(request)
            reply = known.get(request.path, ApiReply(status=404, message="not found"))
            reply = known.get(f"{request.path}?{request.params.get('labelSelector')}", reply)
            request = steps.send(reply if isinstance(reply, ApiReply) else ApiReply(document=reply))
    except StopIteration as stop:
        return stop.value, requests


def verdict(observation: Observation, *why: str) -> str:
    decided = decision.decide(
        observation.hpa, observation.scale.spec, observation.proposals, now=NOW
    )
    return report.verdict(observation, decided, why)


def test_the_requests_are_those_of_the_controller() -> None:
    target = {"type": "AverageValue", "averageValue": "30"}
    known = documents(
        pods_metric(),
        object_metric(type="Value", value="5"),
        external_metric(**target),
        resource_metric(type="Utilization", averageUtilization=50),
    )
    known[HPA]["spec"]["metrics"][2]["external"]["metric"]["name"] = "Queue_Length"

    observation, requests = read(known)

    assert requests == [
        ApiRequest(path=HPA),
        ApiRequest(path="/apis/apps/v1"),
        ApiRequest(path=SCALE),
        ApiRequest(path=PODS, params={"labelSelector": "app=serving"}),
        ApiRequest(path=CUSTOM),
        ApiRequest(path=VALUES, params={"labelSelector": "app=serving"}),
        ApiRequest(path=CUSTOM),
        ApiRequest(path="/apis/apps/v1"),
        ApiRequest(path=OBJECT),
        ApiRequest(path=EXTERNAL, params={"labelSelector": "queue=a"}),
        ApiRequest(path=RESOURCE, params={"labelSelector": "app=serving"}),
    ]
    assert [each.replicas for each in observation.proposals] == [2, 3, 4, 2]
    assert [each.metric.written(each.current) for each in observation.proposals] == [
        "63",
        "12",
        "100",
        "90%",
    ]


def test_a_metric_selector_and_a_namespace_are_requested_as_the_controller_does() -> None:
    metric = object_metric(type="Value", value="5")
    metric["object"]["describedObject"] = {"kind": "Namespace", "name": "other"}
    metric["object"]["metric"]["selector"] = {
        "matchExpressions": [{"key": "gpu", "operator": "In", "values": ["b", "a"]}]
    }

    _, requests = read(documents(metric))

    assert requests[-1] == ApiRequest(
        path=f"{CUSTOM}/v1beta2/namespaces/default/metrics/cuda_test_gpu_avg",
        params={"metricLabelSelector": "gpu in (a,b)"},
    )


@pytest.mark.parametrize(
    ("metric", "path", "reply", "error"),
    [
        (pods_metric(), VALUES, {"items": []}, "no metrics returned from custom metrics API"),
        (pods_metric(), VALUES, {"items": [{}]}, "the reply is not a list of values: KeyError"),
        (
            pods_metric(),
            CUSTOM,
            ApiReply(status=404, message="?"),
            "no custom metrics API (custom.metrics.k8s.io) registered",
        ),
        (pods_metric(), CUSTOM, ApiReply(status=503, message="unavailable"), "unavailable"),
        (
            object_metric(type="Value", value="5"),
            OBJECT,
            values(a="1", b="2"),
            "the custom metrics API server returned 2 results when we asked for exactly one",
        ),
        (
            object_metric(type="Value", value="5"),
            OBJECT,
            ApiReply(status=500, message="Internal error occurred: unable to fetch metrics"),
            "Internal error occurred: unable to fetch metrics",
        ),
        (
            external_metric(type="Value", value="5"),
            EXTERNAL,
            {"items": []},
            "no metrics returned from external metrics API",
        ),
        (
            resource_metric(type="Utilization", averageUtilization=50),
            RESOURCE,
            {"items": []},
            "no metrics returned from resource metrics API",
        ),
    ],
)
def test_a_metric_without_a_value_says_why_as_the_controller_does(
    metric: dict[str, Any], path: str, reply: Any, error: str
) -> None:
    (proposed,) = read(documents(metric) | {path: reply})[0].proposals

    assert proposed.replicas is None
    assert proposed.error.startswith(error)


@pytest.mark.parametrize("reply", [{"resources": []}, ApiReply(status=404, message="not found")])
def test_a_kind_that_the_cluster_lacks_is_named_with_its_cure(reply: Any) -> None:
    metric = object_metric(type="Value", value="5")
    metric["object"]["describedObject"]["apiVersion"] = "example.com/v1"
    observation, _ = read(documents(metric) | {"/apis/example.com/v1": reply})

    kind = metric["object"]["describedObject"]["kind"]
    assert f'no matches for kind "{kind}" in version "example.com/v1"' in verdict(observation)
    assert verdict(observation).endswith(
        ". Correct describedObject in the HPA, or install its CustomResourceDefinition"
    )


def test_a_pod_without_the_container_of_a_metric_is_left_out() -> None:
    metric = resource_metric(container="a", type="AverageValue", averageValue="1")
    known = documents(metric, replicas=2)
    other = {"name": "b", "usage": {"cpu": "1"}}
    (usage,) = known[RESOURCE]["items"]
    without = usage | {"metadata": {"name": "p1"}, "containers": [other]}
    known[RESOURCE] = {"items": [usage, without]}

    (proposed,) = read(known)[0].proposals

    assert (proposed.groups.missing, proposed.current) == (("p1",), 900)


@pytest.mark.parametrize(
    ("path", "reply", "error"),
    [
        (HPA, ApiReply(status=404, message='"gpu-hpa" not found'), '"gpu-hpa" not found'),
        (SCALE, ApiReply(status=403, message="forbidden"), "forbidden"),
        (
            "/apis/apps/v1",
            {"resources": []},
            'no matches for kind "deployment" in version "apps/v1"',
        ),
    ],
)
def test_what_the_controller_needs_must_be_readable(path: str, reply: Any, error: str) -> None:
    with pytest.raises(UnreadableError, match=error):
        read(documents(pods_metric()) | {path: reply})


def test_metrics_are_not_read_if_they_do_not_count() -> None:
    observation, requests = read(documents(pods_metric(), replicas=11))

    assert (observation.proposals, requests[-1].path) == ((), PODS)
    assert verdict(observation) == (
        "default/gpu-hpa scales deployment/serving to 10: the target has 11 replicas, more than "
        "maxReplicas"
    )


FAST = {
    "behavior": {
        "scaleUp": DEFAULT_UP,
        "scaleDown": DEFAULT_DOWN | {"stabilizationWindowSeconds": 0},
    }
}


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (
            documents(pods_metric()),
            (
                "default/gpu-hpa scales deployment/serving from 1 to 2 replicas: Pods metric "
                "duty_cycle_current is 63 of 40 %. Nothing to do"
            ),
        ),
        (
            documents(pods_metric("100")),
            (
                "default/gpu-hpa keeps 1 replica of deployment/serving: Pods metric "
                "duty_cycle_current is 63 of 100 %. Nothing to do"
            ),
        ),
        (
            documents(object_metric(type="Value", value="100"), replicas=3),
            (
                "default/gpu-hpa scales deployment/serving from 3 to 1, now or later: it depends "
                "on the highest recommendation of the last 300 s; Object metric cuda_test_gpu_avg "
                "of Deployment/cuda-test is 12 of 100. Wait, or shorten the window in spec.behavior"
            ),
        ),
        (
            documents(object_metric(type="Value", value="100"), replicas=3, **FAST),
            (
                "default/gpu-hpa scales deployment/serving from 3 to 1 replica: Object metric "
                "cuda_test_gpu_avg of Deployment/cuda-test is 12 of 100. Nothing to do"
            ),
        ),
        (
            documents(pods_metric(), object_metric(type="Value", value="5")) | {VALUES: {}},
            (
                "default/gpu-hpa scales deployment/serving from 1 to 3 replicas: Object metric "
                "cuda_test_gpu_avg of Deployment/cuda-test is 12 of 5; Pods metric "
                "duty_cycle_current has no value and is ignored. Nothing to do"
            ),
        ),
        (
            documents(resource_metric(type="Utilization", averageUtilization=50)) | {RESOURCE: {}},
            (
                "default/gpu-hpa keeps 1 replica of deployment/serving, because Resource metric "
                "cpu has no value: no metrics returned from resource metrics API. Run: "
                "gpu-metrics-adapter doctor"
            ),
        ),
        (
            documents(pods_metric(), replicas=0),
            (
                "default/gpu-hpa keeps 0 replicas of deployment/serving: scaling is disabled, "
                "because the target has 0 replicas. Set its replicas to at least 1"
            ),
        ),
    ],
)
def test_the_verdict_is_one_sentence_and_what_to_do(known: dict[str, Any], expected: str) -> None:
    assert verdict(read(known)[0]) == expected


FORBIDDEN = 'pods.custom.metrics.k8s.io is forbidden: User "system:serviceaccount:a:b" cannot list'


@pytest.mark.parametrize(
    ("kind", "message", "maximum", "expected"),
    [
        (
            "ScalingActive",
            FORBIDDEN,
            10,
            (
                f"the last sync ended with Failed: {FORBIDDEN}. For you, Pods metric "
                "duty_cycle_current is 63 of 40 %. You have this right, the HPA controller has "
                "not: grant it to the user in the message"
            ),
        ),
        (
            "ScalingActive",
            "Internal error occurred:\nunable",
            10,
            (
                "the last sync ended with Failed: Internal error occurred: unable. For you, Pods "
                "metric duty_cycle_current is 63 of 40 %. If the condition stays for a minute, the "
                "controller gets another answer than you. Run: gpu-metrics-adapter doctor"
            ),
        ),
        (
            "AbleToScale",
            "admission webhook refused",
            0,
            (
                "the last sync ended with Failed: admission webhook refused. Correct what the "
                "message names"
            ),
        ),
    ],
)
def test_a_failed_sync_is_told_although_the_metrics_have_values(
    kind: str, message: str, maximum: int, expected: str
) -> None:
    known = documents(pods_metric(), maxReplicas=maximum)
    condition = {"type": kind, "status": "False", "reason": "Failed", "message": message}
    known[HPA]["status"] = {"conditions": [condition]}

    found = verdict(read(known)[0])

    assert found.startswith("default/gpu-hpa keeps 1 replica of deployment/serving")
    assert found.endswith(expected)


@pytest.mark.parametrize(("observed", "outdated"), [(None, False), (2, False), (1, True)])
def test_a_failed_sync_of_an_earlier_spec_does_not_count(
    observed: int | None, outdated: bool
) -> None:
    """From Kubernetes 1.37 on, the status says which spec it is of."""
    known = documents(pods_metric())
    failed = {"type": "ScalingActive", "status": "False", "reason": "Failed", "message": "no"}
    known[HPA]["metadata"]["generation"] = 2
    known[HPA]["status"] = {"conditions": [failed]}
    if observed is not None:
        known[HPA]["status"]["observedGeneration"] = observed

    observation, _ = read(known)

    assert ("the last sync ended with Failed: no" in verdict(observation)) is not outdated
    decided = decision.decide(observation.hpa, 1, observation.proposals, now=NOW)
    lines = "\n".join(report.lines(observation, decided))
    assert ("desired: Failed, before the spec changed" in lines) is outdated


@pytest.mark.parametrize(
    "metric", [{"type": "Later", "later": {}}, {"type": "Pods", "pods": {"metric": {"name": "m"}}}]
)
def test_an_autoscaler_of_a_later_kubernetes_is_refused(metric: dict[str, Any]) -> None:
    with pytest.raises(UnreadableError, match=r"cannot be read: .*\. Its Kubernetes may be newer"):
        read(documents(metric))


def test_the_version_of_the_target_is_ignored_as_the_controller_does() -> None:
    known = documents(pods_metric())
    known[HPA]["spec"]["scaleTargetRef"]["apiVersion"] = "apps/v1beta9"
    version = {"groupVersion": "apps/v1", "version": "v1"}
    known["/apis/apps"] = {"preferredVersion": version, "versions": [version]}

    observation, requests = read(known)

    assert observation.scale.spec == 1
    assert [each.path for each in requests[1:5]] == [
        "/apis/apps/v1beta9",
        "/apis/apps",
        "/apis/apps/v1",
        SCALE,
    ]


def test_a_scale_without_a_selector_has_a_cure_of_its_own() -> None:
    known = documents(pods_metric())
    known[SCALE]["status"] = {"replicas": 1}

    assert verdict(read(known)[0]) == (
        "default/gpu-hpa keeps 1 replica of deployment/serving: the scale of deployment/serving "
        "has no selector. Let its controller set the selector in the status, and set its path as "
        "labelSelectorPath in the CustomResourceDefinition"
    )


@pytest.mark.parametrize("workers", [True, False])
def test_pods_of_a_group_that_the_scale_does_not_select_are_named(workers: bool) -> None:
    group = "leaderworkerset.sigs.k8s.io/name=llm"
    known = documents(pods_metric())
    known[SCALE]["status"]["selector"] = f"{group},leaderworkerset.sigs.k8s.io/worker-index=0"
    known[f"{VALUES}?{group}"] = values(p0="63", **({"w1": "90", "w2": "92"} if workers else {}))

    observation, _ = read(known)

    (proposed,) = observation.proposals
    assert proposed.others == (("w1", "w2") if workers else ())
    assert proposed.current == 63_000
    decided = decision.decide(observation.hpa, 1, observation.proposals, now=NOW)
    lines = "\n".join(report.lines(observation, decided))
    assert ("not selected by the scale: w1, w2" in lines) is workers
    assert verdict(observation).endswith(
        "is 63 of 40 %. The scale selects one pod of each group: the values of 2 pods do not "
        "count. If they should, use a metric of type Object of the target (`workloads` of the rule)"
        if workers
        else "is 63 of 40 %. Nothing to do"
    )


def test_a_range_leads_to_what_the_bounds_allow() -> None:
    low = documents(pods_metric("2k"), replicas=1, **FAST)
    known = documents(object_metric(type="Value", value="2k"), replicas=3, minReplicas=2)
    peak = {"type": "ScalingLimited", "status": "True", "reason": "ScaleUpLimit"}

    assert "keeps 1 replica" in verdict(read(low)[0])
    assert " from 3 to 2, now or later" in verdict(read(known)[0])
    known[HPA]["status"] = {"conditions": [peak]}
    assert " from 3 to between 2 and 6, now or later" in verdict(read(known)[0])


@pytest.mark.parametrize(
    ("name", "target", "value", "maximum", "advice"),
    [
        ("memory_used_bytes_current", "500m", "1Gi", 10, "m means thousandths. Write M or Mi"),
        ("gpu_utilization", "700m", "63", 10, "its target 0.7, a share of 1. Write the percenta"),
        ("gpu_utilization", "700m", "900m", 10, "Nothing to do"),
        ("gpu_utilization", "700m", "0", 10, "Nothing to do"),
        ("requests_waiting", "5", "4k", 1, "check that the target has the unit of the metric"),
        ("requests_waiting", "5", "12", 2, "Nothing to do"),
        ("queue_length", "5", "12", 1, "Raise maxReplicas to allow more"),
    ],
)
def test_a_target_in_another_unit_is_named(
    name: str, target: str, value: str, maximum: int, advice: str
) -> None:
    known = documents(pods_metric(target, name), maxReplicas=maximum, **FAST)
    known[VALUES.replace("duty_cycle_current", name)] = values(p0=value)

    assert advice in verdict(read(known)[0])


LINES = """\
HPA default/gpu-hpa
  target     deployment/serving, 1 to 10 replicas
  scale      3 wanted, 3 present, selector app=serving
  pods       3 match the selector: 2 ready, 1 Pending
  tolerance  10 % below the target, 10 % above
  last sync  3 replicas, 3 desired: ReadyForNewScale, ValidMetricFound
  scale up   Max of 4 pods in 15 s, 100 % in 15 s; window 0 s
  scale down Max of 100 % in 15 s; window 0 s
Metric 1: Pods metric duty_cycle_current
  current 63 of 40 % (AverageValue), ratio 1.575
  without a value: p1
    (they count as the target before a scale-down, and as 0 before a scale-up)
  not ready: p2 (they count as 0 before a scale-up)
  ratio with these pods: 0.525
  proposes 3 replicas (no change)
Decision
  recommended: 3, by Pods metric duty_cycle_current
  desired: 3"""


def test_the_lines_have_each_step() -> None:
    known = documents(pods_metric(), replicas=3, **FAST)
    known[PODS]["items"][2] = pod("p2", "Pending")
    conditions = [
        {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"},
        {"type": "ScalingActive", "status": "True", "reason": "ValidMetricFound"},
    ]
    known[HPA]["status"] = {"currentReplicas": 3, "desiredReplicas": 3, "conditions": conditions}

    observation, _ = read(known)
    decided = decision.decide(observation.hpa, 3, observation.proposals, now=NOW)

    assert "\n".join(report.lines(observation, decided)) == LINES
    document = report.document(observation, decided, "fine")
    assert document["metrics"][0]["missingPods"] == ["p1"]
    assert (document["desiredReplicas"], document["desiredRange"]) == (3, [3, 3])


@pytest.mark.parametrize(
    "behavior", [{}, {"scaleUp": {}}, {"scaleDown": None}, {"scaleUp": {"policies": None}}]
)
def test_a_behavior_without_policies_has_those_of_the_api_server(behavior: Any) -> None:
    observation, _ = read(documents(pods_metric("10"), behavior=behavior))
    decided = decision.decide(observation.hpa, 1, observation.proposals, now=NOW)
    text = "\n".join(report.lines(observation, decided))

    assert "  scale up   Max of 4 pods in 15 s, 100 % in 15 s; window 0 s" in text
    assert "  scale down Max of 100 % in 15 s; window 300 s" in text
    assert "limited by how fast a scale-up may be: 5" in text


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ({"type": "AverageValue", "averageValue": "5"}, "current -4 of 5 (AverageValue), ratio -0"),
        ({"type": "Value", "value": "5"}, "current -12 of 5 (Value), ratio -2.4"),
    ],
)
def test_a_negative_value_of_an_object_is_shown_as_it_is(
    target: dict[str, str], shown: str
) -> None:
    known = documents(object_metric(**target), replicas=3)
    known[OBJECT] = values(deployment="-12")
    observation, _ = read(known)
    decided = decision.decide(observation.hpa, 3, observation.proposals, now=NOW)
    text = "\n".join(report.lines(observation, decided))

    assert shown in text
    assert "proposes 0 replicas (the value is negative)" in text


def test_the_sum_of_an_external_metric_is_said_and_a_negative_one_is_a_finding() -> None:
    average = {"type": "AverageValue", "averageValue": "5"}
    known = documents(external_metric(**average))
    known[EXTERNAL] = {"items": [{"value": "4"}, {"value": "3"}]}
    observation, _ = read(known)
    decided = decision.decide(observation.hpa, 1, observation.proposals, now=NOW)

    assert "  the controller adds up 2 items: 4, 3" in report.lines(observation, decided)
    assert verdict(observation).endswith("External metric queue_length is 7 of 5. Nothing to do")
    known[EXTERNAL] = {"items": [{"value": "-3"}]}
    observation, _ = read(known)
    assert verdict(observation) == (
        "default/gpu-hpa scales deployment/serving from 1 to 4 replicas, limited by how fast a "
        "scale-up may be: External metric queue_length is -3 of 5. The value is below 0 "
        "(-3): Kubernetes 1.34 and later take a sum below 0 for an overflow and scale towards "
        "maxReplicas; older ones do not scale up. Write clamp_min(..., 0) in metricsQuery"
    )
