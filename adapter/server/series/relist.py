"""Relists: which series exist, listed periodically for each selector, and the catalog of them.

Each `seriesQuery` is listed on its own, so one that fails keeps its last listing and does not
affect the others. How a selector is listed is the responsibility of `series_index`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn

from adapter import telemetry
from adapter.background import Backoff, gather_or_cancel, utc
from adapter.clients.lister import Lister
from adapter.clients.prometheus import Prometheus
from adapter.server.series import generation
from adapter.server.series.generation import Generation
from adapter.server.series.series_index import SeriesIndex
from rules import promql
from rules.causes.candidates import ListingStatus
from rules.findings import Finding, degraded, passes
from rules.kinds import Kinds
from rules.query.catalog import Listing
from rules.quoting import listed
from rules.ruleset import CompiledRule, RuleSet, Team

_JITTER = 0.1
"""Part of the interval by which a relist is earlier or later, so that replicas spread out."""
_TEAMS_TIMEOUT = 3.0
_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
_KINDS_INTERVAL = 1.0
"""Seconds between checks whether the cluster's kinds changed."""
_NAMES_PER_SELECTOR = 50
"""Selectors go into URLs, which some proxies limit to 8 kB."""


class Relist:
    """Keeps the catalog up to date while `run` runs.

    Rules are listed on the client of their source, of `clients`.
    `interval` (between relists of one selector), `max_age` (window in which a series needs a
    sample), `refresh_interval` (between queries for the labels that live series carry) and
    `timeout` (until `attempted` is set at the latest) are in seconds. `clock` returns Unix
    seconds, `random` numbers in [0, 1) for the jitter.
    """

    def __init__(
        self,
        ruleset: RuleSet,
        clients: Mapping[str, Prometheus],
        kinds: Callable[[], Kinds],
        *,
        interval: float,
        max_age: float,
        refresh_interval: float = 30.0,
        timeout: float = 10.0,
        meter: telemetry.RelistMetrics | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._ruleset = ruleset
        self._kinds = kinds
        self._max_age = max_age
        self._meter = meter
        self._interval = interval
        self._refresh_interval = refresh_interval
        self._timeout = timeout
        self._monotonic = monotonic
        self._random = random
        self._clock = clock
        self._listers: dict[Prometheus, Lister] = {}
        self._clients = clients
        self._indexes = self._new_indexes(ruleset.every)
        self._unattempted = set(self._indexes)
        self._following: dict[SeriesIndex, asyncio.Task[NoReturn]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        """None while `run` does not run."""
        self._listings: Mapping[int, Listing] = {}
        """By `CompiledRule.index`; a rule is absent until its first successful relist."""
        self._inputs = _Inputs(ruleset, self._listings, kinds())
        self.generation = _build(self._inputs, self.statuses)
        """The present one; its listings are up to a few seconds older than the latest."""
        self._building = asyncio.Lock()
        self._kinds_changed = asyncio.Event()
        """Set for a moment when the cluster's kinds have changed."""
        self.attempted = asyncio.Event()
        """Set once every rule was listed or failed, and after `timeout`."""
        if not self._indexes:
            self.attempted.set()

    @property
    def statuses(self) -> Mapping[int, ListingStatus]:
        """Status of each rule, by `CompiledRule.index`."""
        return {
            rule: status for index in self._indexes for rule, status in index.statuses().items()
        }

    def check(self) -> Finding:
        """Report the rules for /readyz. Never raises: an unready adapter blocks deletions."""
        rules = self._ruleset.all  # what is wrong with those of teams concerns the teams
        statuses = self.statuses
        problems = []
        if failing := [rule for rule in rules if statuses[rule.index].failed]:
            problems.append(f"cannot list {_named(failing, statuses)}")
        if not rules and self._ruleset.resource_rules is None:
            problems.append("no rule is loaded")
        elif (
            rules
            and all(rule.index in self._listings for rule in rules)
            and not any(self._listings[rule.index].series for rule in rules)
        ):
            problems.append(
                "no rule selects a series that Prometheus has: check the presets "
                "(`gpu-metrics-adapter presets detect`), and if Prometheus has tenants, the one in "
                "--prometheus-header"
            )
        pending = sum(
            not (each := statuses[rule.index]).failed and each.listed is None for rule in rules
        )
        listed = len(rules) - len(failing) - pending
        summary = f"{listed} of {len(rules)} rules listed by their last relist"
        if pending:
            summary += f", {pending} not attempted yet"
        if problems:
            return degraded("; ".join((summary, *problems)))
        return passes(summary)

    async def labels(self, rule: CompiledRule, series: str) -> frozenset[str]:
        """Query the labels that a series name of a rule carries; empty if that is unknown.

        Raises BackendError, and RulesError for a selector that cannot be narrowed to the name.
        """
        lister = self._lister(rule)
        return await lister.labels(rule.config.series_query, series)

    async def once(self) -> None:
        """List every rule now; failures are logged and shown by `statuses`."""
        await gather_or_cancel(self._relist(index) for index in self._indexes)

    async def run(self) -> NoReturn:
        """List every rule periodically until cancelled."""
        timeout = asyncio.get_running_loop().call_later(self._timeout, self.attempted.set)
        try:
            async with asyncio.TaskGroup() as self._tasks:
                self._start_following()
                await self._follow_kinds()
        finally:
            self._tasks = None
            timeout.cancel()

    async def adopt(self, ruleset: RuleSet) -> None:
        """Replace the rules; one call at a time.

        New ones are listed first, for `timeout` seconds at most, and those of teams for three, so
        that a slow one does not delay what others changed. Unchanged ones keep what is known about
        their series, and cause no query.
        """
        known = {rule: index for index in self._indexes for rule in index.rules}
        kept: dict[SeriesIndex, list[CompiledRule]] = {}
        for rule in ruleset.every:
            if (index := known.get(rule)) is not None:
                kept.setdefault(index, []).append(rule)
        new = self._new_indexes([rule for rule in ruleset.every if rule not in known])
        own = [index for index in new if index.rules[0].team is None]
        of_teams = [index for index in new if index.rules[0].team]
        await gather_or_cancel(
            (
                self._list(own, self._timeout),
                self._list(of_teams, min(_TEAMS_TIMEOUT, self._timeout)),
            )
        )
        # Nothing suspends until the new generation is due, so no index is of two rule sets.
        for index, rules in kept.items():
            ((selector, _),) = _selectors(rules)
            index.follow(selector, tuple(rules))
        self._ruleset, self._indexes = ruleset, (*kept, *new)
        self._unattempted &= {*self._indexes}
        in_use = {index.lister for index in self._indexes}
        self._listers = {
            client: lister for client, lister in self._listers.items() if lister in in_use
        }
        self._listings = {
            rule: listing for index in self._indexes for rule, listing in index.listings().items()
        }
        if self._meter is not None:
            self._meter.retain({path for index in self._indexes for path in index.paths()})
        self._start_following()
        await self._rebuild()

    async def _list(self, indexes: Collection[SeriesIndex], seconds: float) -> None:
        """List what these indexes select; what takes longer is listed again by `run`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await gather_or_cancel(index.relist(self._kinds()) for index in indexes)

    def _start_following(self) -> None:
        """Follow the present indexes, and no others, if `run` runs."""
        if self._tasks is None:
            return
        for index in self._following.keys() - {*self._indexes}:
            self._following.pop(index).cancel()
        for index in self._indexes:
            if index not in self._following:
                self._following[index] = self._tasks.create_task(
                    self._follow(index), name=f"relist {index.selector}"
                )

    def _lister(self, rule: CompiledRule) -> Lister:
        """Return the lister of the rule's Prometheus, or of its namespace if it is of a team."""
        client = self._clients[rule.config.source].for_team(rule.team)
        if (lister := self._listers.get(client)) is None:
            lister = self._listers[client] = Lister(
                client, max_age=self._max_age, clock=self._clock
            )
        return lister

    def _new_indexes(self, rules: Iterable[CompiledRule]) -> tuple[SeriesIndex, ...]:
        return tuple(
            SeriesIndex(
                selector,
                those,
                self._lister(those[0]),
                clock=self._clock,
                monotonic=self._monotonic,
                meter=self._meter,
            )
            for selector, those in _selectors(rules)
        )

    async def _follow(self, index: SeriesIndex) -> NoReturn:
        retries = Backoff(_FIRST_BACKOFF, min(_MAX_BACKOFF, self._interval), random=self._random)
        while True:
            kinds = self._kinds()  # before the relist: API discovery may end while it is under way
            if await self._relist(index):
                retries.reset()
                pause = self._interval * (1 + _JITTER * (2 * self._random() - 1))
            else:
                pause = retries.pause()
            due = self._monotonic() + pause
            # With other kinds, a template may map other labels: list them at once.
            while self._kinds() == kinds and (left := due - self._monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, self._refresh_interval)):
                        await self._kinds_changed.wait()
                if self._kinds() == kinds and self._monotonic() < due:
                    await self._refresh(index)

    async def _follow_kinds(self) -> NoReturn:
        known = self.generation.kinds
        while True:
            await asyncio.sleep(_KINDS_INTERVAL)
            if (kinds := self._kinds()) is not known:
                known = kinds
                self._kinds_changed.set()
                self._kinds_changed.clear()
                await self._rebuild()

    async def _relist(self, index: SeriesIndex) -> bool:
        succeeded = await index.relist(self._kinds())
        await self._publish(index)
        self._unattempted.discard(index)
        if not self._unattempted:
            self.attempted.set()
        return succeeded

    async def _refresh(self, index: SeriesIndex) -> None:
        """Update the labels of live series; if series are missing, list them anew."""
        if index.complete:
            await index.refresh_live_labels(self._kinds())
        else:
            await index.relist(self._kinds())
        await self._publish(index)

    async def _publish(self, index: SeriesIndex) -> None:
        """Rebuild the generation, unless it has all of the index: most refreshes change nothing."""
        listings, present = index.listings(), self.generation.statuses
        if index in self._indexes and not (
            listings.items() <= self._listings.items()
            and index.statuses().items() <= present.items()
        ):
            self._listings = {**self._listings, **listings}
            await self._rebuild()

    async def _rebuild(self) -> None:
        async with self._building:
            # In a thread: 10 000 names take a second, in which the event loop would serve nobody.
            inputs = _Inputs(self._ruleset, self._listings, self._kinds())
            self.generation = await asyncio.to_thread(
                _next, self.generation, self._inputs, inputs, self.statuses
            )
            self._inputs = inputs


class _Inputs(NamedTuple):
    """What a catalog follows from; a generation lacks the listings that cannot be used."""

    ruleset: RuleSet
    listings: Mapping[int, Listing]
    kinds: Kinds


def _next(
    present: Generation, before: _Inputs, now: _Inputs, statuses: Mapping[int, ListingStatus]
) -> Generation:
    """Build a generation; keep the catalog if it would follow from the same."""
    if before == now:
        return present.aged(statuses, now.kinds)
    return _build(now, statuses)


def _build(inputs: _Inputs, statuses: Mapping[int, ListingStatus]) -> Generation:
    return generation.build(inputs.ruleset, inputs.listings, statuses, inputs.kinds)


def _named(failing: Sequence[CompiledRule], statuses: Mapping[int, ListingStatus]) -> str:
    """Return the rules that fail, and since when each does."""
    since = [utc(statuses[rule.index].failing_since or 0.0) for rule in failing]
    named = [str(rule.config.where) for rule in failing]
    if len({*since}) == 1:
        return f"{listed(named, 'rule')} since {since[0]}"
    each_since = zip(named, since, strict=True)
    return listed((f"{name} since {began}" for name, began in each_since), "rule")


def _selectors(all_rules: Iterable[CompiledRule]) -> Iterator[tuple[str, tuple[CompiledRule, ...]]]:
    """Yield the selectors to list, each with the rules that it serves.

    Rules with the same source, team and selector share it. Of one source and team, rules whose
    selector is one bare name and which map the same labels, as in presets, share a selector of all
    their names: every result is by name.
    """
    groups: dict[tuple[str, Team | None, str, frozenset[str]], list[CompiledRule]] = {}
    for rule in all_rules:
        resources, source, team = rule.config.resources, rule.config.source, rule.team
        if promql.bare_name(rule.config.series_query) is None or resources.template:
            key = (source, team, rule.config.series_query, frozenset[str]())
        else:
            labels = frozenset(override.label for override in resources.overrides)
            key = (source, team, "", labels)
        groups.setdefault(key, []).append(rule)
    for (_, _, selector, _), rules in groups.items():
        if selector:
            yield selector, tuple(rules)
            continue
        names = sorted({rule.config.series_query.strip() for rule in rules})
        for first in range(0, len(names), _NAMES_PER_SELECTOR):
            some = names[first : first + _NAMES_PER_SELECTOR]
            yield (
                some[0] if len(some) == 1 else promql.of_names(some),
                tuple(rule for rule in rules if rule.config.series_query.strip() in some),
            )
