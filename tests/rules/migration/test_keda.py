"""What KEDA refuses, and the values that it reads."""

import pytest
import yaml

from rules.document import yaml as documents
from rules.migration import keda
from tests.migrate.keda import scaled, trigger

CPU = {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}}


def read(changes=()):
    """Return what KEDA reads after the changes: path -> value, or None to remove the key."""
    document = scaled(triggers=[trigger(serverAddress="http://p/")])
    for path, value in dict(changes).items():
        node = document
        *above, last = path.split(".")
        for each in above:
            node = node[int(each)] if isinstance(node, list) else node.setdefault(each, {})
        if value is None:
            del node[last]
        else:
            node[last] = value
    node, problems = documents.load(yaml.safe_dump(document), file="so.yaml")
    assert not problems
    return keda.read(node)


TRIGGER = "spec.triggers.0"
METADATA = f"{TRIGGER}.metadata"
BEHAVIOR = "spec.advanced.horizontalPodAutoscalerConfig.behavior"


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("apiVersion", "example.com/v1", "is not keda.sh/v1alpha1"),
        ("metadata.name", "Web", "must be a DNS subdomain"),
        ("metadata.name", "a" * 64, "at most 63"),
        ("metadata.name", None, "must be a DNS subdomain"),
        ("metadata.namespace", "a.b", "must be a DNS label"),
        ("metadata.labels", {"a b": "c"}, "name part must"),
        ("metadata.labels", {"a": "b c"}, "valid label"),
        ("metadata.labels", ["a"], "must be a mapping"),
        ("spec.scaleTargetRef", {}, "name is missing"),
        ("spec.scaleTargetRef.name", "a/b", "must not contain"),
        ("spec.scaleTargetRef.kind", "DaemonSet", "apps/v1 has no DaemonSet"),
        ("spec.minReplicaCount", -1, "from 0 to"),
        ("spec.minReplicaCount", 1.5, "must be an integer"),
        ("spec.minReplicaCount", 101, "greater than maxReplicaCount, 100"),
        ("spec.maxReplicaCount", 0, "from 1 to"),
        ("spec.pollingInterval", 0, "from 1 to"),
        ("spec.cooldownPeriod", "long", "must be an integer"),
        ("spec.idleReplicaCount", 1, "must be less than minReplicaCount, 1"),
        ("spec.triggers", [], "has no trigger"),
        ("spec.triggers", "a", "must be a list"),
        ("spec.triggers", ["a"], "must be a mapping"),
        ("spec.fallback", {"replicas": 1}, "failureThreshold is missing"),
        ("spec.fallback", {"replicas": 1, "failureThreshold": -1}, "from 0 to"),
        ("spec.fallback", {"replicas": 1, "failureThreshold": 1, "behavior": "a"}, "none of"),
        ("spec.advanced", "a", "must be a mapping"),
        ("spec.advanced", {"horizontalPodAutoscalerConfig": {"name": "A"}}, "DNS subdomain"),
        (f"{BEHAVIOR}.scaleUp", {"stabilizationWindowSeconds": 3601}, "from 0 to 3600"),
        (f"{BEHAVIOR}.scaleUp", {"selectPolicy": "Most"}, "must be Max, Min or Disabled"),
        (f"{BEHAVIOR}.scaleUp", {"policies": []}, "must not be empty"),
        (f"{BEHAVIOR}.scaleUp", {"policies": [{"type": "Pods", "value": 1}]}, "periodSeconds is"),
        (
            f"{BEHAVIOR}.scaleUp",
            {"policies": [{"type": "Pod", "value": 0, "periodSeconds": 1801}]},
            "must be Pods or Percent",
        ),
        (f"{BEHAVIOR}.scaleUp", {"tolerance": "-1"}, "0 or more"),
        (f"{TRIGGER}.type", "promtheus", "has no type promtheus"),
        (f"{TRIGGER}.type", None, "type is missing"),
        (f"{TRIGGER}.metadata", None, "metadata is missing"),
        (f"{TRIGGER}.metricType", "Utilization", "AverageValue or Value"),
        (f"{TRIGGER}.authenticationRef", {"kind": "Secret", "name": "a"}, "none of"),
        (f"{TRIGGER}.authenticationRef", {}, "name is missing"),
        (f"{METADATA}.query", " ", "query is missing"),
        (f"{METADATA}.serverAddress", None, "serverAddress is missing"),
        (f"{METADATA}.threshold", "1e999", "not a JSON number"),
        (f"{METADATA}.threshold", "+5", "not a JSON number"),
        (f"{METADATA}.threshold", "05", "not a JSON number"),
        (f"{METADATA}.threshold", "0.0004", "not positive"),
        (f"{METADATA}.threshold", "1e16", "too large"),
        (f"{METADATA}.threshold", ["1"], "must be text"),
        (f"{METADATA}.activationThreshold", "many", "not a JSON number"),
        (f"{METADATA}.unsafeSsl", "yes", "must be true or false"),
        (f"{METADATA}.queryParameters", "a=b,", "must be KEY=VALUE"),
        (f"{METADATA}.customHeaders", "a=b=c", "must be KEY=VALUE"),
        (f"{METADATA}.authModes", "bearer,basic", "only one of"),
        (f"{METADATA}.authModes", "Bearer", "must be some of"),
        (f"{METADATA}.timeout", "-1s", "must be a duration"),
        (f"{METADATA}.timeout", "soon", "must be a duration"),
        (TRIGGER, CPU | {"metricType": "Value"}, "Utilization or AverageValue"),
        (TRIGGER, CPU | {"metadata": {"value": "0"}}, "from 1 to"),
        (TRIGGER, CPU | {"metadata": {}}, "value is missing"),
        (TRIGGER, CPU | {"useCachedMetrics": True}, "not supported for cpu"),
        (TRIGGER, {**CPU, "metricType": "AverageValue", "metadata": {"value": "0"}}, "more than 0"),
        (TRIGGER, {**CPU, "metricType": "AverageValue", "metadata": {"value": "a"}}, "more than 0"),
    ],
)
def test_keda_or_the_api_server_refuses(path, value, words):
    found, refusals = read({"spec.triggers": [value]} if path == TRIGGER else {path: value})

    assert found is None
    assert any(words in each.message for each in refusals)
    assert {each.path[0] for each in refusals} == {path.partition(".")[0]}


def test_all_refusals_are_reported_together():
    changes = {f"{METADATA}.threshold": "x", f"{METADATA}.query": None, "spec.maxReplicaCount": 0}
    found, refusals = read(changes)

    assert found is None
    assert {each.path for each in refusals} == {
        ("spec", "maxReplicaCount"),
        ("spec", "triggers", 0),
        ("spec", "triggers", 0, "metadata", "threshold"),
    }


def test_cpu_and_memory_alone_need_one_replica_where_the_webhook_looks_at_the_target():
    resources = {"spec.triggers": [CPU], "spec.minReplicaCount": 0}
    rollout = {"spec.scaleTargetRef": {"apiVersion": "a.io/v1", "kind": "Rollout", "name": "web"}}

    assert read(resources)[0] is None
    assert read(resources | rollout)[0].minimum == 0


def test_values_are_trimmed_and_defaults_are_those_of_keda():
    found, _ = read(
        {
            f"{METADATA}.threshold": " 1.0005e1 ",
            f"{METADATA}.namespace": " a ",
            f"{METADATA}.queryParameters": " k = v w , x=y ",
            f"{METADATA}.customHeaders": "B=2,A=1",
        }
    )

    (trigger,) = found.triggers
    assert (found.minimum, found.maximum, found.idle) == (1, 100, None)
    assert found.target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert (trigger.target, trigger.type, trigger.ignore_null) == (10005, "AverageValue", True)
    assert trigger.server.address == "http://p?namespace=a&k=v+w&x=y"
    assert trigger.server.headers == (("A", "1"), ("B", "2"))


@pytest.mark.parametrize(
    ("value", "is_set"), [("true", True), ("", True), ("no", True), ("false", False), ("0", False)]
)
def test_any_text_but_a_false_boolean_sets_an_annotation(value, is_set):
    found, _ = read({"metadata.annotations": {keda.PAUSED: value}})

    assert found.is_annotated(keda.PAUSED) == is_set
    assert not found.is_annotated(keda.FORCE_ACTIVATION)
