"""What a group of APIs is: a module of this shape, which is listed in `GROUPS`, and nothing more.

The three groups share `answer(ask, backend)` and no base class. `Backend` is all that they may use
to find an answer; its parts are snapshots or plain objects, and a request reads each snapshot once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.http.encoding import Document
from adapter.http.request_info import RequestInfo
from rules.diagnosis.missing import Cause
from rules.kinds import GroupResource, Kinds
from rules.query.aggregate import ExternalValue, Value
from rules.query.catalog import Catalog
from rules.query.plan import ExternalPlan, Plan
from rules.selectors.selectors import Selector


class Objects(Protocol):
    """Knows the cluster's kinds, and the names of its objects."""

    @property
    def kinds(self) -> Kinds: ...

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """The names, in the API server's order; finished pods are left out. Raises BackendError."""
        ...

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """False only for a pod that is known to be finished or absent. Raises BackendError."""
        ...

    async def refresh(self) -> None:
        """Bring `kinds` up to date, unless that was just done. Raises BackendError."""
        ...


class Evaluation(Protocol):
    """Knows how to get the values of a plan."""

    async def values(self, plan: Plan, *, deadline: float | None = None) -> Mapping[str, Value]:
        """Object name -> value, for those that have one. Raises BackendError.

        What is asked of others ends at `deadline`, a time of the running loop.
        """
        ...

    async def rows(
        self, plan: ExternalPlan, *, deadline: float | None = None
    ) -> Sequence[ExternalValue]:
        """The values of an external metric. Raises BackendError, NotInstantError among them."""
        ...


class MissingMetrics(Protocol):
    """Knows why metrics are not there."""

    async def of_metric(
        self, metric: str, resource: GroupResource | None = None
    ) -> tuple[Cause, ...]:
        """Why no series give this metric, without a resource an external one. Never raises."""
        ...

    def of_plan(self, plan: Plan | ExternalPlan) -> tuple[Cause, ...]:
        """Why a plan was answered with nothing."""
        ...

    def tell(self, subject: str, causes: Sequence[Cause]) -> None:
        """Have the log say why `subject` has no values, unless it has said so of late."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Everything that a group may ask."""

    catalog: Callable[[], Catalog]
    objects: Objects
    evaluation: Evaluation
    absences: MissingMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One entry of an APIResourceList."""

    name: str
    namespaced: bool
    kind: str
    verbs: tuple[str, ...]


class Group(Protocol):
    """Knows one API group: its versions, its routes, its answers, and what discovery says of it."""

    NAME: str
    VERSIONS: tuple[str, ...]
    """The preferred one first."""

    def routes(self, segments: Sequence[str]) -> bool:
        """Whether these segments below a version are a route; an empty one counts as any other."""
        ...

    async def answer(
        self, info: RequestInfo, backend: Backend, *, deadline: float | None = None
    ) -> Document:
        """The document that a GET of a route gets, by `deadline`. Raises ApiError."""
        ...

    def resources(self, catalog: Catalog) -> Sequence[Resource]: ...
