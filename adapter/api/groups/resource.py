"""metrics.k8s.io: CPU and memory of pods and nodes, from the queries of `resourceRules`.

kubectl top and autoscalers on CPU and memory use it. An object without CPU or without memory is
left out. Objects are pods that have not finished, and nodes.

https://github.com/kubernetes-sigs/metrics-server/tree/master/pkg/api
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from adapter import errors
from adapter.api.groups import options, resource_documents
from adapter.api.groups.group import Backend, Content, Resource
from adapter.api.groups.resource_documents import Measured
from adapter.apimachinery import negotiation
from adapter.apimachinery.encoding import Document
from adapter.apimachinery.negotiation import Transform
from adapter.apimachinery.request_info import RequestInfo
from adapter.causes import failures
from adapter.cluster.object_index import Object
from adapter.errors import ApiError, BackendError
from adapter.evaluation.evaluation import Usages
from rules.causes import missing, usage
from rules.causes.cause import Cause
from rules.causes.wording import printable
from rules.kinds import NODES, PODS, GroupResource, Kinds
from rules.query import resource
from rules.query.catalog import Catalog
from rules.query.plan import Plan
from rules.query.resource import ResourceQueries, Usage
from rules.selectors.selectors import FieldRequirement

NAME = "metrics.k8s.io"
VERSIONS: tuple[str, ...] = ("v1beta1",)
TRANSFORMS = negotiation.ONLY_UNCHANGED | negotiation.PARTIAL | negotiation.TABLE

_KINDS = {PODS: "PodMetrics", NODES: "NodeMetrics"}
_MAX_CAUSES = 8
_OBJECT_SIZE, _USAGE_SIZE = 100, 400
"""Bytes of an object without its labels, which the watch cache has, and of a usage."""
_NOTHING: Mapping[str, Usage] = {}


def routes(segments: Sequence[str]) -> bool:
    """Return whether the path is that of nodes or pods, or of one of them.

    Those are `nodes`, `nodes/NAME`, `pods`, `namespaces/NS/pods` and `namespaces/NS/pods/NAME`.
    """
    if segments[:1] == ("namespaces",):
        return len(segments) in (3, 4) and segments[2] == "pods"
    return segments == ("pods",) or (len(segments) in (1, 2) and segments[0] == "nodes")


def to_object_scope(info: RequestInfo, kinds: Kinds) -> RequestInfo:  # noqa: ARG001 - see Group
    """Return `info`: no route has nodes below a namespace."""
    return info


def resources(catalog: Catalog) -> Sequence[Resource]:  # noqa: ARG001 - see Group
    """Return nodes and pods."""
    return [
        Resource(
            name=each.resource, namespaced=each == PODS, kind=_KINDS[each], verbs=("get", "list")
        )
        for each in (NODES, PODS)
    ]


async def answer(info: RequestInfo, backend: Backend, *, deadline: float) -> Content:
    """Return the metrics of the path's object, or a list; `deadline` is in loop time.

    Raises ApiError. Resource, namespace and name are those of `info`, which were authorized. A
    list has a name there, too, if its field selector requires one.
    """
    assert backend.resources is not None  # the group is not served without `resourceRules`
    kind = NODES if info.resource == NODES.resource else PODS
    if len(info.below_version) in (2, 4):
        if not info.below_version[-1]:
            raise errors.bad_request("name must be provided")
        return await _get(info, kind, backend, backend.resources, deadline)
    return await _list(info, kind, backend, backend.resources, deadline)


async def _list(
    info: RequestInfo,
    kind: GroupResource,
    backend: Backend,
    queries: ResourceQueries,
    deadline: float,
) -> Content:
    selector, fields = options.of_list(info, group=NAME, kind=kind.resource)
    try:
        objects = await backend.objects.objects(kind, namespace=info.namespace, selector=selector)
    except BackendError as error:
        raise failures.of_list(
            backend.collector, _subject(kind, info.namespace), kind, error
        ) from error
    if fields:
        objects = tuple(each for each in objects if _has_fields(each, fields))
    by_namespace = _by_namespace(objects)
    plans: list[Plan] = []
    for namespace, those in by_namespace.items():
        names = [each.name for each in those]
        plans += resource.plans(queries, kind, namespace=namespace, names=names)
    found = await backend.evaluation.usages(plans, deadline=deadline)
    usages = _usages(found)
    causes = _causes(plans, found)
    if not objects:
        selected = str(selector)
        causes = (missing.no_match(kind, namespace=info.namespace, selector=selected),)
    failure = _failure(found)
    if failure is not None or not any(map(_have_both, usages[::2], usages[1::2])):
        backend.collector.log_causes(_subject(kind, info.namespace), causes, failure)

    def build(transform: Transform) -> Document:
        parts = zip(by_namespace.values(), usages[::2], usages[1::2], strict=True)
        measured = [
            each
            for those, cpu, memory in parts
            for each in _measured(kind, those, cpu, memory, queries.window_ns)
        ]
        return resource_documents.of_list(info, _KINDS[kind], measured, transform)

    return Content(
        sources=(objects, *usages),
        size=_size(objects, usages),
        items=len(objects),
        causes=causes,
        build=build,
    )


async def _get(
    info: RequestInfo,
    kind: GroupResource,
    backend: Backend,
    queries: ResourceQueries,
    deadline: float,
) -> Content:
    try:
        found = await backend.objects.object(kind, namespace=info.namespace, name=info.name)
    except BackendError as error:
        subject = _subject(kind, info.namespace, info.name)
        raise failures.of_list(backend.collector, subject, kind, error) from error
    if found is None:
        # Like the original, which names a node in the singular.
        raise _not_found("", "node" if kind == NODES else "pods", info.name)
    plans = resource.plans(queries, kind, namespace=found.namespace, names=(found.name,))
    evaluated = await backend.evaluation.usages(plans, deadline=deadline)
    cpu, memory = usages = _usages(evaluated)
    if not (cpu and memory):
        causes = _causes(plans, evaluated)
        qualified = f"{found.namespace}/{found.name}" if found.namespace else found.name
        subject = _subject(kind, found.namespace, found.name)
        backend.collector.log_causes(subject, causes, _failure(evaluated))
        raise _not_found(NAME, _KINDS[kind].lower(), qualified, causes)
    (measured,) = _measured(kind, (found,), cpu, memory, queries.window_ns)
    return Content(
        sources=(found.labels, *usages),
        size=_size((found,), usages),
        build=partial(resource_documents.of_object, info, measured),
    )


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
    return tuple(each if isinstance(each, Mapping) else _NOTHING for each in found)


def _have_both(cpu: Mapping[str, Usage], memory: Mapping[str, Usage]) -> bool:
    """Return whether an object has CPU and memory."""
    return not cpu.keys().isdisjoint(memory)


def _failure(found: Sequence[Usages]) -> BackendError | None:
    """Return the error of the first query that failed; it quotes Prometheus."""
    return next((each for each in found if isinstance(each, BackendError)), None)


def _causes(plans: Sequence[Plan], found: Sequence[Usages]) -> tuple[Cause, ...]:
    """Return why objects have no usage, at most eight causes."""
    causes: list[Cause] = []
    for plan, usages in zip(plans, found, strict=True):
        if isinstance(usages, Mapping):
            if len(usages) < len(plan.names):
                causes.append(usage.without_usage(plan, usages))
        elif isinstance(usages, BackendError):
            rule = plan.steps[0].rule
            key = rule.config.where.path.rpartition(".")[2]
            causes.append(failures.query_cause(rule, usages, key=key))
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
    return f"{kind.resource}.{NAME}{f'/{printable(name)}' if name else ''}{place}"


def _not_found(group: str, kind: str, name: str, causes: Sequence[Cause] = ()) -> ApiError:
    details = {"name": name, **({"group": group} if group else {}), "kind": kind}
    what = f"{kind}.{group}" if group else kind
    return ApiError(
        404, f'{what} "{name}" not found', reason="NotFound", details=details, causes=causes
    )
