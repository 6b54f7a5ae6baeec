"""Number of replicas that the HPA controller proposes for one metric.

Follows replica_calculator.go of Kubernetes 1.36. Releases before 1.33 also scale if the ratio is
exactly at the tolerance. Values are integers in thousandths.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/podautoscaler/replica_calculator.go
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rules.hpa.autoscaler import MetricSpec, Pod, Scale
from rules.hpa.reaction import Reaction
from rules.quantity import wrapped

CPU_INITIALIZATION = 300.0
"""Default of `--horizontal-pod-autoscaler-cpu-initialization-period`, in seconds."""
INITIAL_READINESS = 30.0
"""Default of `--horizontal-pod-autoscaler-initial-readiness-delay`, in seconds."""
UNREADY = "did not receive metrics for targeted pods (pods might be unready)"
_WAIT = "A pod counts once it is ready: `kubectl describe` those of the target"
_MAX_INT32 = (1 << 31) - 1
LARGEST = (1 << 63) - 1
"""In thousandths: what the controller takes for a sum that overflows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodValue:
    """Value of a metric for one pod. Only CPU usage needs the time of its sample."""

    value: int
    time: float = 0.0
    """Unix seconds."""
    window: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The pods of the target, as the controller groups them. Names are in the order of the pods."""

    counted: tuple[str, ...] = ()
    """With a value that enters the average."""
    unready: tuple[str, ...] = ()
    """Pending, and for CPU not ready: without effect, but counted as 0 before a scale-up."""
    missing: tuple[str, ...] = ()
    """Without a value: counted as the target before a scale-down, and as 0 before a scale-up."""
    ignored: tuple[str, ...] = ()
    """Being deleted, or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one metric proposes, and how it was computed."""

    metric: MetricSpec
    replicas: int | None
    """None if the metric could not be computed: see `error`. Below 0 for a negative value, and as
    the controller's 32 bits overflow."""
    current: int = 0
    """The present value, in the unit of the target, as the status of the HPA shows it."""
    ratio: float = 0.0
    """Value divided by target, before pods without values are counted."""
    adjusted: float | None = None
    """The ratio with the pods without values; None if there are none that change it."""
    within: bool = False
    """Whether the ratio that decides is within the tolerance."""
    ready: int | None = None
    """Number of ready pods that the ratio is multiplied by; None if it is not."""
    groups: Groups = Groups()
    values: Mapping[str, PodValue] = field(default_factory=dict)
    """Value of each pod that has one, for a metric of pods."""
    others: tuple[str, ...] = ()
    """Pods with a value that do not count, because the scale selects one pod of each group."""
    items: tuple[int, ...] = ()
    """Values of the items of an external metric, whose sum counts."""
    query: str = ""
    """The query of an external metric, if it was looked up."""
    note: str = ""
    """What is remarkable about the value, if its explanation was looked up."""
    reaction: Reaction | None = None
    """How long the value takes to show a change of load, likewise."""
    ahead: str = ""
    """Whether the value is a forecast, and why, likewise; empty if its rule does not look ahead."""
    error: str = ""
    cure: str = ""
    """What to do about the error, if that is known."""


def failed(metric: MetricSpec, error: str, *, cure: str = "") -> Proposal:
    """Return the proposal of a metric that could not be read."""
    return Proposal(metric=metric, replicas=None, error=error, cure=cure)


def of_pods(
    metric: MetricSpec,
    values: Mapping[str, PodValue],
    pods: Sequence[Pod],
    *,
    current: int,
    tolerances: tuple[float, float],
    now: float = 0.0,
) -> Proposal:
    """Return the proposal for a metric with a value for each pod: the average decides.

    `values` may have pods that `pods` lacks. `current` is the `spec.replicas` of the scale.
    """
    if not pods:
        error = "no pods returned by selector while calculating replica count"
        return failed(metric, error, cure="`kubectl describe` the target: it has no pod")
    cpu = metric.name == "cpu" and metric.type in {"Resource", "ContainerResource"}
    found = groups(pods, values, now if cpu else None)
    numbers = {
        name: each.value
        for name, each in values.items()
        if name not in found.ignored and name not in found.unready
    }
    if not numbers:
        return failed(metric, UNREADY, cure=_WAIT)
    try:
        usage = _usage(metric, pods)
        at_target = _at_target(metric, pods)
        ratio, shown = usage(numbers)
    except ValueError as error:
        return failed(metric, str(error))
    counts_unready = bool(found.unready) and ratio > 1.0
    if not counts_unready and not found.missing:
        within = _is_within(ratio, tolerances)
        replicas = current if within else _ceil(ratio * len(found.counted))
        adjusted = None
    else:
        for name in found.missing if ratio != 1.0 else ():
            numbers[name] = at_target(name) if ratio < 1.0 else 0
        numbers |= dict.fromkeys(found.unready if counts_unready else (), 0)
        adjusted = usage(numbers)[0]
        turned = (ratio < 1.0 < adjusted) or (adjusted < 1.0 < ratio)
        within = _is_within(adjusted, tolerances)
        replicas = current if within or turned else _ceil(adjusted * len(numbers))
        if (adjusted < 1.0 and replicas > current) or (adjusted > 1.0 and replicas < current):
            replicas = current
    return Proposal(
        metric=metric,
        replicas=replicas,
        current=shown,
        ratio=ratio,
        adjusted=adjusted,
        within=within,
        ready=len(found.counted),
        groups=found,
        values=values,
    )


def of_value(
    metric: MetricSpec,
    value: int,
    ready: int | None,
    scale: Scale,
    *,
    tolerances: tuple[float, float],
) -> Proposal:
    """Return the proposal for one value: of an object, or the `total` of an external metric.

    A target of type Value multiplies the ready pods by the ratio; one of type AverageValue divides
    the value. `ready` is their number; None if there is no pod at all.
    """
    if metric.target == "AverageValue":
        return _of_average(metric, value, scale.status, tolerances)
    ratio = _ratio(value, metric.value)
    if not scale.spec:
        replicas = _ceil(ratio)
        return Proposal(metric=metric, replicas=replicas, current=value, ratio=ratio)
    if _is_within(ratio, tolerances):
        return Proposal(metric=metric, replicas=scale.spec, current=value, ratio=ratio, within=True)
    if ready is None:
        return failed(
            metric,
            "unable to calculate ready pods: no pods returned by selector while calculating "
            "replica count",
        )
    replicas = _ceil(min(ratio * ready, _MAX_INT32))
    return Proposal(metric=metric, replicas=replicas, current=value, ratio=ratio, ready=ready)


def ready_pods(pods: Sequence[Pod]) -> int | None:
    """Return how many pods are ready; None without a pod."""
    ready = sum(each.phase == "Running" and each.ready == "True" for each in pods)
    return ready if pods else None


def total(metric: MetricSpec, values: Iterable[int]) -> int:
    """Return the sum of the values of an external metric, in 64 bits as the controller has it.

    For an AverageValue, it takes a sum below 0 for an overflow, and uses the largest number.
    """
    result = 0
    for value in values:
        result += value
        if result > LARGEST or (result < 0 and metric.target == "AverageValue"):
            return LARGEST
        result = wrapped(result, 64)
    return result


def _of_average(
    metric: MetricSpec, value: int, replicas: int, tolerances: tuple[float, float]
) -> Proposal:
    """`replicas` is the `status.replicas` of the scale, by which the value is divided."""
    ratio = _ratio(value, float(metric.value) * float(replicas))
    within = _is_within(ratio, tolerances)
    wanted = _ratio(value, metric.value)
    shown = math.ceil(float(value) / replicas) if replicas else 0
    if metric.type == "External":
        wanted = min(wanted, _MAX_INT32)
        shown = LARGEST if float(value) >= LARGEST else shown
    return Proposal(
        metric=metric,
        replicas=replicas if within else _ceil(wanted),
        current=shown,
        ratio=ratio,
        within=within,
    )


def groups(pods: Sequence[Pod], values: Mapping[str, Any], now: float | None = None) -> Groups:
    """Group the pods; `now` only for CPU usage, which depends on when pods became ready.

    The values are PodValues then.
    """
    counted, unready, missing, ignored = list[str](), list[str](), list[str](), list[str]()
    for pod in pods:
        if pod.deleted or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif pod.name not in values:
            missing.append(pod.name)
        elif now is not None and _is_starting(pod, values[pod.name], now):
            unready.append(pod.name)
        else:
            counted.append(pod.name)
    return Groups(
        counted=tuple(counted),
        unready=tuple(unready),
        missing=tuple(missing),
        ignored=tuple(ignored),
    )


def _is_starting(pod: Pod, value: PodValue, now: float) -> bool:
    """Return whether the CPU usage of a pod is ignored, because it has just started."""
    if not pod.ready or pod.started is None:
        return True
    unready = pod.ready == "False"  # a status Unknown counts as ready here
    if pod.started + CPU_INITIALIZATION > now:
        return unready or value.time < pod.ready_since + value.window
    return unready and pod.started + INITIAL_READINESS > pod.ready_since


_Usage = Callable[[Mapping[str, int]], tuple[float, int]]
"""Values by pod -> ratio, and the value that the status of the HPA shows."""


def _usage(metric: MetricSpec, pods: Sequence[Pod]) -> _Usage:
    """Return how the values of pods become a ratio. Raises ValueError as the controller."""
    if metric.target != "Utilization":

        def average(values: Mapping[str, int]) -> tuple[float, int]:
            mean = _divided(sum(values.values()), len(values))
            return _ratio(mean, metric.value), mean

        return average
    requests = _requests(metric, pods)

    def utilization(values: Mapping[str, int]) -> tuple[float, int]:
        known = [name for name in values if name in requests]
        requested = sum(requests[name] for name in known)
        if not requested:
            raise ValueError("no metrics returned matched known pods")
        used = sum(values[name] for name in known)
        percent = wrapped(_divided(used * 100, requested), 32)
        return _ratio(percent, metric.value), percent

    return utilization


def _at_target(metric: MetricSpec, pods: Sequence[Pod]) -> Callable[[str], int]:
    """Return the value that a pod without one counts as before a scale-down."""
    if metric.target != "Utilization":
        return lambda _: metric.value
    requests, percent = _requests(metric, pods), max(100, metric.value)
    return lambda name: requests[name] * percent // 100


def _requests(metric: MetricSpec, pods: Sequence[Pod]) -> dict[str, int]:
    """Return the request of each pod, or of the container. Raises ValueError if one is missing."""
    requests = {}
    for pod in pods:
        if pod.pod_requests and not metric.container:
            if metric.name not in pod.pod_requests:
                raise ValueError(f"missing pod-level request for {metric.name} in Pod {pod.name}")
            requests[pod.name] = pod.pod_requests[metric.name]
            continue
        wanted = [name for name in pod.requests if metric.container in {"", name}]
        if not wanted:
            raise ValueError(f"container {metric.container} not found in Pod {pod.name}")
        lacking = [name for name in wanted if metric.name not in pod.requests[name]]
        if lacking:
            raise ValueError(
                f"missing request for {metric.name} in container {lacking[0]} of Pod {pod.name}"
            )
        requests[pod.name] = sum(pod.requests[name][metric.name] for name in wanted)
    return requests


def _ratio(value: float, target: float) -> float:
    """Divide in doubles as Go does: a target that overflowed may be 0."""
    if target:
        return float(value) / float(target)
    return math.copysign(math.inf, value) if value else math.nan


def _is_within(ratio: float, tolerances: tuple[float, float]) -> bool:
    down, up = tolerances
    return 1.0 - down <= ratio <= 1.0 + up


def _ceil(replicas: float) -> int:
    """Round up and convert to 32 bits as Go does on amd64: what does not fit becomes the least."""
    least = -_MAX_INT32 - 1
    return math.ceil(replicas) if least <= replicas <= _MAX_INT32 else least


def _divided(number: int, divisor: int) -> int:
    """Divide in 64 bits as Go does, toward zero."""
    number = wrapped(number, 64)
    return number // divisor if number >= 0 else -(-number // divisor)
