"""external.metrics.k8s.io: metrics that do not describe an object of the cluster.

The only route is `namespaces/NS/METRIC`; `labelSelector` selects series. The list has one item for
each sample of the rule's query, or one item without labels if the query returns a scalar.

https://github.com/kubernetes-sigs/custom-metrics-apiserver/blob/master/pkg/apiserver/installer/emhandlers.go
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from adapter import errors
from adapter.errors import ApiError, BackendError, NotInstantError
from adapter.server.api.groups import options
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import Content, Resource
from adapter.server.apimachinery import encoding, negotiation
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.evaluation.evaluation import Evaluated
from rules import metrics_apis, quantity
from rules.causes import missing
from rules.causes.wording import printable
from rules.errors import PlanError
from rules.findings import Finding
from rules.names import is_namespace
from rules.query import plan as plans
from rules.query.aggregate import ExternalValue
from rules.query.catalog import Catalog, ExternalEntry
from rules.query.plan import ExternalPlan
from rules.selectors.selectors import Selector

API = metrics_apis.EXTERNAL
TRANSFORMS = negotiation.ONLY_UNCHANGED | negotiation.PARTIAL
"""Like the original, which accepts PartialObjectMetadata and then fails for lack of metadata."""

_NOT_FOUND = 404
_Evaluated = Evaluated[tuple[ExternalValue, ...]]
_NOTHING: _Evaluated = Evaluated(values=())


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedExternal:
    """A metric, and which of its series are requested."""

    info: RequestInfo
    entry: ExternalEntry | None
    """None if no rule produces the metric, so that the fallback is asked for it."""
    selector: Selector
    names: None = None
    """It describes no objects."""


def routes(segments: Sequence[str]) -> bool:
    """Return whether the path is `namespaces/NS/METRIC`."""
    return len(segments) == 3 and segments[0] == "namespaces"


def resources(catalog: Catalog) -> Sequence[Resource]:
    """Return every metric, including those that rules pin and that have no series."""
    return entries(catalog.external)


def entries(metrics: Iterable[str]) -> list[Resource]:
    """Return an entry of the APIResourceList for each metric."""
    return [
        Resource(name=metric, namespaced=True, kind="ExternalMetricValueList") for metric in metrics
    ]


async def resolve(info: RequestInfo, backend: Backend) -> RequestedExternal:
    """Return the metric and which of its series are requested. Raises ApiError.

    Metric and namespace are taken from `info`, because these were authorized. They differ from the
    path's only if it ends in `/` or has `status` or `finalize` in place of the metric.
    """
    selector, _ = options.of_list(info, group=API.name, kind="*")
    entry = backend.generation.catalog.external_entry(info.resource)
    if entry is None and backend.fallback is None:
        causes = await backend.why_missing(info, info.resource)
        backend.collector.log_causes(_subject(info), causes)
        raise _not_found(info, causes)
    if entry is None:
        backend.check_loaded(info)
    options.check_series_selector(selector, "labelSelector")
    return RequestedExternal(info=info, entry=entry, selector=selector)


def plan(requested: RequestedExternal) -> ExternalPlan | None:
    """Return the query of the series; None without a rule, or if their namespace cannot exist."""
    namespace = requested.info.namespace
    if requested.entry is None:
        return None
    if requested.entry.namespaced and not _can_exist(namespace):
        return None
    return plans.external(requested.entry, namespace=namespace, selector=requested.selector)


async def evaluate(
    requested: RequestedExternal, query: ExternalPlan | None, backend: Backend, *, deadline: float
) -> _Evaluated:
    """Return a value for each sample. Raises ApiError."""
    if requested.entry is None:
        return await _forwarded(requested.info, backend, deadline=deadline)
    if query is None:
        return _NOTHING
    subject = _subject(requested.info)
    try:
        return await backend.evaluation.rows(query, deadline=deadline)
    except NotInstantError as error:
        raise ApiError(500, "encountered an unexpected query result type") from error
    except PlanError as error:
        cause = missing.no_query(error)
        backend.collector.log_causes(subject, [cause])
        raise errors.internal("unable to fetch metrics", [cause]) from error
    except BackendError as error:
        raise backend.collector.query_failed(subject, query, error) from error


async def content(
    requested: RequestedExternal, query: ExternalPlan | None, found: _Evaluated, backend: Backend
) -> Content:
    """Return an ExternalMetricValueList.

    Raises ApiError (404) if it is empty, unless the backend answers that with an empty list.
    """
    causes: tuple[Finding, ...] = ()
    if query and found.partial:
        causes = (missing.partial_response(str(query.step.rule.config.where)),)
    elif query and not found.values:
        causes = await backend.collector.of_plan(backend.inventory, query)
        backend.collector.log_causes(_subject(requested.info), causes)
    if causes and not found.values and backend.errors_for_empty_lists:
        raise _not_found(requested.info, causes)
    return Content(
        sources=(found.values,),
        items=len(found.values),
        causes=causes,
        values=found.values,
        build=partial(_value_list, requested.info, found.values),
    )


async def _forwarded(info: RequestInfo, backend: Backend, *, deadline: float) -> _Evaluated:
    """Return the values that the fallback has for the request. Raises ApiError."""
    assert backend.fallback is not None
    try:
        values = await backend.fallback.values(
            info.resource, namespace=info.namespace, selector=info.label_selector, deadline=deadline
        )
    except ValueError as error:
        raise errors.bad_request(str(error)) from error
    except BackendError as error:
        causes = (
            missing.failed_fallback(backend.fallback.name, _answer(error)),
            *await backend.why_missing(info, info.resource),
        )
        backend.collector.log_causes(_subject(info), causes, error)
        if error.status == _NOT_FOUND:
            raise _not_found(info, causes) from error
        raise errors.internal("unable to fetch metrics", causes) from error
    return Evaluated(values=values)


def _answer(error: BackendError) -> str:
    """Return what the fallback did, as the predicate of a sentence."""
    if error.status:
        return f"answers {error.status}: {printable(error.refusal)}"
    if isinstance(error, errors.NoCredentials):
        return "gets no requests: the adapter has no token for it, and its log says why"
    wrong = "answers with something else than values" if isinstance(error, errors.Broken) else ""
    return error.refusal or f"{wrong or 'does not answer'}: the adapter's log has the error"


def _subject(info: RequestInfo) -> str:
    return f"external metric {printable(info.resource)} in namespace {printable(info.namespace)}"


def _can_exist(namespace: str) -> bool:
    """Return whether Kubernetes accepts the namespace; another one reaches no template.

    Like the original, query also without a namespace, and with `*` as its name.
    """
    return namespace in {"", "*"} or is_namespace(namespace)


def _value_list(
    info: RequestInfo, values: Iterable[ExternalValue], transform: negotiation.Transform
) -> encoding.Document:
    """Build an ExternalMetricValueList; the labels of a scalar are null. Raises ApiError.

    https://github.com/kubernetes/metrics/tree/master/pkg/apis/external_metrics
    """
    if transform != negotiation.UNCHANGED:
        raise ApiError(500, "object does not implement the Object interfaces")
    return {
        "kind": "ExternalMetricValueList",
        "apiVersion": API.group_version(info.version),
        "metadata": {},
        "items": [
            {
                "metricName": info.resource,
                "metricLabels": None if each.labels is None else dict(sorted(each.labels.items())),
                "timestamp": encoding.timestamp(each.value.time),
                "value": quantity.decimal(each.value.milli),
            }
            for each in values
        ],
    }


def _not_found(info: RequestInfo, causes: Sequence[Finding]) -> ApiError:
    # The original names a resource only for the namespace `default`.
    described = "namespaces" if info.namespace == "default" else ""
    return errors.no_metric(info.resource, described, causes)
