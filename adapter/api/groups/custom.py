"""custom.metrics.k8s.io: metrics that describe objects of the cluster.

v1beta1 and v1beta2 have the same routes and differ only in the form of a value.

https://github.com/kubernetes-sigs/custom-metrics-apiserver/tree/master/pkg/apiserver/installer
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter import errors
from adapter.api.groups import options
from adapter.api.groups.group import Backend, Content, Resource
from adapter.errors import ApiError, BackendError
from adapter.http import encoding
from adapter.http.request_info import RequestInfo
from rules import quantity
from rules.diagnosis import missing
from rules.diagnosis.missing import Cause
from rules.diagnosis.wording import printable
from rules.errors import AmbiguousSampleError, PlanError, SelectorError, UnknownResourceError
from rules.kinds import NAMESPACES, PODS, GroupResource, Kind, Kinds
from rules.names import is_namespace, is_object_name
from rules.query import plan
from rules.query.aggregate import Value
from rules.query.catalog import Catalog, Entry
from rules.query.plan import Plan
from rules.quoting import shorten
from rules.selectors import selectors
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

NAME = "custom.metrics.k8s.io"
VERSIONS: tuple[str, ...] = ("v1beta1", "v1beta2")

_ALL = "*"
_NAMESPACE_METRICS = "metrics"
"""In the place of a resource: the metric describes the namespace itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Objects and metric that a URL names."""

    resource: str
    group: str
    namespace: str
    """Empty at cluster scope."""
    name: str
    """`*` for all objects that the label selector matches."""
    metric: str

    @property
    def resource_in_url(self) -> str:
        """The resource as the URL spells it."""
        return str(GroupResource(self.group, self.resource))

    def __str__(self) -> str:
        name = "" if self.name == _ALL else f"{printable(self.name)}/"
        namespace = f" in namespace {printable(self.namespace)}" if self.namespace else ""
        return f"{printable(self.resource_in_url)}/{name}{printable(self.metric)}{namespace}"


def routes(segments: Sequence[str]) -> bool:
    """Return whether the path is a route of the group.

    Routes are `RES/NAME/METRIC`, `namespaces/NS/RES/NAME/METRIC`, `namespaces/NS/metrics/METRIC`.
    The original also serves `namespaces/NS/metrics/METRIC/ANY`, but authorizes it as the
    subresource ANY. It is not served here.
    """
    if len(segments) > 3 and segments[0] == "namespaces":
        return len(segments) == (4 if segments[2] == _NAMESPACE_METRICS else 5)
    return len(segments) == 3


def to_object_scope(info: RequestInfo, kinds: Kinds) -> RequestInfo:
    """Return `info` without its namespace if it names a cluster-scoped object.

    The HPA controller asks for `namespaces/NS/nodes/NAME/METRIC`. Without the namespace, the access
    review is at cluster scope: rights in NS say nothing about nodes. A request for `*` keeps the
    namespace and gets a 404. So does one for namespaces, whose route is
    `namespaces/NS/metrics/METRIC`.
    """
    if not info.namespace or len(info.parts) != 3 or info.name in {"", _ALL}:
        return info
    resource, _, group = info.resource.partition(".")
    try:
        kind = kinds.resolve(resource, group)
    except UnknownResourceError:
        return info
    if kind.namespaced or kind.group_resource == NAMESPACES:
        return info
    return replace(info, namespace="")


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


async def answer(info: RequestInfo, backend: Backend, *, deadline: float) -> Content:
    """Return a MetricValueList; `deadline` is in loop time. Raises ApiError."""
    target = _target(info)
    selector = options.label_selector(info)
    options.check_fields(info, options.field_selector(info))
    metric_selector = _metric_selector(info)
    kinds, kind = await _resolve(target, backend)
    entry = await _entry(target, kind, backend)
    names: tuple[str, ...]
    if not _can_exist(target, kind):
        if target.name != _ALL:
            raise _not_found(target, backend, [_impossible(target, kind)], name=target.name)
        names = ()
    elif target.name == _ALL:
        names = await _list(target, kinds, selector, backend)
    else:
        await _check_not_finished(target, kind, backend)
        names = (target.name,)
    query = (
        plan.custom(entry, namespace=target.namespace, names=names, selector=metric_selector)
        if names
        else None
    )
    values = await _evaluate(target, query, backend, deadline) if query else {}
    if not values:
        await _explain(target, entry, query, backend)
    # `values` are of `names`: the same values have the same names.
    return Content(
        sources=(kind, values),
        build=lambda: _value_list(
            info.version,
            target.metric,
            selectors.label_selector(metric_selector),
            (
                (_object_reference(kind, namespace=target.namespace, name=name), values[name])
                for name in names
                if name in values
            ),
        ),
    )


def _target(info: RequestInfo) -> _Target:
    if info.namespace and info.resource == _NAMESPACE_METRICS and len(info.parts) >= 2:
        return _Target(
            resource="namespaces", group="", namespace="", name=info.namespace, metric=info.name
        )
    if len(info.parts) < 3:
        raise errors.bad_request("invalid request path")
    resource, _, group = info.resource.partition(".")
    return _Target(
        resource=resource,
        group=group,
        namespace=info.namespace,
        name=info.name or _ALL,
        metric=info.subresource,
    )


def _metric_selector(info: RequestInfo) -> Selector:
    try:
        selector = info.metric_labels
    except SelectorError as error:
        raise ApiError(500, str(error)) from error
    options.check_series_selector(selector, "metricLabelSelector")
    return selector


async def _resolve(target: _Target, backend: Backend) -> tuple[Kinds, Kind]:
    """Return the target's kind and the snapshot it is from; a miss starts a discovery."""
    kinds = backend.objects.kinds
    try:
        return kinds, kinds.resolve(target.resource, target.group)
    except UnknownResourceError:
        try:
            await backend.objects.refresh()
        except BackendError as error:
            log.warning("API discovery failed, new custom resources stay unknown: %s", error)
    kinds = backend.objects.kinds
    try:
        return kinds, kinds.resolve(target.resource, target.group)
    except UnknownResourceError as error:
        if target.name == _ALL:
            raise errors.internal("unable to list matching resources") from error
        cause = missing.unknown_resource(target.resource_in_url, kinds)
        raise _not_found(target, backend, [cause]) from error


async def _entry(target: _Target, kind: Kind, backend: Backend) -> Entry:
    """Return the catalog's entry. Raises ApiError (404) if there is none at the target's scope."""
    entry = backend.catalog().entry(kind.group_resource, target.metric)
    if entry is None:
        causes = await backend.missing_metrics.of_metric(target.metric, kind.group_resource)
        raise _not_found(target, backend, causes)
    if entry.namespaced != bool(target.namespace):
        cause = missing.other_scope(entry.resource, namespaced=entry.namespaced)
        raise _not_found(target, backend, [cause])
    return entry


def _can_exist(target: _Target, kind: Kind) -> bool:
    """Return whether Kubernetes accepts the target's names; other names reach no template."""
    if target.namespace and not is_namespace(target.namespace):
        return False
    if target.name == _ALL:
        return True
    is_name = is_namespace if kind.group_resource == NAMESPACES else is_object_name
    return is_name(target.name)


def _impossible(target: _Target, kind: Kind) -> Cause:
    return missing.impossible_object(
        kind.group_resource, namespace=target.namespace, name=target.name
    )


async def _list(
    target: _Target, kinds: Kinds, selector: Selector, backend: Backend
) -> tuple[str, ...]:
    # Like the original, list the first kind in discovery order, not the preferred one.
    resource = kinds.first(target.resource, target.group).group_resource
    try:
        return await backend.objects.names(resource, namespace=target.namespace, selector=selector)
    except BackendError as error:
        raise errors.internal("unable to list matching resources") from error


async def _check_not_finished(target: _Target, kind: Kind, backend: Backend) -> None:
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
        raise _not_found(target, backend, [cause], name=target.name)


async def _evaluate(
    target: _Target, query: Plan, backend: Backend, deadline: float
) -> Mapping[str, Value]:
    try:
        return await backend.evaluation.values(query, deadline=deadline)
    except PlanError as error:
        raise _not_found(target, backend, [missing.no_query(error)]) from error
    except (BackendError, AmbiguousSampleError) as error:
        raise errors.internal("unable to fetch metrics") from error


async def _explain(target: _Target, entry: Entry, query: Plan | None, backend: Backend) -> None:
    """Raise ApiError (404) for an answer without values, or log why its list is empty."""
    if not entry.listed:
        # Neither a relist nor this query returned a series, so the metric does not exist.
        causes = await backend.missing_metrics.of_metric(entry.metric, entry.resource)
        raise _not_found(target, backend, causes)
    if query is None:  # no object matches the label selector
        return
    causes = backend.missing_metrics.of_plan(query)
    if target.name != _ALL:
        raise _not_found(target, backend, causes, name=target.name)
    backend.missing_metrics.log_causes(str(target), causes)


def _not_found(
    target: _Target, backend: Backend, causes: Sequence[Cause], *, name: str = ""
) -> ApiError:
    """Log `causes` and return the original's 404."""
    backend.missing_metrics.log_causes(str(target), causes)
    subject = f"{target.resource_in_url} {name}" if name else target.resource_in_url
    return ApiError(
        404,
        f"the server could not find the metric {shorten(target.metric)} for {shorten(subject)}",
        reason="NotFound",
        causes=causes,
    )


def _value_list(
    version: str,
    metric: str,
    selector: encoding.Document | None,
    values: Iterable[tuple[encoding.Document, Value]],
) -> encoding.Document:
    """Build a MetricValueList from pairs of object references and values.

    https://github.com/kubernetes/metrics/tree/master/pkg/apis/custom_metrics
    """
    v1beta1 = version == "v1beta1"
    identifier = {"name": metric, "selector": selector}
    return {
        "kind": "MetricValueList",
        "apiVersion": f"{NAME}/{version}",
        "metadata": {},
        "items": [
            {
                "describedObject": reference,
                **({"metricName": metric} if v1beta1 else {"metric": identifier}),
                "timestamp": encoding.timestamp(value.time),
                "value": quantity.decimal(value.milli),
                **({"selector": selector} if v1beta1 else {}),
            }
            for reference, value in values
        ],
    }


def _object_reference(kind: Kind, *, namespace: str, name: str) -> encoding.Document:
    """Build an ObjectReference; like the original, the core group is written `/v1`."""
    reference = {
        "kind": kind.kind,
        "namespace": namespace,
        "name": name,
        "apiVersion": f"{kind.group}/{kind.version}",
    }
    return {key: value for key, value in reference.items() if value}
