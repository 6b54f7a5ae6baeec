"""What a request of custom.metrics.k8s.io asks for: its objects and its metric, resolved.

A question follows from the URL, the catalog and the kinds alone, so it is remembered until one of
these is another.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from adapter import errors
from adapter.errors import ApiError, BackendError
from adapter.server.api.groups import options
from adapter.server.api.groups.backend import Backend
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.evaluation.forecasts import Key
from rules.causes import missing
from rules.causes.wording import printable
from rules.errors import SelectorError, UnknownResourceError
from rules.findings import Finding
from rules.kinds import NAMESPACES, GroupResource, Kind, Kinds
from rules.names import is_namespace, is_object_name
from rules.query.catalog import Entry
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

ALL = "*"
NAMESPACE_METRICS = "metrics"
"""In the place of a resource: the metric describes the namespace itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
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
        name = "" if self.name == ALL else f"{printable(self.name)}/"
        namespace = f" in namespace {printable(self.namespace)}" if self.namespace else ""
        return f"{printable(self.resource_in_url)}/{name}{printable(self.metric)}{namespace}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A resolved target."""

    target: Target
    selector: Selector
    metric_selector: Selector
    kind: Kind
    listed: GroupResource
    """The resource whose objects are listed: like the original, that of the first kind in discovery
    order, not of the preferred one."""
    entry: Entry
    can_exist: bool
    """Whether Kubernetes accepts the target's names; other names reach no template."""


def forecast_key(question: Question) -> Key:
    """Return the key of the forecast by which the values are scaled."""
    target, entry = question.target, question.entry
    return (
        target.namespace,
        entry.resource,
        target.name,
        entry.metric,
        question.selector.meaning,
        question.metric_selector.meaning,
    )


async def resolve(info: RequestInfo, backend: Backend) -> Question:
    """Return what `info` asks for. Raises ApiError."""
    cached = backend.questions.under(backend.generation.catalog, backend.kinds).get(info)
    if isinstance(cached, Question):
        return cached
    target = target_of(info)
    selector = options.label_selector(info)
    options.check_fields(info, options.field_selector(info))
    metric_selector = _metric_selector(info)
    kinds, kind = await _resolve_kind(target, backend)
    catalog = backend.generation.catalog
    question = Question(
        target=target,
        selector=selector,
        metric_selector=metric_selector,
        kind=kind,
        listed=kinds.first(target.resource, target.group).group_resource,
        entry=await _entry(info, target, kind, backend),
        can_exist=_can_exist(target, kind),
    )
    backend.questions.under(catalog, kinds).set(info, question)
    return question


def not_found(
    target: Target, backend: Backend, causes: Sequence[Finding], *, name: str = ""
) -> ApiError:
    """Log `causes` and return the original's 404."""
    backend.collector.log_causes(str(target), causes)
    described = f"{target.resource_in_url} {name}" if name else target.resource_in_url
    return errors.no_metric(target.metric, described, causes)


def target_of(info: RequestInfo) -> Target:
    """Return the objects and the metric that the path names. Raises ApiError (400)."""
    if info.namespace and info.resource == NAMESPACE_METRICS and len(info.parts) >= 2:
        return Target(
            resource="namespaces", group="", namespace="", name=info.namespace, metric=info.name
        )
    if len(info.parts) < 3:
        raise errors.bad_request("invalid request path")
    resource, _, group = info.resource.partition(".")
    return Target(
        resource=resource,
        group=group,
        namespace=info.namespace,
        name=info.name or ALL,
        metric=info.subresource,
    )


def _metric_selector(info: RequestInfo) -> Selector:
    try:
        selector = info.metric_labels
    except SelectorError as error:
        raise ApiError(500, str(error)) from error
    options.check_series_selector(selector, "metricLabelSelector")
    return selector


async def _resolve_kind(target: Target, backend: Backend) -> tuple[Kinds, Kind]:
    """Return the target's kind and the snapshot it is from; a miss starts a discovery."""
    kinds = backend.kinds
    try:
        return kinds, kinds.resolve(target.resource, target.group)
    except UnknownResourceError:
        try:
            kinds = await backend.objects.refresh()
        except BackendError as error:
            log.warning("API discovery failed, new custom resources stay unknown: %s", error)
    try:
        return kinds, kinds.resolve(target.resource, target.group)
    except UnknownResourceError as error:
        cause = missing.unknown_resource(target.resource_in_url, kinds)
        if target.name == ALL:
            backend.collector.log_causes(str(target), [cause])
            raise errors.internal("unable to list matching resources", [cause]) from error
        raise not_found(target, backend, [cause]) from error


async def _entry(info: RequestInfo, target: Target, kind: Kind, backend: Backend) -> Entry:
    """Return the catalog's entry. Raises ApiError (404) if there is none at the target's scope."""
    entry = backend.generation.catalog.entry(kind.group_resource, target.metric)
    if entry is None:
        causes = await backend.why_missing(info, target.metric, kind.group_resource)
        raise not_found(target, backend, causes)
    if entry.namespaced != bool(target.namespace):
        cause = missing.other_scope(entry.resource, namespaced=entry.namespaced)
        raise not_found(target, backend, [cause])
    return entry


def _can_exist(target: Target, kind: Kind) -> bool:
    """Return whether Kubernetes accepts the target's names; other names reach no template."""
    if target.namespace and not is_namespace(target.namespace):
        return False
    if target.name == ALL:
        return True
    is_name = is_namespace if kind.group_resource == NAMESPACES else is_object_name
    return is_name(target.name)
