"""What an API group is: its routes, and the four steps from a request to its answer.

An API group is a module of the shape `Group`, listed in `GROUPS`. It reaches the rest of the
adapter only through `Backend`, which a request reads once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from adapter.server.api.groups.backend import Backend
from adapter.server.apimachinery.encoding import Document
from adapter.server.apimachinery.negotiation import Transform
from adapter.server.apimachinery.request_info import RequestInfo
from rules.findings import Finding
from rules.metrics_apis import MetricsApi
from rules.query.aggregate import ExternalValue, Value
from rules.query.catalog import Catalog

Requested = TypeVar("Requested")
Query = TypeVar("Query")
Found = TypeVar("Found")


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
    is_current: Callable[[], bool] | None = None
    """Returns whether the next request of the same text, of the same backend, has the same content;
    None if that takes as long as to answer it."""
    values: Mapping[str, Value] | Sequence[ExternalValue] = ()
    """Values by the name of the object, or of an external metric."""
    selected: tuple[str, ...] = ()
    """Names of the objects that the request selects, with and without a value."""


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

    async def resolve(self, info: RequestInfo, backend: Backend) -> Requested:
        """Return the metric and the objects that a route names. Raises ApiError."""

    def plan(self, requested: Requested) -> Query:
        """Return the queries of a resolved request; pure."""

    async def evaluate(
        self, requested: Requested, query: Query, backend: Backend, *, deadline: float
    ) -> Found:
        """Return the values; `deadline` is in loop time. Raises ApiError."""

    async def content(
        self, requested: Requested, query: Query, found: Found, backend: Backend
    ) -> Content:
        """Return the document of the values, and why some are missing. Raises ApiError."""

    def resources(self, catalog: Catalog) -> Sequence[Resource]:
        """Return the entries of the group's APIResourceList, in any order."""


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
