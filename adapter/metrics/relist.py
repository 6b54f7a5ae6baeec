"""Which series exist: asked periodically by selector, into a Catalog that is swapped whole.

Each distinct `seriesQuery` is followed by itself: one that fails keeps its last good listing, is
tried again sooner than the interval, and disturbs no other. New names come with every relist; names
vanish by the exact question only, whose pace follows its own cost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from adapter import telemetry
from adapter.background import gather_or_cancel
from adapter.clients.prometheus import Prometheus
from adapter.metrics.lister import Lister
from adapter.metrics.series_index import RuleState, SeriesIndex
from rules import promql
from rules.diagnosis import candidates
from rules.diagnosis.inventory import Inventory, ListingStatus
from rules.kinds import Kinds
from rules.query import catalog
from rules.query.catalog import Catalog, Listing
from rules.ruleset import CompiledRule, RuleSet

_FIRST_RETRY = 1.0
_LAST_RETRY = 60.0
_NAMES_TOGETHER = 50
"""Names in one selector: it goes into URLs, of which some proxies take 8 kB."""


class Relist:
    """Knows which metrics exist, and keeps knowing it while `run` runs.

    `interval` (between relists of one selector), `max_age` (the window), `look_interval` (between
    looks at which of competing labels live series carry) and `timeout` (for `attempted`) are in
    seconds. `clock` gives Unix seconds, `monotonic` seconds that only grow, `random`
    numbers in [0, 1).
    """

    def __init__(
        self,
        ruleset: RuleSet,
        prometheus: Prometheus,
        kinds: Callable[[], Kinds],
        *,
        interval: float,
        max_age: float,
        look_interval: float = 30.0,
        timeout: float = 10.0,
        meter: telemetry.Relists | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._ruleset = ruleset
        self._kinds = kinds
        self._interval = interval
        self._look_interval = look_interval
        self._timeout = timeout
        self._monotonic = monotonic
        self._random = random
        self._clock = clock
        self._lister = Lister(prometheus, max_age=max_age, clock=clock)
        self._indexes = tuple(
            SeriesIndex(
                selector, rules, self._lister, clock=clock, monotonic=monotonic, meter=meter
            )
            for selector, rules in _together(ruleset)
        )
        self._waited_for = set(self._indexes)
        self._listings: dict[int, Listing] = catalog.pinned_listings(ruleset)
        self._found: set[int] = set()
        """The rules whose listing was found; those of others are what they pin."""
        self._made: candidates.MetricsBySeries | None = None
        """Of these listings, from when somebody first asks why a metric is missing."""
        self._built_for = kinds()
        self._catalog = catalog.build(ruleset, self._listings, self._built_for)
        self.attempted = asyncio.Event()
        """Set once every rule was tried, or when patience ended."""
        if not self._indexes:
            self.attempted.set()

    @property
    def catalog(self) -> Catalog:
        """What is known now, for the kinds that the cluster has now."""
        if self._kinds() is not self._built_for:
            self._build()
        return self._catalog

    @property
    def states(self) -> tuple[RuleState, ...]:
        """How it stands with each rule, those of `rules` first, in the files' order."""
        found = [state for index in self._indexes for state in index.states]
        return tuple(sorted(found, key=lambda state: state.index))

    @property
    def seen(self) -> Inventory:
        """What is known now of each rule's series, and how well."""
        if self._made is None:
            self._made = candidates.made(self._ruleset, self._listings)
        return Inventory(
            ruleset=self._ruleset,
            catalog=self.catalog,
            kinds=self._kinds(),
            listings={index: self._listings[index] for index in self._found},
            made=self._made,
            heard={
                state.index: ListingStatus(listed=state.succeeded, failed=bool(state.error))
                for state in self.states
            },
            now=self._clock(),
        )

    async def labels(self, rule: CompiledRule, series: str) -> frozenset[str]:
        """The labels that this series of a rule carries; empty where that cannot be told.

        Raises BackendError, and RulesError for a selector that cannot be narrowed to the series.
        """
        return await self._lister.labels(rule.config.series_query, series)

    async def once(self) -> None:
        """Try every rule once, now. What fails is logged and told by `states`."""
        await gather_or_cancel(self._attempt(index) for index in self._indexes)

    async def refresh_live_labels(self) -> None:
        """Ask, for every rule, which of competing labels live series carry now."""
        await gather_or_cancel(self._look(index) for index in self._indexes)

    async def run(self) -> NoReturn:
        """Follow every rule until cancelled."""
        loop = asyncio.get_running_loop()
        timeout = loop.call_later(self._timeout, self.attempted.set)
        try:
            async with asyncio.TaskGroup() as tasks:
                for index in self._indexes:
                    tasks.create_task(self._follow(index), name=f"relist {index.selector}")
                await loop.create_future()  # without rules, too, this only ends by cancellation
        finally:
            timeout.cancel()
        raise AssertionError  # the future above has no result

    async def _follow(self, index: SeriesIndex) -> NoReturn:
        failures = 0
        while True:
            failures = 0 if await self._attempt(index) else failures + 1
            until = self._monotonic() + self._pause(failures)
            kinds = self._kinds()
            while (left := until - self._monotonic()) > 0:
                await asyncio.sleep(min(left, self._look_interval))
                if self._kinds() is not kinds:  # a template may now ask for other labels
                    break
                if until > self._monotonic():
                    await self._look(index)

    def _pause(self, failures: int) -> float:
        if not failures:
            return self._interval
        longest = min(_LAST_RETRY, self._interval)
        backoff = _FIRST_RETRY * 2.0 ** min(failures - 1, 10)
        return min(longest, backoff) * (0.5 + self._random() / 2)

    async def _attempt(self, index: SeriesIndex) -> bool:
        listed = await index.relist(self._kinds())
        self._publish(index)
        self._waited_for.discard(index)
        if not self._waited_for:
            self.attempted.set()
        return listed

    async def _look(self, index: SeriesIndex) -> None:
        """See whether labels have changed; of what was not there, whether it is there now."""
        await (
            index.refresh_live_labels(self._kinds())
            if index.complete
            else index.relist(self._kinds())
        )
        self._publish(index)

    def _publish(self, index: SeriesIndex) -> None:
        found = index.listings()
        self._found.update(found)
        listings = {**self._listings, **found}
        if listings != self._listings:
            self._listings, self._made = listings, None
            self._build()

    def _build(self) -> None:
        kinds = self._kinds()
        self._catalog = catalog.build(self._ruleset, self._listings, kinds)
        self._built_for = kinds


def _together(ruleset: RuleSet) -> Iterator[tuple[str, tuple[CompiledRule, ...]]]:
    """The selectors to follow, each with its rules.

    Rules with one selector are one question. So are rules that each name one series by its bare
    name and map the same labels, as those of a preset do: every one of their answers is by name.
    """
    alike: dict[tuple[str, frozenset[str]], list[CompiledRule]] = {}
    for rule in (*ruleset.rules, *ruleset.external):
        resources = rule.config.resources
        if promql.bare_name(rule.config.series_query) is None or resources.template:
            key = (rule.config.series_query, frozenset[str]())
        else:
            key = ("", frozenset(override.label for override in resources.overrides))
        alike.setdefault(key, []).append(rule)
    for (selector, _), rules in alike.items():
        if selector:
            yield selector, tuple(rules)
            continue
        names = sorted({rule.config.series_query.strip() for rule in rules})
        for first in range(0, len(names), _NAMES_TOGETHER):
            some = names[first : first + _NAMES_TOGETHER]
            asked = (
                some[0]
                if len(some) == 1
                else f"{{{promql.matcher('__name__', '=~', '|'.join(some))}}}"
            )
            yield asked, tuple(r for r in rules if r.config.series_query.strip() in some)
