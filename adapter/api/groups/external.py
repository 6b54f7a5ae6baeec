"""external.metrics.k8s.io: metrics that describe no object of the cluster.

One route, `namespaces/NS/METRIC`, whose `labelSelector` selects series. An answer has one item for
each sample of the rule's query, or one without labels where the query is a scalar.
https://github.com/kubernetes-sigs/custom-metrics-apiserver/blob/master/pkg/apiserver/installer/emhandlers.go
"""

from __future__ import annotations

from collections.abc import Sequence

from adapter import errors
from adapter.api.groups import options
from adapter.api.groups.group import Backend, Resource
from adapter.errors import ApiError, BackendError, NotInstantError
from adapter.http import encoding
from adapter.http.request_info import RequestInfo
from rules.diagnosis.missing import Cause
from rules.diagnosis.wording import shown
from rules.errors import PlanError
from rules.query import plan as plans
from rules.query.catalog import Catalog

NAME = "external.metrics.k8s.io"
VERSIONS: tuple[str, ...] = ("v1beta1",)


def routes(segments: Sequence[str]) -> bool:
    return len(segments) == 3 and segments[0] == "namespaces"


def resources(catalog: Catalog) -> Sequence[Resource]:
    """Every metric, also one that rules pin and that has no series now."""
    return [
        # What is asked of an authorizer is `list`; discovery says `get` all the same.
        Resource(name=metric, namespaced=True, kind="ExternalMetricValueList", verbs=("get",))
        for metric in catalog.external
    ]


async def answer(
    info: RequestInfo, backend: Backend, *, deadline: float | None = None
) -> encoding.Document:
    """An ExternalMetricValueList. Raises ApiError with the original's words at each stage.

    Metric and namespace are those of the request info, which the caller was authorized for; they
    are the path's, save for a path that ends in `/` or a word that RequestInfo keeps for itself.
    """
    selector = options.label_selector(info)
    fields = options.fields(info)
    if not info.watch:
        options.check_versions(info)
    options.check_fields(info, fields)
    if info.watch:
        raise _no_watch()
    metric = info.resource
    entry = backend.catalog().external_entry(metric)
    if entry is None:
        causes = await backend.absences.of_metric(metric)
        backend.absences.tell(_subject(info), causes)
        raise _not_found(metric, info.namespace, causes)
    options.check_comparable(selector, "labelSelector")
    try:
        plan = plans.external(entry, namespace=info.namespace, selector=selector)
        rows = await backend.evaluation.rows(plan, deadline=deadline)
    except NotInstantError as error:
        raise ApiError(500, "encountered an unexpected query result type") from error
    except (PlanError, BackendError) as error:
        raise errors.internal("unable to fetch metrics") from error
    if not rows:  # an empty list says nothing itself
        backend.absences.tell(_subject(info), backend.absences.of_plan(plan))
    return encoding.external_metric_value_list(metric, rows)


def _subject(info: RequestInfo) -> str:
    """What is asked for, for the log."""
    return f"external metric {shown(info.resource)} in namespace {shown(info.namespace)}"


def _no_watch() -> ApiError:
    return ApiError(
        405,
        f'watch is not supported on resources of kind "*.{NAME}"',
        reason="MethodNotAllowed",
        details={"group": NAME, "kind": "*"},
    )


def _not_found(metric: str, namespace: str, causes: Sequence[Cause]) -> ApiError:
    # The original names a resource in the namespace `default` alone, and nothing in any other.
    subject = "namespaces" if namespace == "default" else ""
    return ApiError(
        404,
        f"the server could not find the metric {metric} for {subject}",
        reason="NotFound",
        causes=causes,
    )
