"""The interfaces between an API group, the router and the rest of the adapter.

An API group is a module of the shape `Group`, listed in `GROUPS`. It reaches the rest of the
adapter only through `Backend`, which a request reads once. Generation and kinds are immutable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

from adapter import errors
from adapter.cache import WeakCache
from adapter.clients.external_metrics import ExternalMetrics
from adapter.server.apimachinery.encoding import Document
from adapter.server.apimachinery.negotiation import Transform
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.causes.collector import CauseCollector
from adapter.server.cluster.object_index import Object
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.series.generation import Generation
from rules.causes import missing
from rules.causes.inventory import Inventory
from rules.findings import Finding
from rules.kinds import GroupResource, Kinds
from rules.metrics_apis import MetricsApi
from rules.query.catalog import Catalog
from rules.selectors.selectors import Selector

Requested = TypeVar("Requested")
Query = TypeVar("Query")
Found = TypeVar("Found")


class Objects(Protocol):
    """Resource kinds and objects, of the cluster or from manifest files."""

    @property
    def kinds(self) -> Kinds:
        """The current kinds."""
        ...

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the matching objects, without finished pods.

        Raises BackendError.
        """
        ...

    async def objects(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[Object, ...]:
        """Return the matching objects; as `names` in all other respects."""
        ...

    async def object(self, resource: GroupResource, *, namespace: str, name: str) -> Object | None:
        """Return an object by its name; None if it does not exist or is a finished pod.

        Raises BackendError.
        """
        ...

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """Return False only for a pod that is known to be finished. Raises BackendError."""
        ...

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`, and for how long.

        It is 0 for pods that are not Ready. Raises BackendError.
        """
        ...

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        """Return the workloads of a namespace by name, each with the selector of its pods.

        Raises BackendError.
        """
        ...

    async def refresh(self) -> None:
        """Discover `kinds` again, unless that was just done. Raises BackendError."""
        ...


class TeamRules(Protocol):
    """What is known about the rules of teams beside the generation."""

    def pending(self, namespace: str) -> Finding | None:
        """Return the cause if rules of the namespace are not loaded yet; None if they are."""
        ...

    def causes(self, namespace: str) -> tuple[Finding, ...]:
        """Return why the namespace may lack a metric."""
        ...

    async def document(self, namespace: str, view: Generation) -> Document:
        """Return the document about the rules of a namespace, which sees `view`."""
        ...


class Questions:
    """Cache of what groups resolved for requests, under one catalog and the same kinds.

    The catalog of a team changes only with that of the cluster. An entry is kept as long as its
    request: those that are not remembered leave none behind.
    """

    def __init__(self) -> None:
        self.cache: WeakCache[RequestInfo, object] = WeakCache()
        self._catalog: Catalog | None = None
        self._kinds: Kinds | None = None

    def under(self, catalog: Catalog, kinds: Kinds) -> WeakCache[RequestInfo, object]:
        """Return the cache, without what was resolved under another catalog or other kinds."""
        catalog = catalog.cluster or catalog
        if self._catalog is not catalog or self._kinds is not kinds:
            self._catalog, self._kinds = catalog, kinds
            self.cache.clear()
        return self.cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What API groups use to answer the requests of one generation."""

    generation: Generation
    objects: Objects
    evaluation: Evaluation
    collector: CauseCollector
    questions: Questions = field(default_factory=Questions)
    fallback: ExternalMetrics | None = None
    """The server that has the external metrics which no rule produces; None if there is none."""
    team_rules: TeamRules | None = None
    """None if teams cannot have rules."""
    errors_for_empty_lists: bool = False
    """Whether a list without any value is a 404 with the causes."""
    clock: Callable[[], float] = time.time
    """Returns Unix seconds."""

    def of(self, namespace: str) -> Backend:
        """Return what requests in a namespace use."""
        view = self.generation.of(namespace)
        return self if view is self.generation else replace(self, generation=view)

    def check_loaded(self, info: RequestInfo) -> None:
        """Raise ApiError (503) if a rule that is not loaded yet may produce a metric."""
        if self.team_rules is None or not info.namespace:
            return
        if (pending := self.team_rules.pending(info.namespace)) is not None:
            message = "the rules of the namespace are not loaded yet"
            raise errors.unavailable(message, [pending])

    async def why_missing(
        self, info: RequestInfo, metric: str, resource: GroupResource | None = None
    ) -> tuple[Finding, ...]:
        """Return why no rule produces a metric; `resource` is None for an external one.

        Raises ApiError (503) if a rule that is not loaded yet may produce it.
        """
        self.check_loaded(info)
        team_rules = self.team_rules if info.namespace else None
        causes = await self.collector.of_metric(self.inventory, metric, resource)
        if team_rules is None:
            return causes
        return missing.with_team(causes, team_rules.causes(info.namespace))

    @property
    def inventory(self) -> Inventory:
        """What is known about each rule's series, to explain why a metric is missing."""
        return self.generation.inventory(self.clock())


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Document of an answer, and what it follows from, together with the request."""

    sources: tuple[object, ...]
    """Immutable objects. If a later request of the same text has the same ones, the document is the
    same."""
    size: int = 0
    """Estimated bytes of the sources that nothing else may keep in memory."""
    items: int = 1
    """Number of items of the document; `build` is called in a thread if there are many."""
    build: Callable[[Transform], Document]
    """Builds the document in the form that was negotiated: one of the group's `TRANSFORMS`. Raises
    ApiError if this object does not have that form. The encoding is not its concern."""
    causes: tuple[Finding, ...] = ()
    """Why a list is empty or lacks objects; for callers who may see causes."""
    negative: bool = False
    """Whether an external metric has a value below 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One entry of an APIResourceList."""

    name: str
    namespaced: bool
    kind: str
    verbs: tuple[str, ...] = ("get",)
    """Of metrics only `get`; like the original, also of those that are authorized as `list`."""


class Group(Protocol[Requested, Query, Found]):
    """An API group; implemented by modules.

    Four steps lead from a request to its answer: `resolve`, `plan`, `evaluate` and `content`. The
    parameters are what one of them passes to the next.
    """

    API: MetricsApi
    TRANSFORMS: frozenset[Transform]
    """Forms in which objects are sent; `negotiation.ONLY_UNCHANGED` if in their own form only."""

    def routes(self, segments: Sequence[str]) -> bool:
        """Return whether the path segments below a version are a route; they may be empty."""
        ...

    def to_object_scope(self, info: RequestInfo, kinds: Kinds) -> RequestInfo:
        """Return the request as it is authorized and answered.

        It differs from `info` if the path names a cluster-scoped object below a namespace: then
        the namespace is removed, so that the access review is at cluster scope.
        """
        ...

    async def resolve(self, info: RequestInfo, backend: Backend) -> Requested:
        """Return the metric and the objects that a route names. Raises ApiError."""
        ...

    def plan(self, requested: Requested) -> Query:
        """Return the queries of a resolved request; pure."""
        ...

    async def evaluate(
        self, requested: Requested, query: Query, backend: Backend, *, deadline: float
    ) -> Found:
        """Return the values; `deadline` is in loop time. Raises ApiError."""
        ...

    async def content(
        self, requested: Requested, query: Query, found: Found, backend: Backend
    ) -> Content:
        """Return the document of the values, and why some are missing. Raises ApiError."""
        ...

    def resources(self, catalog: Catalog) -> Sequence[Resource]:
        """Return the entries of the group's APIResourceList, in any order."""
        ...


AnyGroup: TypeAlias = Group[Any, Any, Any]
"""A group among others: the router passes on what its steps return, and looks at nothing of it."""


async def answer(
    group: Group[Requested, Query, Found], info: RequestInfo, backend: Backend, *, deadline: float
) -> Content:
    """Return the content of a route; `deadline` is in loop time. Raises ApiError."""
    requested = await group.resolve(info, backend)
    query = group.plan(requested)
    found = await group.evaluate(requested, query, backend, deadline=deadline)
    return await group.content(requested, query, found, backend)
