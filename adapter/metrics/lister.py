"""Asks one Prometheus what series are called and which labels they carry, never for the series.

Three questions, by selector: the index (cheap, and a superset: it remembers what ended), the exact
names within the window, and the names that live series bear now. A Prometheus that does not answer
the first as it should is asked for series after all; they are reduced while they arrive.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adapter import errors
from adapter.background import gather_or_cancel
from adapter.clients.prometheus import Prometheus
from rules import promql

T = TypeVar("T")

NOTHING = '{__name__="gpu_metrics_adapter_probe",__name__="matches_nothing"}'
"""A series selector that can match nothing: no series has two names."""

_REFUSES_MATCH = frozenset({400, 404, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedNames:
    """Series names, each with those of the labels asked about that any of its series carries."""

    names: Mapping[str, frozenset[str]]
    """In the order in which Prometheus lists them."""
    exact: bool
    """False: the index' answer, in which names that ended before the window may still be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveNames:
    """The names that have a sample in the window."""

    names: frozenset[str]
    whole: bool
    """False when Prometheus warned, of a store that did not answer for instance."""


class Lister:
    """Knows how to ask one Prometheus about selectors; `max_age` is the window in seconds.

    At most `cap` requests are under way at a time. `clock` gives Unix seconds. Methods raise
    BackendError subclasses, and RulesError for what is no series selector.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        max_age: float,
        cap: int = 8,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._prometheus = prometheus
        self._max_age = max_age
        self._clock = clock
        self._slots = asyncio.Semaphore(cap)
        self._probing = asyncio.Lock()
        self._heeds_match: bool | None = None
        """Whether `match[]` restricts the names of labels; None until it was seen."""

    async def index(
        self, selector: str, labels: Collection[str], fits: Callable[[str], bool] | None = None
    ) -> IndexedNames:
        """The names of `selector`'s series; which of them carry each of `labels`.

        Where `fits` is given (a template), labels for which it holds are asked about, too.
        """
        if self._heeds_match is not False:
            try:
                names = await self._names(selector)
            except errors.Refused as e:
                if self._heeds_match or e.status not in _REFUSES_MATCH:
                    raise
                # Either this Prometheus has no such parameter, or the selector is wrong.
                found = await self._series(selector)
                self._heeds_match = False
                return found
            if not names or await self._probe():
                return await self._carriers(selector, names, labels, fits)
        return await self._series(selector)

    async def exact(self, selector: str) -> LiveNames:
        """The names that have a sample in the window, by evaluating it."""
        window = f"{int(self._max_age * 1000)}ms"
        query = f"group by (__name__) (last_over_time({selector.strip()}[{window}]))"
        result = await self._one(lambda: self._prometheus.query(query))
        names = frozenset(sample.labels.get("__name__", "") for sample in result.samples)
        if "" in names:
            raise errors.Broken(f"series without a name in the answer to {query!r}")
        return LiveNames(names=names, whole=not result.warnings)

    async def live(self, selector: str, matchers: Sequence[str]) -> frozenset[str]:
        """The names of series that match now, and have not ended."""
        query = f"group by (__name__) ({promql.with_matchers(selector, matchers)})"
        result = await self._one(lambda: self._prometheus.query(query))
        return frozenset(sample.labels.get("__name__", "") for sample in result.samples)

    async def labels(self, selector: str, name: str) -> frozenset[str]:
        """The labels that `selector`'s series of this name carry, or carried of late.

        Empty where they cannot be told from those of other series.
        """
        if not self._heeds_match:
            return frozenset()
        narrowed = promql.with_matchers(selector, (promql.matcher("__name__", "=", name),))
        start, end = self._window()
        found = await self._one(lambda: self._prometheus.label_names(narrowed, start, end))
        return frozenset(found) - {"__name__"}

    async def _probe(self) -> bool:
        """Whether `match[]` is heeded. Asked once, when there are names it could have left out."""
        async with self._probing:
            if self._heeds_match is None:
                self._heeds_match = not await self._names(NOTHING)
            return self._heeds_match

    async def _carriers(
        self,
        selector: str,
        names: tuple[str, ...],
        labels: Collection[str],
        fits: Callable[[str], bool] | None,
    ) -> IndexedNames:
        asked = set(labels) if names else set()
        if names and fits:
            start, end = self._window()
            present = await self._one(lambda: self._prometheus.label_names(selector, start, end))
            asked.update(filter(fits, present))
        ordered = sorted(asked)
        carriers = await gather_or_cancel(
            self._names(promql.with_matchers(selector, (promql.matcher(label, "!=", ""),)))
            for label in ordered
        )
        carried: dict[str, set[str]] = {name: set() for name in names}
        for label, bearers in zip(ordered, carriers, strict=True):
            for name in carried.keys() & bearers:
                carried[name].add(label)
        found = {name: frozenset(carried[name]) for name in names}
        return IndexedNames(names=found, exact=False)

    async def _names(self, selector: str) -> tuple[str, ...]:
        start, end = self._window()
        return await self._one(lambda: self._prometheus.names(selector, start, end))

    async def _series(self, selector: str) -> IndexedNames:
        start, end = self._window()
        found = await self._one(lambda: self._prometheus.series(selector, start, end))
        names = {name: frozenset(labels) for name, labels in sorted(found.items()) if name}
        return IndexedNames(names=names, exact=True)

    async def _one(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        async with self._slots:
            return await ask()

    def _window(self) -> tuple[float, float]:
        now = self._clock()
        return now - self._max_age, now
