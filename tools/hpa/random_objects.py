"""Random HPAs with their targets, pods and metrics, as documents of the Kubernetes API."""

from __future__ import annotations

import dataclasses
import datetime as dt
import random
from typing import Any

from tools import documents

NAMESPACE = "random"
GROUP, KIND, PLURAL = "test.example.com", "Scalable", "scalables"
RUNTIME_CLASS = "heavy"
CUSTOM = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}"
EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}"
RESOURCE = f"/apis/metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/pods"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One HPA and everything that it depends on."""

    name: str
    hpa: dict[str, Any]
    target: dict[str, Any]
    pods: list[dict[str, Any]]
    """With their status, and the key `deleted` of `metadata` for those that are being deleted."""
    replies: dict[str, Any]
    """Path of a metric, and the name of the HPA for those of pods -> the items of the list."""


def case(number: int, seed: int) -> Case:
    """Return the case with this number."""
    draw = random.Random(f"{seed}/{number}")
    name = f"h{number}"
    low = draw.choice([1, 1, 1, 2, 3])
    high = low + draw.choice([0, 1, 4, 10, 100])
    wanted = draw.choice([low, low, high, draw.randint(low, high), high + 1, max(0, low - 1)])
    present = draw.choice([wanted, wanted, wanted, 0, wanted + 1])
    pods = [_pod(draw, name, f"{name}-{index}") for index in range(min(wanted, 4))]
    replies: dict[str, Any] = {}
    metrics = [
        _metric(draw, name, f"m{number}x{index}", pods, replies)
        for index in range(draw.choice([1, 1, 2, 3]))
    ]
    if any(each["type"] in {"Object", "External"} for each in metrics) and draw.random() < 0.1:
        low = 0
    behavior = _behavior(draw) if draw.random() < 0.5 else None
    bounds = {"minReplicas": low, "maxReplicas": high}
    return _case(name, bounds, metrics, behavior, (wanted, present), pods, replies)


def _case(
    name: str,
    bounds: dict[str, int],
    metrics: list[dict[str, Any]],
    behavior: Any,
    replicas: tuple[int, int],
    pods: list[dict[str, Any]],
    replies: dict[str, Any],
) -> Case:
    """Return a case; `replicas` are those of spec and status of the target."""
    version, metadata = f"{GROUP}/v1", {"name": name, "namespace": NAMESPACE}
    reference = {"apiVersion": version, "kind": KIND, "name": name}
    spec = {"scaleTargetRef": reference, **bounds, "metrics": metrics}
    return Case(
        name=name,
        hpa={
            "metadata": metadata,
            "spec": spec if behavior is None else spec | {"behavior": behavior},
        },
        target=target(name, *replicas),
        pods=pods,
        replies=replies,
    )


def target(name: str, spec: int, status: int) -> dict[str, Any]:
    """Return what an HPA scales, with these replicas in its spec and its status."""
    return documents.new(
        f"{GROUP}/v1",
        KIND,
        name,
        NAMESPACE,
        spec={"replicas": spec},
        status={"replicas": status, "selector": f"app={name}"},
    )


def chosen(
    number: int, kind: str, targeted: dict[str, str], *values: str, behavior: Any = None
) -> Case:
    """Return a case of two ready pods with one External or Object metric of these values."""
    name, metric = f"h{number}", f"m{number}x0"
    draw = random.Random(number)
    pods = [_pod(draw, name, f"{name}-{index}") for index in range(2)]
    for each in pods:
        each["metadata"]["deleted"] = False
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _time(3600)}
        each["status"] = {"phase": "Running", "conditions": [ready], "startTime": _time(3600)}
    key = "value" if "value" in targeted else "averageValue"
    of, path = "", f"{EXTERNAL}/{metric}"
    if kind == "Object":
        of, path = name, f"{CUSTOM}/{PLURAL}.{GROUP}/{name}/{metric}"
    items = [
        _custom(metric, name, each) if kind == "Object" else _external(metric, each)
        for each in values
    ]
    metrics = [_source(metric, kind, {"type": key[0].upper() + key[1:], **targeted}, of)]
    bounds = {"minReplicas": 1, "maxReplicas": 7}
    return _case(name, bounds, metrics, behavior, (2, 2), pods, {path: items})


def _value(draw: random.Random) -> str:
    """Return a value of a metric."""
    match draw.choice(["small"] * 6 + ["fraction"] * 2 + ["negative", "huge"]):
        case "small":
            return str(draw.randint(0, 200))
        case "fraction":
            return f"{draw.randint(1, 90_000)}m"
        case "negative":
            return f"-{draw.randint(1, 200_000)}{draw.choice(['m', '', 'G'])}"
        case _:
            digits = str(draw.randint(1, 9999))
            return digits + draw.choice(["M", "G", "T", "P", "E", "0" * draw.randint(6, 18)])


def _target(draw: random.Random, *types: str) -> dict[str, Any]:
    kind = draw.choice(types)
    if kind == "Utilization":
        return {"type": kind, "averageUtilization": draw.choice([1, 50, 80, 150])}
    texts = ["1", "5", "40", "40", "100", "100", "500m", "1m", "20k", "2G", "7T", "1P", "3E"]
    return {"type": kind, kind[0].lower() + kind[1:]: draw.choice(texts)}


def _metric(
    draw: random.Random,
    app: str,
    name: str,
    pods: list[dict[str, Any]],
    replies: dict[str, Any],
) -> dict[str, Any]:
    """Return a metric of an HPA, and add what the API answers to `replies`."""
    kind = draw.choice(["Pods", "Object", "External", "Resource", "ContainerResource"])
    absent = draw.random() < 0.06
    names = [each["metadata"]["name"] for each in pods]
    chance = draw.choice([1, 1, 0.6])
    if kind == "Pods":
        common = _value(draw)
        values = {
            each: common if draw.random() < 0.5 else _value(draw)
            for each in names
            if draw.random() < chance
        }
        items = [_custom(name, each, value) for each, value in values.items()]
        replies[f"{CUSTOM}/pods/*/{name}"] = None if absent else items
        return _source(name, kind, _target(draw, "AverageValue"))
    if kind == "Object":
        path = f"{CUSTOM}/{PLURAL}.{GROUP}/{app}/{name}"
        replies[path] = None if absent else [_custom(name, app, _value(draw))]
        return _source(name, kind, _target(draw, "Value", "AverageValue"), app)
    if kind == "External":
        values_of = [_value(draw) for _ in range(draw.choice([0, 1, 1, 1, 2, 3]))]
        items = [_external(name, each) for each in values_of]
        replies[f"{EXTERNAL}/{name}"] = None if absent else items
        return _source(name, kind, _target(draw, "Value", "AverageValue"))
    if app not in replies:
        usages = [_usage(draw, each) for each in pods if draw.random() < chance]
        replies[app] = None if absent else usages
    resource = draw.choice(["cpu", "memory"])
    target = _target(draw, "Utilization", "Utilization", "AverageValue")
    if kind == "Resource":
        return {"type": kind, "resource": {"name": resource, "target": target}}
    container = draw.choice(["a", "a", "s"])
    inner: dict[str, Any] = {"name": resource, "container": container, "target": target}
    return {"type": kind, "containerResource": inner}


def _source(name: str, kind: str, target: dict[str, Any], of: str = "") -> dict[str, Any]:
    """Return a metric of an HPA; `of` is the described object."""
    source: dict[str, Any] = {"metric": {"name": name}, "target": target}
    if of:
        source["describedObject"] = {"apiVersion": f"{GROUP}/v1", "kind": KIND, "name": of}
    return {"type": kind, kind.lower(): source}


def _custom(metric: str, name: str, value: str) -> dict[str, Any]:
    return {
        "describedObject": {"namespace": NAMESPACE, "name": name},
        "metric": {"name": metric},
        "timestamp": _time(0),
        "value": value,
    }


def _external(metric: str, value: str) -> dict[str, Any]:
    return {"metricName": metric, "metricLabels": {}, "timestamp": _time(0), "value": value}


def _usage(draw: random.Random, pod: dict[str, Any]) -> dict[str, Any]:
    spec = pod["spec"]
    names = [each["name"] for each in spec["containers"]]
    names += [each["name"] for each in spec["initContainers"] if "restartPolicy" in each]

    def usage() -> dict[str, str]:
        found = {"cpu": f"{draw.randint(0, 10**10)}n", "memory": f"{draw.randint(0, 10**7)}Ki"}
        if draw.random() < 0.05:
            del found[draw.choice([*found])]
        return found

    return {
        "metadata": {"name": pod["metadata"]["name"], "namespace": NAMESPACE},
        "timestamp": _time(draw.choice([0, 0, 100])),
        "window": draw.choice(["15s", "1m0s"]),
        "containers": [{"name": each, "usage": usage()} for each in names if draw.random() < 0.97],
    }


def _pod(draw: random.Random, app: str, name: str) -> dict[str, Any]:
    def container(name: str, **fields: Any) -> dict[str, Any]:
        requests = {"cpu": f"{draw.randint(1, 20)}00m", "memory": f"{draw.randint(1, 4000)}Mi"}
        for each in [*requests]:
            if draw.random() < 0.07:
                del requests[each]
        return {"name": name, "image": "none", "resources": {"requests": requests}, **fields}

    containers = [container(each) for each in "ab"[: draw.randint(1, 2)]]
    init = [container("i")] if draw.random() < 0.2 else []
    if draw.random() < 0.3:
        init.insert(draw.randint(0, len(init)), container("s", restartPolicy="Always"))
    spec: dict[str, Any] = {"containers": containers, "initContainers": init}
    if draw.random() < 0.3:
        own = {"cpu": "9", "memory": "20Gi"}
        if draw.random() < 0.6:
            del own[draw.choice([*own])]
        spec["resources"] = {"requests": own}
    if draw.random() < 0.2:
        spec["runtimeClassName"] = RUNTIME_CLASS
    started = draw.choice([3600, 3600, 3600, 20])
    ready = draw.choice(["True"] * 6 + ["False", "Unknown", ""])
    since = _time(draw.choice([started, max(0, started - 10), started / 2]))
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": since}
    phase = draw.choice(["Running"] * 8 + ["Pending", "Failed", "Succeeded"])
    status = {"phase": phase, "conditions": [condition] if ready else []}
    metadata = {"name": name, "labels": {"app": app}, "deleted": draw.random() < 0.06}
    return {
        "metadata": metadata,
        "spec": spec,
        "status": status | ({"startTime": _time(started)} if draw.random() < 0.95 else {}),
    }


def _behavior(draw: random.Random) -> dict[str, Any]:
    def policy() -> dict[str, Any]:
        return {
            "type": draw.choice(["Pods", "Percent"]),
            "value": draw.choice([1, 2, 4, 10, 50, 100, 2**31 - 1]),
            "periodSeconds": draw.choice([3, 15, 60]),
        }

    def rules() -> dict[str, Any]:
        found = {
            "selectPolicy": draw.choice(["Max", "Max", "Min", "Disabled"]),
            "policies": [policy() for _ in range(draw.randint(1, 3))],
            "stabilizationWindowSeconds": draw.choice([0, 0, 4, 60]),
            "tolerance": draw.choice(["0", "100m", "50m", "70m", "300u", "2"]),
        }
        for each in [*found]:
            if draw.random() < 0.3:
                del found[each]
        return found

    found = {"scaleUp": rules(), "scaleDown": rules()}
    if draw.random() < 0.3:
        del found[draw.choice([*found])]
    return found


def _time(age: float) -> str:
    """Return the time before `age` seconds as Kubernetes writes it."""
    time = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=age)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
