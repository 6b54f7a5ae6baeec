"""Reads what the HPA controller reads, in its order, without I/O of its own.

`read` is a generator: it yields a request, is sent the reply, and returns an Observation. So the
same steps run over any client.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from urllib.parse import quote

from rules import metrics_apis, quantity, rbac
from rules.errors import DurationError, QuantityError, RulesError, UnreadableError
from rules.hpa import autoscaler, decision, groups, proposal
from rules.hpa.autoscaler import Autoscaler, Document, MetricSpec, Pod, Reference, Scale
from rules.hpa.proposal import PodValue, Proposal
from rules.kinds import GroupResource
from rules.metrics_apis import ALL_OBJECTS, CUSTOM, EXTERNAL, USAGE
from rules.selectors import selectors

T = TypeVar("T")

_KNOWN_VERSIONS = ("v1beta2", "v1beta1")
_HPAS = "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/{}"
_NO_KIND = "Correct describedObject in the HPA, or install its CustomResourceDefinition"
DOCTOR = "Run: gpu-metrics-adapter doctor"
NOT_SERVED = f"the cluster does not serve {USAGE.group_version()}"
NO_USAGE = "Install metrics-server, or the component resource-metrics of the manifests"
NO_TARGET = "Correct scaleTargetRef in the HPA"
_EMPTY = "no metrics returned from {} metrics API"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRequest:
    """A GET request to the API server."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_explained(self) -> bool:
        """Whether the adapter can explain the answer: that of custom and external metrics."""
        return any(each.has(self.path) for each in (CUSTOM, EXTERNAL))


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiReply:
    """Reply of the API server to a request."""

    document: Document = field(default_factory=dict)
    """Empty if the request failed."""
    status: int = 200
    """HTTP status; 0 without a response."""
    message: str = ""
    """Why the request failed."""
    cause: str = ""
    """First cause that the adapter gives for missing values: `NoSample: ...`."""

    @property
    def failed(self) -> bool:
        """Whether there is no document."""
        return self.status != 200


Steps = Generator[ApiRequest, ApiReply, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the controller sees of an HPA in one sync."""

    hpa: Autoscaler
    scale: Scale
    pods: tuple[Pod, ...]
    proposals: tuple[Proposal, ...]
    """One for each metric; empty if the controller does not read metrics now."""
    requests: tuple[ApiRequest | None, ...]
    """How each metric was requested; None if that could not be determined."""
    replies: tuple[ApiReply, ...]
    """What each request was answered; without a request, why it could not be determined."""
    blocked: str
    """Why the controller does not scale whatever the metrics are; empty if it does."""


def read(namespace: str, name: str, now: Callable[[], float]) -> Steps[Observation]:
    """Read an HPA, its target, pods and metrics. `now` returns Unix seconds.

    Raises UnreadableError if the HPA, its target or its pods cannot be read.
    """
    return (yield from observe((yield from hpa(namespace, name)), now))


def hpa(namespace: str, name: str) -> Steps[Autoscaler]:
    """Read an HPA. Raises UnreadableError."""
    return parsed((yield from document(namespace, name)))


def parsed(document: Document) -> Autoscaler:
    """Return the HPA in a document of the API server. Raises UnreadableError."""
    try:
        return autoscaler.autoscaler(document)
    except (RulesError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"this autoscaler cannot be read: {error!r}. Its Kubernetes may be newer",
            cure="update this program",
        ) from error


def document(namespace: str, name: str) -> Steps[Document]:
    """Read an HPA as a document. Raises UnreadableError."""
    return (yield from get(_HPAS.format(quote(namespace), quote(name))))


def observe(hpa: Autoscaler, now: Callable[[], float]) -> Steps[Observation]:
    """Read what `read` does, for an HPA that is known."""
    scale = yield from scale_of(hpa)
    pods: tuple[Pod, ...] = ()
    if scale.selector:
        path = f"/api/v1/namespaces/{quote(hpa.namespace)}/pods"
        listed = yield from get(path, labelSelector=scale.selector)
        pods = tuple(map(autoscaler.pod, listed["items"] or ()))
    blocked = _blocked(hpa, scale)
    requests, replies, proposals = list[ApiRequest | None](), list[ApiReply](), list[Proposal]()
    if not blocked and decision.needs_metrics(hpa, scale.spec):
        for metric in hpa.metrics:
            request, reply, proposed = yield from _propose(hpa, scale, pods, metric, now)
            requests.append(request)
            replies.append(reply)
            proposals.append(proposed)
    return Observation(
        hpa=hpa,
        scale=scale,
        pods=pods,
        proposals=tuple(proposals),
        requests=tuple(requests),
        replies=tuple(replies),
        blocked=blocked,
    )


def requests(hpa: Autoscaler) -> Steps[tuple[ApiRequest | UnreadableError, ...]]:
    """Return how the controller requests each metric, or why it cannot; reads no pods.

    Raises UnreadableError if the scale of the target cannot be read.
    """
    scale = yield from scale_of(hpa)
    found: list[ApiRequest | UnreadableError] = []
    for metric in hpa.metrics:
        try:
            found.append((yield from _request(hpa, scale, metric)))
        except UnreadableError as error:
            found.append(error)
    return tuple(found)


def scale_of(hpa: Autoscaler) -> Steps[Scale]:
    """Read the scale of the target. Raises UnreadableError."""
    try:
        root, resource = yield from _resource(hpa.target)
        below = f"{root}/namespaces/{quote(hpa.namespace)}"
        path = f"{below}/{resource}/{quote(hpa.target.name)}/scale"
        return autoscaler.scale((yield from get(path)))
    except UnreadableError as error:
        if error.status != 404:
            raise
        raise UnreadableError(str(error), status=404, cure=NO_TARGET) from error


def _blocked(hpa: Autoscaler, scale: Scale) -> str:
    if not scale.selector:
        return f"the scale of {hpa.target} has no selector"
    status, reason, message = hpa.conditions.get("ScalingActive", ("", "", ""))
    # Only the controller knows the selectors of all HPAs.
    ambiguous = status == "False" and reason == "AmbiguousSelector" and not hpa.outdated
    return message if ambiguous else ""


def _propose(
    hpa: Autoscaler, scale: Scale, pods: Sequence[Pod], metric: MetricSpec, now: Callable[[], float]
) -> Steps[tuple[ApiRequest | None, ApiReply, Proposal]]:
    try:
        request = yield from _request(hpa, scale, metric)
    except UnreadableError as error:
        reply = ApiReply(status=error.status, message=str(error))
        return None, reply, proposal.failed(metric, str(error), cure=error.cure)
    reply = yield request
    if not reply.failed:
        proposed = _proposal(hpa, scale, pods, metric, reply, now)
        others = (yield from _others(hpa, scale, metric, proposed)) if proposed.values else ()
        return request, reply, replace(proposed, others=others)
    if is_without_usage(request, reply):
        return request, reply, proposal.failed(metric, NOT_SERVED, cure=NO_USAGE)
    cure = rbac.cure(reply.status, reply.message) or DOCTOR
    return request, reply, proposal.failed(metric, reply.message, cure=cure)


def _others(
    hpa: Autoscaler, scale: Scale, metric: MetricSpec, proposed: Proposal
) -> Steps[tuple[str, ...]]:
    """Return the pods with a value that do not count: the scale selects one pod of each group."""
    selector = selectors.parse(scale.selector)
    pods = groups.all_pods(selector)
    if pods is selector:
        return ()
    reply = yield (yield from _request(hpa, replace(scale, selector=str(pods)), metric))
    try:
        items = () if reply.failed else reply.document.get("items") or ()
        values = _of_pods(items) if metric.type == "Pods" else _usage(items, metric)
    except (QuantityError, DurationError, KeyError, TypeError, ValueError):
        return ()
    return tuple(sorted(values.keys() - proposed.values.keys()))


def is_without_usage(request: ApiRequest, reply: ApiReply) -> bool:
    """Return whether the request failed because the cluster does not serve resource metrics."""
    return reply.status == 404 and USAGE.has(request.path)


def _proposal(
    hpa: Autoscaler,
    scale: Scale,
    pods: Sequence[Pod],
    metric: MetricSpec,
    reply: ApiReply,
    now: Callable[[], float],
) -> Proposal:
    tolerances, items = hpa.tolerances, reply.document.get("items") or ()
    try:
        match metric.type:
            case "Pods" if not items:
                return proposal.failed(metric, _EMPTY.format("custom"), cure=DOCTOR)
            case "Resource" | "ContainerResource" if not items:
                error, cure = _EMPTY.format("resource"), "" if reply.cause else DOCTOR
                return proposal.failed(metric, reply.cause or error, cure=cure)
            case "Pods" | "Resource" | "ContainerResource":
                values = _of_pods(items) if metric.type == "Pods" else _usage(items, metric)
                return proposal.of_pods(
                    metric, values, pods, current=scale.spec, tolerances=tolerances, now=now()
                )
            case "Object" if len(items) != 1:
                message = (
                    f"the custom metrics API server returned {len(items)} results when we asked "
                    "for exactly one"
                )
                return proposal.failed(metric, message)
            case _ if not items:
                return proposal.failed(metric, _EMPTY.format("external"))
            case _:
                found = tuple(quantity.milli_value(each["value"]) for each in items)
                external = metric.type == "External"
                value = proposal.total(metric, found) if external else found[0]
                ready = proposal.ready_pods(pods)
                proposed = proposal.of_value(metric, value, ready, scale, tolerances=tolerances)
                return replace(proposed, items=found if external else ())
    except (QuantityError, DurationError, KeyError, TypeError, ValueError) as error:
        return proposal.failed(metric, f"the reply is not a list of values: {error!r}")


def _request(hpa: Autoscaler, scale: Scale, metric: MetricSpec) -> Steps[ApiRequest]:
    """Return the request for a metric, as the controller sends it. Raises UnreadableError."""
    served = (yield from version()) if metric.type in {"Pods", "Object"} else ""
    described = object_of(metric)
    resource = (yield from _described(described)) if described else ""
    return request_for(
        metric, hpa.namespace, pods=scale.selector, resource=resource, version=served
    )


def object_of(metric: MetricSpec) -> Reference | None:
    """Return the object of an Object metric whose resource the path needs; None without one."""
    described = metric.described if metric.type == "Object" else None
    return None if described is None or _is_namespace(described) else described


def request_for(
    metric: MetricSpec, namespace: str, *, pods: str, resource: str = "", version: str = ""
) -> ApiRequest:
    """Return the request that the controller sends for a metric of an HPA in `namespace`.

    `pods` is the selector of the pods of the target. `resource` is that of `object_of`, as paths
    have it: `deployments.apps`. `version` is that of the custom metrics API; the preferred one by
    default.
    """
    if metric.type in {"Resource", "ContainerResource"}:
        return ApiRequest(path=metrics_apis.pod_usage(namespace), params={"labelSelector": pods})
    if metric.type == "External":
        # The RESTMapper of client-go lower-cases the name.
        path = metrics_apis.external_metric(metric.name.lower(), namespace)
        return ApiRequest(path=path, params=_given(labelSelector=metric.selector))
    params = _given(metricLabelSelector=metric.selector)
    if metric.type == "Pods":
        name, within, resource = ALL_OBJECTS, namespace, "pods"
        params = {"labelSelector": pods, **params}
    else:
        assert metric.described is not None  # the API server requires it for Object metrics
        name, within = metric.described.name, namespace
        if _is_namespace(metric.described):
            name, within, resource = namespace, "", "namespaces"
    path = metrics_apis.custom_metric(
        metric.name, resource, name, namespace=within, version=version
    )
    return ApiRequest(path=path, params=params)


def _is_namespace(reference: Reference) -> bool:
    return reference.kind == "Namespace" and not reference.group


def _given(**params: str) -> dict[str, str]:
    return {key: value for key, value in params.items() if value}


def _described(reference: Reference) -> Steps[str]:
    """Return the resource of a described object, as paths have it. Raises UnreadableError."""
    try:
        _, resource = yield from _resource(reference)
    except UnreadableError as error:
        if error.status != 404:
            raise
        raise UnreadableError(_no_kind(reference), status=404, cure=_NO_KIND) from error
    return str(GroupResource(reference.group, resource))


def version() -> Steps[str]:
    """Return the version of the custom metrics API that the controller uses.

    Raises UnreadableError.
    """
    reply = yield ApiRequest(path=f"/apis/{CUSTOM.name}")
    if reply.failed:
        if reply.status == 404:
            raise UnreadableError(f"no custom metrics API ({CUSTOM.name}) registered", status=404)
        raise _unreadable(reply)
    preferred = str(reply.document["preferredVersion"]["version"])
    served = [str(each["version"]) for each in reply.document["versions"]]
    if preferred in _KNOWN_VERSIONS:
        return preferred
    return next((each for each in served if each in _KNOWN_VERSIONS), preferred)


def _resource(reference: Reference) -> Steps[tuple[str, str]]:
    """Return the path of the group and version of an object, and the plural name of its kind."""
    root = _root(reference.api_version)
    try:
        document = yield from get(root)
    except UnreadableError as error:
        if error.status != 404 or not reference.group:
            raise
        # The controller ignores the version of a reference.
        served = yield ApiRequest(path=f"/apis/{quote(reference.group)}")
        if served.failed:
            raise
        root = f"/apis/{served.document['preferredVersion']['groupVersion']}"
        document = yield from get(root)
    for each in document["resources"]:
        if each["kind"].lower() == reference.kind.lower() and "/" not in each["name"]:
            return root, str(each["name"])
    raise UnreadableError(_no_kind(reference), status=404)


def _no_kind(reference: Reference) -> str:
    """Return the controller's words for a kind, or a group, that the cluster does not have."""
    version = reference.api_version or "v1"
    return f'no matches for kind "{reference.kind}" in version "{version}"'


def _root(api_version: str) -> str:
    return f"/apis/{quote(api_version)}" if "/" in api_version else f"/api/{api_version or 'v1'}"


def get(path: str, **params: str) -> Steps[Document]:
    """Return the document at a path. Raises UnreadableError."""
    reply = yield ApiRequest(path=path, params=params)
    if reply.failed:
        raise _unreadable(reply)
    return reply.document


def _unreadable(reply: ApiReply) -> UnreadableError:
    cure = rbac.cure(reply.status, reply.message)
    return UnreadableError(reply.message, status=reply.status, cure=cure)


def _of_pods(items: Sequence[Document]) -> dict[str, PodValue]:
    return {
        each["describedObject"]["name"]: PodValue(value=quantity.milli_value(each["value"]))
        for each in items
    }


def _usage(items: Sequence[Document], metric: MetricSpec) -> dict[str, PodValue]:
    """Return the usage of each pod, or of one container of it; pods without all of it are left out.

    Older releases do not use the metric at all if a pod lacks the container.
    https://github.com/kubernetes/metrics/tree/master/pkg/apis/metrics
    """
    values = {}
    for each in items:
        usages: list[Mapping[str, Any]] = [
            container["usage"]
            for container in each.get("containers") or ()
            if metric.container in {"", container["name"]}
        ]
        if usages and all(metric.name in usage for usage in usages):
            values[each["metadata"]["name"]] = PodValue(
                value=sum(quantity.milli_value(usage[metric.name]) for usage in usages),
                time=dt.datetime.fromisoformat(each["timestamp"]).timestamp(),
                window=quantity.go_duration(each["window"]) / 1e9,
            )
    return values
