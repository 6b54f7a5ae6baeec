"""metrics.k8s.io: CPU and memory of pods and nodes, from the queries of `resourceRules`.

kubectl top and autoscalers on CPU and memory use it. An object without CPU or without memory is
left out. Objects are pods that have not finished, and nodes.

https://github.com/kubernetes-sigs/metrics-server/tree/master/pkg/api
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from adapter import errors
from adapter.errors import ApiError, BackendError
from adapter.server.api.groups import options, resource_documents
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import Content, Resource
from adapter.server.api.groups.resource_documents import Measured
from adapter.server.apimachinery import negotiation
from adapter.server.apimachinery.encoding import Document
from adapter.server.apimachinery.negotiation import Transform
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.causes import collector
from adapter.server.cluster.object_index import Object
from adapter.server.evaluation.evaluation import Usages
from rules import metrics_apis
from rules.causes import missing
from rules.causes.wording import printable
from rules.findings import Finding
from rules.kinds import NODES, PODS, GroupResource
from rules.query import resource
from rules.query.catalog import Catalog
from rules.query.plan import Plan
from rules.query.resource import ResourceQueries, Usage, UsageByName
from rules.selectors.fields import FieldRequirement

API = metrics_apis.USAGE
TRANSFORMS = negotiation.ONLY_UNCHANGED | negotiation.PARTIAL | negotiation.TABLE

_KINDS = {PODS: "PodMetrics", NODES: "NodeMetrics"}
_MAX_CAUSES = 8
_OBJECT_SIZE, _USAGE_SIZE = 100, 400
"""Bytes of an object without its labels, which the watch cache has, and of a usage."""
_NOTHING = UsageByName()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedUsage:
    """The objects whose usage is requested."""

    info: RequestInfo
    kind: GroupResource
    single: bool
    """Whether the path names one object."""
    objects: tuple[Object, ...]
    by_namespace: Mapping[str, Sequence[Object]]
    queries: ResourceQueries


def routes(segments: Sequence[str]) -> bool:
    """Return whether the path is that of nodes or pods, or of one of them.

    Those are `nodes`, `nodes/NAME`, `pods`, `namespaces/NS/pods` and `namespaces/NS/pods/NAME`.
    """
    if segments[:1] == ("namespaces",):
        return len(segments) in (3, 4) and segments[2] == "pods"
    return segments == ("pods",) or (len(segments) in (1, 2) and segments[0] == "nodes")


def resources(catalog: Catalog) -> Sequence[Resource]:  # noqa: ARG001 - see Group
    """Return nodes and pods."""
    return [
        Resource(
            name=each.resource, namespaced=each == PODS, kind=_KINDS[each], verbs=("get", "list")
        )
        for each in (NODES, PODS)
    ]


async def resolve(info: RequestInfo, backend: Backend) -> RequestedUsage:
    """Return the path's object, or those of a list. Raises ApiError.

    Resource, namespace and name are those of `info`, which were authorized. A list has a name
    there, too, if its field selector requires one.
    """
    queries = backend.generation.resources
    assert queries is not None  # the group is not served without `resourceRules`
    kind = NODES if info.resource == NODES.resource else PODS
    single = len(info.below_version) in (2, 4)
    if single and not info.below_version[-1]:
        raise errors.bad_request("name must be provided")
    objects = await (_object if single else _objects)(info, kind, backend)
    return RequestedUsage(
        info=info,
        kind=kind,
        single=single,
        objects=objects,
        by_namespace=_by_namespace(objects),
        queries=queries,
    )


def plan(requested: RequestedUsage) -> Sequence[Plan]:
    """Return the queries for CPU and memory of each namespace."""
    plans: list[Plan] = []
    for namespace, objects in requested.by_namespace.items():
        names = [each.name for each in objects]
        plans += resource.plans(requested.queries, requested.kind, namespace=namespace, names=names)
    return plans


async def evaluate(
    requested: RequestedUsage,  # noqa: ARG001 - see Group
    query: Sequence[Plan],
    backend: Backend,
    *,
    deadline: float,
) -> Sequence[Usages]:
    """Return the usages of each plan, or why there are none."""
    return await backend.evaluation.usages(query, deadline=deadline)


async def content(
    requested: RequestedUsage, query: Sequence[Plan], found: Sequence[Usages], backend: Backend
) -> Content:
    """Return the metrics of the object, or a list. Raises ApiError (404) for one without them."""
    info, kind, objects = requested.info, requested.kind, requested.objects
    single = requested.single
    usages, failure = _usages(found), _failure(found)
    has_value = any(map(_have_both, usages[::2], usages[1::2]))
    causes = () if single and has_value else _causes(query, found)
    if not objects:
        selected = str(options.label_selector(info))
        causes = (missing.no_match(kind, namespace=info.namespace, selector=selected),)
    if failure is not None or not has_value:
        subject = _subject(kind, info.namespace, info.name if single else "")
        backend.collector.log_causes(subject, causes, failure)
    if single and not has_value:
        qualified = "/".join(filter(None, (info.namespace, info.name)))
        raise _not_found(API.name, _KINDS[kind].lower(), qualified, causes)

    def build(transform: Transform) -> Document:
        parts = zip(requested.by_namespace.values(), usages[::2], usages[1::2], strict=True)
        measured = [
            each
            for those, cpu, memory in parts
            for each in _measured(kind, those, cpu, memory, requested.queries.window_ns)
        ]
        if single:
            return resource_documents.of_object(info, measured[0], transform)
        return resource_documents.of_list(info, _KINDS[kind], measured, transform)

    return Content(
        # A single object is read anew for each request; its labels stay the same.
        sources=(objects[0].labels if single else objects, *usages),
        size=_size(objects, usages),
        items=len(objects),
        causes=causes,
        build=build,
    )


async def _objects(info: RequestInfo, kind: GroupResource, backend: Backend) -> tuple[Object, ...]:
    selector, fields = options.of_list(info, group=API.name, kind=kind.resource)
    objects = await backend.listed(
        backend.objects.objects(kind, namespace=info.namespace, selector=selector),
        kind,
        _subject(kind, info.namespace),
    )
    if fields:
        objects = tuple(each for each in objects if _has_fields(each, fields))
    return objects


async def _object(info: RequestInfo, kind: GroupResource, backend: Backend) -> tuple[Object, ...]:
    found = await backend.listed(
        backend.objects.object(kind, namespace=info.namespace, name=info.name),
        kind,
        _subject(kind, info.namespace, info.name),
    )
    if found is None:
        # Like the original, which names a node in the singular.
        raise _not_found("", "node" if kind == NODES else "pods", info.name)
    return (found,)


def _has_fields(item: Object, requirements: Sequence[FieldRequirement]) -> bool:
    values = {"metadata.name": item.name, "metadata.namespace": item.namespace}
    return all(
        (values[each.field] == each.value) == (each.operator == "=") for each in requirements
    )


def _by_namespace(objects: Iterable[Object]) -> dict[str, list[Object]]:
    """Return the objects by namespace, sorted by it; nodes are below ""."""
    found: dict[str, list[Object]] = {}
    for each in objects:
        found.setdefault(each.namespace, []).append(each)
    return dict(sorted(found.items()))


def _size(objects: Sequence[Object], usages: Iterable[Mapping[str, Usage]]) -> int:
    return _OBJECT_SIZE * len(objects) + _USAGE_SIZE * sum(map(len, usages))


def _usages(found: Sequence[Usages]) -> tuple[Mapping[str, Usage], ...]:
    """Return the usages; like in the original, objects whose query failed have none."""
    return tuple(each if isinstance(each, UsageByName) else _NOTHING for each in found)


def _have_both(cpu: Mapping[str, Usage], memory: Mapping[str, Usage]) -> bool:
    """Return whether an object has CPU and memory."""
    return not cpu.keys().isdisjoint(memory)


def _failure(found: Sequence[Usages]) -> BackendError | None:
    """Return the error of the first query that failed; it quotes Prometheus."""
    return next((each for each in found if isinstance(each, BackendError)), None)


def _causes(plans: Sequence[Plan], found: Sequence[Usages]) -> tuple[Finding, ...]:
    """Return why objects have no usage, at most eight causes."""
    causes: list[Finding] = []
    for plan, usages in zip(plans, found, strict=True):
        if isinstance(usages, UsageByName):
            if usages.not_finite:
                causes.append(missing.without_finite_usage(plan, usages.not_finite))
            if len(usages) + len(usages.not_finite) < len(plan.names):
                known = usages.keys() | usages.not_finite
                causes.append(missing.without_usage(plan, known))
        elif isinstance(usages, BackendError):
            rule = plan.steps[0].rule
            key = rule.config.where.path.rpartition(".")[2]
            causes.append(collector.query_cause(rule, usages, key=key))
        else:
            causes.append(missing.no_query(usages))
    return tuple(dict.fromkeys(causes))[:_MAX_CAUSES]


def _measured(
    kind: GroupResource,
    objects: Iterable[Object],
    cpu: Mapping[str, Usage],
    memory: Mapping[str, Usage],
    window_ns: int,
) -> Iterator[Measured]:
    """Yield the objects of one namespace, or nodes, that have both CPU and memory."""
    for each in objects:
        if each.name in cpu and each.name in memory:
            yield Measured(
                kind=_KINDS[kind],
                object=each,
                cpu=cpu[each.name],
                memory=memory[each.name],
                window_ns=window_ns,
            )


def _subject(kind: GroupResource, namespace: str, name: str = "") -> str:
    place = f" in namespace {printable(namespace)}" if namespace else ""
    return f"{kind.resource}.{API.name}{f'/{printable(name)}' if name else ''}{place}"


def _not_found(group: str, kind: str, name: str, causes: Sequence[Finding] = ()) -> ApiError:
    details = {"name": name, **({"group": group} if group else {}), "kind": kind}
    what = f"{kind}.{group}" if group else kind
    return ApiError(
        404, f'{what} "{name}" not found', reason="NotFound", details=details, causes=causes
    )
