"""custom.metrics.k8s.io: metrics that describe objects of the cluster.

v1beta1 and v1beta2 have the same routes and differ only in how a value is written down.
https://github.com/kubernetes-sigs/custom-metrics-apiserver/tree/master/pkg/apiserver/installer
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from adapter import errors
from adapter.api.groups import options
from adapter.api.groups.group import Backend, Resource
from adapter.errors import ApiError, BackendError
from adapter.http import encoding
from adapter.http.request_info import RequestInfo
from rules.diagnosis import missing
from rules.diagnosis.missing import Cause
from rules.diagnosis.wording import shown
from rules.errors import AmbiguousSampleError, PlanError, SelectorError, UnknownResourceError
from rules.kinds import NAMESPACES, PODS, GroupResource, Kind, Kinds
from rules.query import plan as plans
from rules.query.catalog import Catalog, Entry
from rules.selectors import selectors
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

NAME = "custom.metrics.k8s.io"
VERSIONS: tuple[str, ...] = ("v1beta1", "v1beta2")

_EVERYTHING = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What a URL of this group asks for."""

    resource: str
    group: str
    namespace: str
    name: str
    """`*` for every object that the label selector selects."""
    metric: str

    @property
    def typed(self) -> str:
        """The resource as the URL spells it, for messages."""
        return str(GroupResource(self.group, self.resource))

    @property
    def subject(self) -> str:
        """What is asked for, for the log."""
        name = "" if self.name == _EVERYTHING else f"{shown(self.name)}/"
        space = f" in namespace {shown(self.namespace)}" if self.namespace else ""
        return f"{shown(self.typed)}/{name}{shown(self.metric)}{space}"


def routes(segments: Sequence[str]) -> bool:
    """`RES/NAME/METRIC`, `namespaces/NS/RES/NAME/METRIC`, `namespaces/NS/metrics/METRIC`."""
    if len(segments) == 3:
        return True
    if len(segments) == 4:
        return segments[0] == "namespaces" and segments[2] == "metrics"
    return len(segments) == 5 and segments[0] == "namespaces"


def resources(catalog: Catalog) -> Sequence[Resource]:
    return [
        Resource(
            name=f"{entry.resource}/{entry.metric}",
            namespaced=entry.namespaced,
            kind="MetricValueList",
            verbs=("get",),
        )
        for entry in catalog.entries
    ]


async def answer(
    info: RequestInfo, backend: Backend, *, deadline: float | None = None
) -> encoding.Document:
    """A MetricValueList. Raises ApiError with the original's words at each stage."""
    question = _question(info)
    selector = options.label_selector(info)
    options.check_fields(info, options.fields(info))
    metric_selector, written = _metric_selector(info)
    kinds, kind = await _resolved(question, backend)
    entry = await _entry(question, kind, backend)
    namespace = question.namespace if entry.namespaced else ""
    if question.name == _EVERYTHING:
        # What is listed is the first kind in discovery order, which need not be the preferred one.
        listed = kinds.first(question.resource, question.group).group_resource
        try:
            names = await backend.objects.names(listed, namespace=namespace, selector=selector)
        except BackendError as error:
            raise errors.internal("unable to list matching resources") from error
    else:
        names = (question.name,)
        if not await _may_have_values(backend, kind, namespace, question.name):
            over = missing.no_object(PODS, namespace=namespace, name=question.name)
            raise _not_found(question, backend, [over], name=question.name)
    values = {}
    plan = None
    if names:
        try:
            plan = plans.custom(entry, namespace=namespace, names=names, selector=metric_selector)
        except PlanError as error:
            raise _not_found(question, backend, [missing.no_query(error)]) from error
        try:
            values = dict(await backend.evaluation.values(plan, deadline=deadline))
        except (BackendError, AmbiguousSampleError) as error:
            raise errors.internal("unable to fetch metrics") from error
    if not values and not entry.listed:  # nobody has seen it, and nor did this question
        causes = await backend.absences.of_metric(entry.metric, entry.resource)
        raise _not_found(question, backend, causes)
    if not values and plan is not None:
        causes = backend.absences.of_plan(plan)
        if question.name != _EVERYTHING:
            raise _not_found(question, backend, causes, name=question.name)
        backend.absences.tell(question.subject, causes)  # an empty list says nothing itself
    return encoding.metric_value_list(
        info.version,
        question.metric,
        written,
        (
            (encoding.object_reference(kind, namespace=namespace, name=name), values[name])
            for name in names
            if name in values
        ),
    )


def _question(info: RequestInfo) -> _Question:
    if info.namespace and info.resource == "metrics" and len(info.parts) >= 2:
        # The namespace is itself the object that is described.
        return _Question(
            resource="namespaces", group="", namespace="", name=info.namespace, metric=info.name
        )
    if len(info.parts) < 3:
        raise errors.bad_request("invalid request path")
    resource, _, group = info.resource.partition(".")
    return _Question(
        resource=resource,
        group=group,
        namespace=info.namespace,
        name=info.name or _EVERYTHING,
        metric=info.subresource,
    )


def _metric_selector(info: RequestInfo) -> tuple[Selector, encoding.Document | None]:
    """The metric selector, parsed and as a metav1.LabelSelector."""
    try:
        selector = selectors.parse(info.metric_label_selector)
    except SelectorError as error:
        raise ApiError(500, str(error)) from error
    options.check_comparable(selector, "metricLabelSelector")
    return selector, selectors.label_selector(selector)


async def _resolved(question: _Question, backend: Backend) -> tuple[Kinds, Kind]:
    """The kind that is meant, and the kinds among which it was found; a miss makes them refresh."""
    try:
        kinds = backend.objects.kinds
        try:
            return kinds, kinds.resolve(question.resource, question.group)
        except UnknownResourceError:
            await _refresh(backend)
            kinds = backend.objects.kinds
            return kinds, kinds.resolve(question.resource, question.group)
    except UnknownResourceError as error:
        if question.name == _EVERYTHING:
            raise errors.internal("unable to list matching resources") from error
        unknown = missing.unknown_resource(question.typed, backend.objects.kinds)
        raise _not_found(question, backend, [unknown]) from error


async def _refresh(backend: Backend) -> None:
    try:
        await backend.objects.refresh()
    except BackendError as error:
        log.warning("resources that were installed of late stay unknown: %s", error)


async def _entry(question: _Question, kind: Kind, backend: Backend) -> Entry:
    """What serves the question. Cluster-scoped objects may be asked for below any namespace.

    Save namespaces: who may read one of them there must not come to read another.
    """
    entry = backend.catalog().entry(kind.group_resource, question.metric)
    if entry is None:
        why = await backend.absences.of_metric(question.metric, kind.group_resource)
        raise _not_found(question, backend, why)
    if entry.namespaced == bool(question.namespace):
        return entry
    if entry.namespaced or entry.resource == NAMESPACES:
        scope = missing.other_scope(entry.resource, namespaced=entry.namespaced)
        raise _not_found(question, backend, [scope])
    return entry


async def _may_have_values(backend: Backend, kind: Kind, namespace: str, name: str) -> bool:
    """False for a pod that is over. Where that cannot be found out, the question is asked."""
    if kind.group_resource != PODS:
        return True
    try:
        return await backend.objects.live(PODS, namespace=namespace, name=name)
    except BackendError as error:
        log.warning(
            "whether pod %s/%s is alive is unknown, so its metrics are asked for all the same: %s",
            namespace,
            name,
            error,
        )
        return True


def _not_found(
    question: _Question, backend: Backend, causes: Sequence[Cause], *, name: str = ""
) -> ApiError:
    """The original's words, with `causes` for those who may know them and for the log."""
    backend.absences.tell(question.subject, causes)
    subject = f"{question.typed} {name}" if name else question.typed
    return ApiError(
        404,
        f"the server could not find the metric {question.metric} for {subject}",
        reason="NotFound",
        causes=causes,
    )
