"""custom.metrics.k8s.io: metrics that describe objects of the cluster.

v1beta1 and v1beta2 have the same routes and differ only in the form of a value.

https://github.com/kubernetes-sigs/custom-metrics-apiserver/tree/master/pkg/apiserver/installer
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from adapter.errors import BackendError
from adapter.server.api.groups import question
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import Content, Resource
from adapter.server.api.groups.question import ALL, NAMESPACE_METRICS, Question, Target, not_found
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.evaluation.evaluation import Evaluated
from adapter.server.evaluation.forecasts import Key
from rules import metrics_apis, quantity
from rules.causes import missing
from rules.causes.reasons import Reason
from rules.errors import AmbiguousSampleError, PlanError
from rules.findings import Finding
from rules.kinds import NAMESPACES, NODES, PODS, GroupResource, Kind, Kinds
from rules.query import plan as plans
from rules.query.aggregate import Value, of_workloads
from rules.query.ahead import Forecast
from rules.query.catalog import Catalog, Entry
from rules.query.plan import Plan
from rules.selectors import selectors
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

_UNKNOWN = frozenset({Reason.NOT_LISTED_YET, Reason.RELIST_FAILED})
"""Causes by which an empty list may have values."""

API = metrics_apis.CUSTOM
TRANSFORMS = negotiation.ONLY_UNCHANGED

_Evaluated = Evaluated[Mapping[str, Value]]
_NOTHING: _Evaluated = Evaluated(values={})
_Described = tuple[encoding.Document, Value]
"""Reference of an object, and its value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMetric:
    """A metric and the objects whose values are requested."""

    version: str
    question: Question
    names: tuple[str, ...]
    """Of the objects, or of the pods of the workloads."""
    selected: tuple[str, ...]
    """Of all objects that are selected, also of pods that are not Ready long enough."""
    pods_of: Mapping[str, tuple[str, ...]] | None
    """Workloads and their pods; None for a metric that is not computed from pods."""
    young: tuple[Finding, ...]
    """Why pods are left out that are not Ready long enough."""

    @property
    def entry(self) -> Entry:
        """The metric."""
        return self.question.entry


def routes(segments: Sequence[str]) -> bool:
    """Return whether the path is a route of the group.

    Routes are `RES/NAME/METRIC`, `namespaces/NS/RES/NAME/METRIC`, `namespaces/NS/metrics/METRIC`.
    The original also serves `namespaces/NS/metrics/METRIC/ANY`, but authorizes it as the
    subresource ANY. It is not served here.
    """
    if len(segments) > 3 and segments[0] == "namespaces":
        return len(segments) == (4 if segments[2] == NAMESPACE_METRICS else 5)
    return len(segments) == 3


def to_object_scope(info: RequestInfo, kinds: Kinds) -> RequestInfo:
    """Return `info` without its namespace if it is of this group and names a cluster-scoped object.

    The HPA controller asks for `namespaces/NS/nodes/NAME/METRIC`. Without the namespace, the access
    review is at cluster scope: rights in NS say nothing about nodes. A request for `*` keeps the
    namespace and gets a 404. So does one for namespaces, whose route is
    `namespaces/NS/metrics/METRIC`.
    """
    if info.group != API.name or not info.namespace or len(info.parts) != 3:
        return info
    if info.name in {"", ALL}:
        return info
    resource, _, group = info.resource.partition(".")
    kind = kinds.find(resource, group)
    if kind is None or kind.namespaced or kind.group_resource == NAMESPACES:
        return info
    return info.without_namespace


def resources(catalog: Catalog) -> Sequence[Resource]:
    """Return an entry `RESOURCE/METRIC` for each metric that a relist listed."""
    return [
        Resource(
            name=f"{entry.resource}/{entry.metric}",
            namespaced=entry.namespaced,
            kind="MetricValueList",
        )
        for entry in catalog.entries
    ]


async def resolve(info: RequestInfo, backend: Backend) -> RequestedMetric:
    """Return the metric and the names of its objects. Raises ApiError."""
    resolved = await question.resolve(info, backend)
    selected = names = await _names(resolved, backend)
    pods_of = None
    if names and resolved.entry.pods is not None:
        pods_of = await _pods_of(resolved, names, backend)
        names = tuple(dict.fromkeys(pod for pods in pods_of.values() for pod in pods))
    young: tuple[Finding, ...] = ()
    if names and resolved.entry.min_pod_age is not None:
        names, young = await _without_young(resolved, names, resolved.entry.min_pod_age, backend)
    return RequestedMetric(
        version=info.version,
        question=resolved,
        names=names,
        selected=selected,
        pods_of=pods_of,
        young=young,
    )


def plan(requested: RequestedMetric) -> Plan | None:
    """Return the queries for the objects; None if there are no objects."""
    if not requested.names:
        return None
    return plans.custom(
        requested.entry.pods or requested.entry,
        namespace=requested.question.target.namespace,
        names=requested.names,
        selector=requested.question.metric_selector,
    )


async def evaluate(
    requested: RequestedMetric, query: Plan | None, backend: Backend, *, deadline: float
) -> _Evaluated:
    """Return the values; of all selected pods also partial ones. Raises ApiError.

    An HPA counts a pod without a value against the change: as idle before it adds replicas, as at
    the target before it removes some. Any other value it takes for the whole; after an error it
    keeps its replicas.
    """
    if query is None:
        return _NOTHING
    target = requested.question.target
    of_pods = target.name == ALL and requested.question.kind.group_resource == PODS
    try:
        return await backend.evaluation.values(query, deadline=deadline, serve_partial=of_pods)
    except PlanError as error:
        raise not_found(target, backend, [missing.no_query(error)]) from error
    except BackendError as error:
        raise backend.collector.query_failed(str(target), query, error) from error
    except AmbiguousSampleError as error:
        raise backend.collector.samples_failed(str(target), error) from error


async def content(
    requested: RequestedMetric, query: Plan | None, found: _Evaluated, backend: Backend
) -> Content:
    """Return a MetricValueList. Raises ApiError (404) for one object without a value."""
    resolved, names, values = requested.question, requested.names, found.values
    target, kind, causes = resolved.target, resolved.kind, requested.young
    pods_of = requested.pods_of
    if query:
        if len(values) < len(names):
            causes = (missing.without_value(query, values), *causes)
        if found.partial:
            where = str(query.steps[0].rule.config.where)
            causes = (missing.partial_response(where), *causes)
    key, forecast = None, None
    if resolved.entry.ahead is not None:
        key = question.forecast_key(resolved)
        values, forecast = backend.forecasts.scale(key, values), backend.forecasts.served(key)
    # `values` are of `names`: the same values have the same names.
    sources: tuple[object, ...] = (kind, values)
    if pods_of is not None and (how := requested.entry.workloads):
        sources = (*sources, pods_of)
        names, values = tuple(pods_of), of_workloads(pods_of, values, how)
    if not values:
        causes = await _explain(requested, query, backend)
    of_names = target.name == ALL and pods_of is None and requested.entry.min_pod_age is None
    is_current = None
    if query is not None and of_names and not causes:
        is_current = functools.partial(
            _is_current, resolved, names, query, found, backend, key, forecast
        )
    return Content(
        sources=sources,
        items=len(values),
        causes=causes,
        is_current=is_current,
        values=values,
        selected=requested.selected,
        build=lambda _: _value_list(
            requested.version,
            target.metric,
            selectors.label_selector(resolved.metric_selector),
            (
                (_object_reference(kind, namespace=target.namespace, name=name), values[name])
                for name in names
                if name in values
            ),
        ),
    )


def _is_current(
    resolved: Question,
    names: tuple[str, ...],
    query: Plan,
    found: _Evaluated,
    backend: Backend,
    key: Key | None,
    forecast: Forecast | None,
) -> bool:
    """Return whether the objects and their values are still the same; if so, count a request."""
    if key is not None and backend.forecasts.served(key) is not forecast:
        return False
    if not backend.evaluation.repeats(query, found):
        return False
    present = backend.objects.present_names(
        resolved.listed, namespace=resolved.target.namespace, selector=resolved.selector
    )
    return present is names


async def _names(resolved: Question, backend: Backend) -> tuple[str, ...]:
    """Return the names of the objects. Raises ApiError (404) for one that cannot have a value."""
    target, kind = resolved.target, resolved.kind
    if target.name == ALL:
        if not resolved.can_exist:
            return ()
        return await _names_of(resolved.listed, resolved.selector, target, backend)
    if not resolved.can_exist:
        cause = missing.impossible_object(
            kind.group_resource, namespace=target.namespace, name=target.name
        )
        raise not_found(target, backend, [cause], name=target.name)
    await _check_not_finished(target, kind, backend)
    return (target.name,)


async def _pods_of(
    resolved: Question, names: tuple[str, ...], backend: Backend
) -> Mapping[str, tuple[str, ...]]:
    """Return the workloads of these names and their live pods.

    Raises ApiError (404) for one workload that does not exist.
    """
    target, resource = resolved.target, resolved.listed
    selectors_of = await backend.listed(
        backend.objects.pod_selectors(resource, namespace=target.namespace), resource, target
    )
    if target.name != ALL and target.name not in selectors_of:
        of_scale = resource in backend.kinds.scale_targets
        cause_of = missing.unread_scale if of_scale else missing.absent_object
        cause = cause_of(resource, target.name, namespace=target.namespace)
        raise not_found(target, backend, [cause], name=target.name)
    return {
        name: await _names_of(PODS, selectors_of[name], target, backend)
        for name in names
        if name in selectors_of
    }


async def _names_of(
    resource: GroupResource, selector: Selector, target: Target, backend: Backend
) -> tuple[str, ...]:
    listing = backend.objects.names(resource, namespace=target.namespace, selector=selector)
    return await backend.listed(listing, resource, target)


async def _check_not_finished(target: Target, kind: Kind, backend: Backend) -> None:
    """Raise ApiError (404) for a finished pod. If the API server fails, assume it is live."""
    if kind.group_resource != PODS:
        return
    try:
        live = await backend.objects.live(PODS, namespace=target.namespace, name=target.name)
    except BackendError as error:
        log.warning(
            "pod %s/%s: phase unknown; its metrics are queried anyway: %s",
            target.namespace,
            target.name,
            error,
        )
        return
    if not live:
        cause = missing.no_object(PODS, namespace=target.namespace, name=target.name)
        raise not_found(target, backend, [cause], name=target.name)


async def _is_absent(target: Target, resource: GroupResource, backend: Backend) -> bool:
    """Return whether a pod or a node does not exist; False if that is not known."""
    if resource not in {PODS, NODES}:
        return False  # a label may name what the adapter must not list
    try:
        found = await backend.objects.object(resource, namespace=target.namespace, name=target.name)
    except BackendError as error:
        log.info("%s %s: it is not known whether it exists: %s", resource, target.name, error)
        return False
    return found is None


async def _without_young(
    resolved: Question, names: tuple[str, ...], min_age: float, backend: Backend
) -> tuple[tuple[str, ...], tuple[Finding, ...]]:
    """Return the names without those of pods that `minPodAge` leaves out, and the cause."""
    namespace = resolved.target.namespace
    young = await backend.listed(
        backend.objects.younger(names, namespace=namespace, seconds=min_age), PODS, resolved.target
    )
    if not young:
        return names, ()
    cause = missing.too_young(resolved.entry, young, namespace=namespace)
    return tuple(name for name in names if name not in young), (cause,)


async def _explain(
    requested: RequestedMetric, query: Plan | None, backend: Backend
) -> tuple[Finding, ...]:
    """Log and return why a list is empty.

    Raises ApiError (404) for one object, and while the labels of the series are not known: a list
    must not be empty only because the wrong label was queried. Also if objects matched, unless the
    backend answers that with an empty list.
    """
    resolved, young, pods_of = requested.question, requested.young, requested.pods_of
    target, entry = resolved.target, resolved.entry
    causes: tuple[Finding, ...]
    if not entry.listed:
        # Neither a relist nor this query returned a series, so the metric does not exist.
        causes = await backend.collector.of_metric(backend.inventory, entry.metric, entry.resource)
        raise not_found(target, backend, causes or (missing.listed_meanwhile(),))
    if query is None and young:
        causes = young
    elif query is None and pods_of:
        causes = (missing.no_pods(entry.resource, tuple(pods_of), namespace=target.namespace),)
    elif query is None:
        selector = str(resolved.selector)
        causes = (missing.no_match(entry.resource, namespace=target.namespace, selector=selector),)
    elif target.name != ALL and await _is_absent(target, entry.resource, backend):
        causes = (missing.absent_object(entry.resource, target.name, namespace=target.namespace),)
    else:
        causes = (*await backend.collector.of_plan(backend.inventory, query), *young)
    if target.name != ALL:
        raise not_found(target, backend, causes, name=target.name)
    is_error = query is not None and backend.errors_for_empty_lists
    if is_error or any(each.reason in _UNKNOWN for each in causes):
        raise not_found(target, backend, causes)
    backend.collector.log_causes(str(target), causes)
    return causes


def _value_list(
    version: str, metric: str, selector: encoding.Document | None, values: Iterable[_Described]
) -> encoding.Document:
    """Build a MetricValueList.

    https://github.com/kubernetes/metrics/tree/master/pkg/apis/custom_metrics
    """
    build = _ITEMS[version]
    return {
        "kind": "MetricValueList",
        "apiVersion": API.group_version(version),
        "metadata": {},
        "items": [build(each, metric, selector) for each in values],
    }


def _v1beta1(
    described: _Described, metric: str, selector: encoding.Document | None
) -> encoding.Document:
    reference, value = described
    return {
        "describedObject": reference,
        "metricName": metric,
        "timestamp": encoding.timestamp(value.time),
        "value": quantity.decimal(value.milli),
        "selector": selector,
    }


def _v1beta2(
    described: _Described, metric: str, selector: encoding.Document | None
) -> encoding.Document:
    reference, value = described
    return {
        "describedObject": reference,
        "metric": {"name": metric, "selector": selector},
        "timestamp": encoding.timestamp(value.time),
        "value": quantity.decimal(value.milli),
    }


_ITEMS = {"v1beta1": _v1beta1, "v1beta2": _v1beta2}
"""The function of each version that builds an item of its list."""


def _object_reference(kind: Kind, *, namespace: str, name: str) -> encoding.Document:
    """Build an ObjectReference; like the original, the core group is written `/v1`."""
    in_namespace = {"namespace": namespace} if namespace else {}
    api_version = f"{kind.group}/{kind.version}"
    return {"kind": kind.kind, **in_namespace, "name": name, "apiVersion": api_version}
