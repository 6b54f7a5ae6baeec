"""Lists the series names of a selector, and the labels they carry, from one Prometheus.

Fetches names only, never label values. `relist` decides when to list and keeps the results.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import Listed, QueryResult
from rules import promql

T = TypeVar("T")

_MATCHES_NOTHING = '{namespace!="",namespace=""}'
"""A series selector that cannot match. VictoriaMetrics refuses two matchers of `__name__`."""

_MAX_IN_FLIGHT = 8
_MAX_UNION = 4000
"""Characters of several queries that are sent as one; proxies accept URLs of 8 KiB."""
_ORDINAL = "gpu_metrics_adapter_query"
"""Label with the position of a query among those that are sent as one."""
_AT_ONCE = 100
"""Labels that are compared with templates before other tasks run: 2 ms."""
_MAX_FITTING = 500
"""Labels that templates use, of one selector; each is one request. Resources in lower case come
first: a template reads any case."""
_MATCH_REFUSED = frozenset({400, 404, 422})
"""Statuses with which a backend refuses `match[]`, if it accepts the selector elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedNames:
    """Series names, each with the requested labels that at least one of its series carries."""

    names: Mapping[str, frozenset[str]]
    """In the order in which Prometheus lists them."""
    exact: bool
    """False if from the index, which may still contain names that ended before the window."""
    partial: bool = False
    """Whether names and labels may be missing."""


class Lister:
    """Lists series names and labels within the window of the last `max_age` seconds.

    Sends at most 8 requests at a time. `clock` returns Unix seconds. Methods raise subclasses of
    BackendError, and those that add matchers to a selector also RulesError if that is impossible.
    """

    def __init__(
        self, prometheus: Prometheus, *, max_age: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._prometheus = prometheus
        self._max_age = max_age
        self._clock = clock
        self._slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._probing = asyncio.Lock()
        self._match_supported: bool | None = None
        """Whether `match[]` restricts label values; None until probed."""

    @property
    def has_index(self) -> bool:
        """Whether names are listed from the index, as far as is known."""
        return self._match_supported is not False

    async def index(
        self, selector: str, labels: Collection[str], fits: Callable[[str], bool] | None = None
    ) -> IndexedNames:
        """List the names of the selector's series, and which of `labels` each of them carries.

        With `fits`, also checks every label of these series for which it returns true; other
        labels are dropped. Uses the index, which is cheap. If Prometheus ignores or refuses
        `match[]` there, lists all series instead.
        """
        if self._match_supported is not False:
            try:
                names = await self._list(self._prometheus.names, selector)
            except errors.Refused as e:
                if self._match_supported or e.status not in _MATCH_REFUSED:
                    raise
                # Either `match[]` is not supported, or the selector is wrong: then this raises.
                listed = await self._series(selector, labels, fits)
                self._match_supported = False
                return listed
            if not names.content or await self._probe():
                return await self._with_labels(selector, names, labels, fits)
        return await self._series(selector, labels, fits)

    async def exact(self, selector: str) -> frozenset[str] | None:
        """List the names with a sample in the window, by a query that reads the samples.

        Returns None if the response is partial.
        """
        window = f"{int(self._max_age * 1000)}ms"
        series = promql.in_expression(selector)
        query = f"group by (__name__) (last_over_time({series}[{window}]))"
        result = await self._query(query)
        names = _names(result)
        if "" in names:
            raise errors.Broken(f"Prometheus returned series without a name for {query!r}")
        return None if result.partial else names

    async def live(
        self, selector: str, matchers: Sequence[Sequence[str]]
    ) -> Listed[tuple[frozenset[str], ...]]:
        """List, for each of `matchers`, the names of the series that match now.

        Series that ended are stale and do not count.
        """
        return await self.names_in([promql.with_matchers(selector, each) for each in matchers])

    async def names_in(self, vectors: Sequence[str]) -> Listed[tuple[frozenset[str], ...]]:
        """List the names of the series in each instant vector; as few queries as fit are sent."""
        queries = [f"group by (__name__) ({vector})" for vector in vectors]
        found = await gather_or_cancel(self._union(each) for each in _batches(queries))
        return Listed(
            tuple(names for each in found for names in each.content),
            next((each.partial for each in found if each.partial), ""),
        )

    async def _union(self, queries: Sequence[str]) -> Listed[list[frozenset[str]]]:
        """Send queries as one; return the series names in the result of each."""
        if len(queries) == 1:
            alone = await self._query(queries[0])
            return Listed([_names(alone)], alone.partial)
        result = await self._query(
            " or ".join(
                f'label_replace({query}, "{_ORDINAL}", "{number}", "", "")'
                for number, query in enumerate(queries)
            )
        )
        names: list[set[str]] = [set() for _ in queries]
        try:
            for sample in result.samples:
                names[int(sample.labels[_ORDINAL])].add(sample.labels.get("__name__", ""))
        except (KeyError, ValueError, IndexError) as error:
            raise errors.Broken(f"a series has not the label of its query: {error!r}") from error
        return Listed([frozenset(each) for each in names], result.partial)

    async def labels(self, selector: str, name: str) -> frozenset[str]:
        """List all labels that the selector's series of this name carry now.

        If all these series ended, those that they carried. Returns the empty set unless `match[]`
        is known to be supported.
        """
        if not self._match_supported:
            return frozenset()
        narrowed = promql.with_matchers(selector, (promql.matcher("__name__", "=", name),))
        # The index also has the labels of series that ended hours ago.
        listed = (await self._list(self._prometheus.label_names, narrowed)).content
        if len(listed) > _AT_ONCE:
            return frozenset(listed)
        carriers = await self.live(
            narrowed, [(promql.matcher(label, "!=", ""),) for label in listed]
        )
        live = [label for label, names in zip(listed, carriers.content, strict=True) if names]
        return frozenset(live or listed)

    async def _probe(self) -> bool:
        """Return whether `match[]` is supported.

        The first call needs a Prometheus with series, which has accepted another selector.
        """
        async with self._probing:
            if self._match_supported is None:
                try:
                    names = await self._list(self._prometheus.names, _MATCHES_NOTHING)
                    self._match_supported = not names.content
                except errors.Refused as e:
                    if e.status not in _MATCH_REFUSED:
                        raise
                    return False  # probed again: a proxy may have answered for Prometheus
            return self._match_supported

    async def _with_labels(
        self,
        selector: str,
        listed: Listed[tuple[str, ...]],
        labels: Collection[str],
        fits: Callable[[str], bool] | None,
    ) -> IndexedNames:
        """List which labels the names carry, by one request for each label."""
        names, partial = listed.content, listed.partial
        wanted = set(labels) if names else set()
        if names and fits:
            present = await self._list(self._prometheus.label_names, selector)
            partial = partial or present.partial
            wanted |= await _fitting(present.content, fits)
        ordered = sorted(wanted)
        carriers = await gather_or_cancel(
            self._list(
                self._prometheus.names,
                promql.with_matchers(selector, (promql.matcher(label, "!=", ""),)),
            )
            for label in ordered
        )
        carried: dict[str, set[str]] = {name: set() for name in names}
        for label, with_label in zip(ordered, carriers, strict=True):
            for name in carried.keys() & set(with_label.content):
                carried[name].add(label)
        return IndexedNames(
            names={name: frozenset(carried[name]) for name in names},
            exact=False,
            partial=bool(partial) or any(each.partial for each in carriers),
        )

    async def _series(
        self, selector: str, labels: Collection[str], fits: Callable[[str], bool] | None
    ) -> IndexedNames:
        """List all series, with those of their labels that `index` is to check."""
        series = await self._list(self._prometheus.series, selector)
        wanted = set(labels)
        if fits:
            wanted |= await _fitting(tuple(set().union(*series.content.values())), fits)
        names = {
            name: frozenset(wanted & carried)
            for name, carried in sorted(series.content.items())
            if name
        }
        return IndexedNames(names=names, exact=True, partial=bool(series.partial))

    async def _list(
        self, method: Callable[[str, float, float], Coroutine[Any, Any, T]], selector: str
    ) -> T:
        """Call a method of the client that lists what a selector matches in the window."""
        async with self._slots:
            now = self._clock()
            return await method(selector, now - self._max_age, now)

    async def _query(self, query: str) -> QueryResult:
        async with self._slots:
            return await self._prometheus.query(query)


async def _fitting(labels: Sequence[str], fits: Callable[[str], bool]) -> set[str]:
    """Return the labels that fit. A series may have 100 000, so other tasks run in between."""
    fitting: set[str] = set()
    for first in range(0, len(labels), _AT_ONCE):
        fitting.update(filter(fits, labels[first : first + _AT_ONCE]))
        await asyncio.sleep(0)
    if len(fitting) > _MAX_FITTING:
        return set(sorted(fitting, key=lambda each: (not each.islower(), each))[:_MAX_FITTING])
    return fitting


def _batches(queries: Sequence[str]) -> Iterator[list[str]]:
    """Yield the queries in order, as many at a time as have `_MAX_UNION` characters, or one."""
    batch: list[str] = []
    for query in queries:
        if batch and sum(map(len, batch)) + len(query) > _MAX_UNION:
            yield batch
            batch = []
        batch.append(query)
    if batch:
        yield batch


def _names(result: QueryResult) -> frozenset[str]:
    return frozenset(sample.labels.get("__name__", "") for sample in result.samples)
