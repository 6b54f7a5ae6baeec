"""HorizontalPodAutoscaler (autoscaling/v2), its scale and its pods, read from API documents.

The API server has validated the documents. Those in files may lack the defaults of `spec.behavior`.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from rules import quantity
from rules.query import nature
from rules.selectors import selectors

Document = Mapping[str, Any]
MetricType = Literal["Pods", "Object", "External", "Resource", "ContainerResource"]
TargetType = Literal["Value", "AverageValue", "Utilization"]
Select = Literal["Max", "Min", "Disabled"]

TOLERANCE = 0.1
"""Default of `--horizontal-pod-autoscaler-tolerance` of kube-controller-manager."""
DEFAULT_POLICIES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "scaleUp": (
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ),
    "scaleDown": ({"type": "Percent", "value": 100, "periodSeconds": 15},),
}
"""What the API server fills in for each direction.
https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/autoscaling/v2/defaults.go"""
SYNC = 15.0
"""Default of `--horizontal-pod-autoscaler-sync-period`, in seconds."""
DOWNSCALE_WINDOW = 300
"""Default of `--horizontal-pod-autoscaler-downscale-stabilization`, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Reference to an object in the namespace of the HPA."""

    api_version: str
    kind: str
    name: str

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSpec:
    """One entry of `spec.metrics`."""

    type: MetricType
    name: str
    target: TargetType
    value: int
    """The target in thousandths; in per cent for Utilization."""
    selector: str = ""
    """Metric label selector in its canonical form."""
    described: Reference | None = None
    """The object of an Object metric."""
    container: str = ""
    """The container of a ContainerResource metric."""

    def __str__(self) -> str:
        subject = f" of {self.described}" if self.described else ""
        container = f" of container {self.container}" if self.container else ""
        return f"{self.type} metric {self.name}{subject}{container}"

    def written(self, value: int) -> str:
        """Return a value, or the target, as kubectl prints it."""
        return f"{value}%" if self.target == "Utilization" else quantity.decimal(value)

    @property
    def unit(self) -> str:
        """The unit of its values, as far as the name says it."""
        if self.type in {"Resource", "ContainerResource"}:
            return "B" if self.name == "memory" else ""
        return nature.unit(self.name)

    def readable(self, value: int) -> str:
        """Return a value, or the target, as sentences show it."""
        if self.target == "Utilization":
            return f"{value} %"
        return quantity.readable(value, self.unit)

    def readable_of_target(self, value: int | None) -> str:
        """Return a value and the target, as sentences show them: `19.8 of 20 %`."""
        if value is None:
            return f"no value of {self.readable(self.value)}"
        if self.target == "Utilization":
            return f"{value} of {self.value} %"
        return quantity.readable_of(value, self.value, self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One entry of `policies`: at most `value` pods, or per cent, in `period` seconds."""

    type: Literal["Pods", "Percent"]
    value: int
    period: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """`spec.behavior.scaleUp` or `.scaleDown`."""

    window: int
    """Stabilization window in seconds."""
    select: Select
    policies: tuple[Policy, ...]
    tolerance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """An HPA."""

    namespace: str
    name: str
    uid: str = ""
    target: Reference
    minimum: int
    maximum: int
    metrics: tuple[MetricSpec, ...]
    up: ScalingRules | None
    """None without `spec.behavior`; then `down` is None, too."""
    down: ScalingRules | None
    current: int
    """`status.currentReplicas`, of the last sync that changed the status."""
    desired: int
    """`status.desiredReplicas`, likewise."""
    last_scaled: float | None
    """When the HPA last changed the number of replicas, in Unix seconds; None if it never did."""
    conditions: Mapping[str, tuple[str, str, str]]
    """Type -> status, reason and message."""
    outdated: bool = False
    """Whether the status is of an earlier `spec`. Before Kubernetes 1.37, it does not say."""

    @property
    def tolerances(self) -> tuple[float, float]:
        """The tolerances for scaling down and up."""
        return (
            TOLERANCE if self.down is None else self.down.tolerance,
            TOLERANCE if self.up is None else self.up.tolerance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The scale subresource of the target."""

    spec: int
    status: int
    selector: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What the controller reads of a pod."""

    name: str
    phase: str
    deleted: bool = False
    ready: Literal["True", "False", "Unknown", ""]
    """Status of the condition Ready; empty if it is not set."""
    ready_since: float = 0.0
    """When that condition last changed, in Unix seconds."""
    created: float | None = None
    started: float | None = None
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Container -> resource -> request in thousandths."""
    pod_requests: Mapping[str, int] = field(default_factory=dict)
    """Requests of the whole pod, if `spec.resources` has some; empty if it has none."""


def autoscaler(document: Document) -> Autoscaler:
    """Read an HPA of autoscaling/v2."""
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    given = spec.get("behavior")
    up, down = (None, None) if given is None else behavior(given)
    return Autoscaler(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        target=reference(spec["scaleTargetRef"]),
        minimum=spec.get("minReplicas", 1),
        maximum=spec["maxReplicas"],
        metrics=tuple(map(metric, spec.get("metrics") or ())),
        up=up,
        down=down,
        current=status.get("currentReplicas", 0),
        desired=status.get("desiredReplicas", 0),
        last_scaled=_time(status.get("lastScaleTime")),
        conditions={
            each["type"]: (each["status"], each.get("reason", ""), each.get("message", ""))
            for each in status.get("conditions") or ()
        },
        outdated=metadata.get("generation", 0) > status.get("observedGeneration", math.inf),
    )


def behavior(document: Document) -> tuple[ScalingRules, ScalingRules]:
    """Read `spec.behavior`: the rules for scaling up, and those for scaling down."""
    return (
        _rules(document, "scaleUp", window=0),
        _rules(document, "scaleDown", window=DOWNSCALE_WINDOW),
    )


def scale(document: Document) -> Scale:
    """Read a scale subresource."""
    status = document.get("status") or {}
    return Scale(
        spec=(document.get("spec") or {}).get("replicas", 0),
        status=status.get("replicas", 0),
        selector=status.get("selector", ""),
    )


def pod(document: Document) -> Pod:
    """Read a pod."""
    metadata = document["metadata"]
    spec, status = document.get("spec") or {}, document.get("status") or {}
    conditions = status.get("conditions") or ()
    ready: Document = next((each for each in conditions if each["type"] == "Ready"), {})
    sidecars = filter(_is_sidecar, spec.get("initContainers") or ())
    return Pod(
        name=metadata["name"],
        phase=status.get("phase", ""),
        deleted=bool(metadata.get("deletionTimestamp")),
        ready=ready.get("status", ""),
        ready_since=_time(ready.get("lastTransitionTime")) or 0.0,
        created=_time(metadata.get("creationTimestamp")),
        started=_time(status.get("startTime")),
        requests={
            each["name"]: _requests(each) for each in (*(spec.get("containers") or ()), *sidecars)
        },
        pod_requests=_pod_requests(spec),
    )


def _is_sidecar(init_container: Document) -> bool:
    return bool(init_container.get("restartPolicy") == "Always")


def _pod_requests(spec: Document) -> Mapping[str, int]:
    """Return the requests of a pod that has its own: they replace the sum of its containers.

    Resources that `spec.resources` lacks keep that sum, or what an init container needs if that is
    more; the overhead of the RuntimeClass is added. Follows PodRequests of
    k8s.io/component-helpers/resource.
    """
    own = {
        name: value
        for name, value in _requests(spec).items()
        if name in {"cpu", "memory"} or name.startswith("hugepages-")
    }
    if not own:
        return {}
    total, sidecars, peak = Counter[str](), Counter[str](), Counter[str]()
    for container in spec.get("containers") or ():
        total.update(_requests(container))
    for container in spec.get("initContainers") or ():
        requests = _requests(container)
        if _is_sidecar(container):
            total.update(requests)
            sidecars.update(requests)
            peak |= sidecars
        else:
            peak |= sidecars + Counter(requests)
    requests = dict(total) | dict(total | peak) | own
    for name, value in _quantities(spec.get("overhead")).items():
        requests[name] = requests.get(name, 0) + value
    return requests


def _requests(owner: Document) -> dict[str, int]:
    return _quantities((owner.get("resources") or {}).get("requests"))


def _quantities(document: Document | None) -> dict[str, int]:
    return {name: quantity.milli_value(str(each)) for name, each in (document or {}).items()}


def metric(document: Document) -> MetricSpec:
    """Read one entry of `spec.metrics`."""
    kind: MetricType = document["type"]
    if kind not in get_args(MetricType):
        raise ValueError(f"{kind!r} is not a type of metrics")
    source = document[kind[0].lower() + kind[1:]]
    target = source["target"]
    of_type: dict[str, tuple[TargetType, Any]] = {
        "averageValue": ("AverageValue", target.get("averageValue")),
        "value": ("Value", target.get("value")),
        "averageUtilization": ("Utilization", target.get("averageUtilization")),
    }
    target_type, text = next(each for each in of_type.values() if each[1] is not None)
    identifier = source.get("metric") or {"name": source.get("name")}
    described, container = source.get("describedObject"), source.get("container", "")
    _check_texts(identifier["name"], container)
    return MetricSpec(
        type=kind,
        name=identifier["name"],
        selector=str(selectors.of_object(identifier.get("selector"))),
        target=target_type,
        value=int(text) if target_type == "Utilization" else quantity.milli_value(str(text)),
        described=None if described is None else reference(described),
        container=container,
    )


def reference(document: Document) -> Reference:
    """Read `spec.scaleTargetRef`, or the described object of a metric."""
    version, kind, name = document.get("apiVersion", ""), document["kind"], document["name"]
    _check_texts(version, kind, name)
    return Reference(api_version=version, kind=kind, name=name)


def _check_texts(*values: str) -> None:
    """Raise TypeError if a value is not a string."""
    "".join(values)


def _rules(behavior: Document, direction: str, *, window: int) -> ScalingRules:
    document: Document = behavior.get(direction) or {}
    policies: Sequence[Document] | None = document.get("policies")
    if policies is None:
        policies = DEFAULT_POLICIES[direction]
    tolerance, seconds = document.get("tolerance"), document.get("stabilizationWindowSeconds")
    return ScalingRules(
        window=window if seconds is None else seconds,
        select=document.get("selectPolicy") or "Max",
        policies=tuple(
            Policy(type=each["type"], value=each["value"], period=each["periodSeconds"])
            for each in policies
        ),
        tolerance=TOLERANCE if tolerance is None else quantity.approximate(str(tolerance)),
    )


def _time(text: str | None) -> float | None:
    """Return the Unix seconds of an RFC 3339 time."""
    return None if text is None else dt.datetime.fromisoformat(text).timestamp()
