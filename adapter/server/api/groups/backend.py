"""What an API group reaches of the rest of the adapter, for the requests of one generation.

The groups are in modules beside it, their common steps in `group`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from adapter import errors
from adapter.cache import WeakCache
from adapter.clients.external_metrics import ExternalMetrics
from adapter.errors import BackendError
from adapter.server.apimachinery.encoding import Document
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.causes.collector import CauseCollector
from adapter.server.cluster.object_index import Object
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.evaluation.forecasts import Forecasts
from adapter.server.series.generation import Generation
from rules.causes import missing
from rules.causes.candidates import Inventory
from rules.findings import Finding
from rules.kinds import GroupResource, Kinds
from rules.query.catalog import Catalog
from rules.selectors.selectors import Selector

Listed = TypeVar("Listed")


class ObjectSource(Protocol):
    """Objects, of the cluster or from manifest files."""

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the matching objects, without finished pods.

        Raises BackendError.
        """

    def present_names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...] | None:
        """Return the same as `names` if that needs no request, else None.

        It is the same tuple until a change.
        """

    async def objects(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[Object, ...]:
        """Return the matching objects; as `names` in all other respects."""

    async def object(self, resource: GroupResource, *, namespace: str, name: str) -> Object | None:
        """Return an object by its name; None if it does not exist or is a finished pod.

        Raises BackendError.
        """

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """Return False only for a pod that is known to be finished. Raises BackendError."""

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`, and for how long.

        It is 0 for pods that are not Ready. Raises BackendError.
        """

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        """Return the workloads of a namespace by name, each with the selector of its pods.

        Raises BackendError.
        """

    async def refresh(self) -> Kinds:
        """Return the kinds, discovered anew unless that was just done. Raises BackendError."""


class TeamRulesView(Protocol):
    """What is known about the rules of teams beside the generation."""

    def pending(self, namespace: str) -> Finding | None:
        """Return the cause if rules of the namespace are not loaded yet; None if they are."""

    def causes(self, namespace: str) -> tuple[Finding, ...]:
        """Return why the namespace may lack a metric."""

    async def document(self, namespace: str, view: Generation) -> Document:
        """Return the document about the rules of a namespace, which sees `view`."""


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
    kinds: Kinds
    """The present kinds, of which the generation may know fewer."""
    objects: ObjectSource
    evaluation: Evaluation
    collector: CauseCollector
    forecasts: Forecasts = field(default_factory=Forecasts)
    questions: Questions = field(default_factory=Questions)
    fallback: ExternalMetrics | None = None
    """The server that has the external metrics which no rule produces; None if there is none."""
    team_rules: TeamRulesView | None = None
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

    async def listed(
        self, listing: Awaitable[Listed], resource: GroupResource, subject: object
    ) -> Listed:
        """Return what `listing` of `self.objects` returns, for a request for `subject`.

        Raises ApiError (500) if it fails.
        """
        try:
            return await listing
        except BackendError as error:
            raise self.collector.list_failed(str(subject), resource, error) from error

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
