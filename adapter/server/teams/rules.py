"""The rules in the ConfigMaps of teams, beside those of the cluster.

Each ConfigMap is read on its own: one that cannot be read has no effect, and does not affect the
others. What is in use follows from the present ConfigMaps alone, so that all replicas agree.
"""

from __future__ import annotations

import asyncio
import enum
import heapq
import itertools
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from adapter import errors, telemetry
from adapter.background import Condition
from adapter.clients.limits import Allowances
from adapter.server.teams import config_maps
from adapter.server.teams.config_maps import ConfigMapIndex, WatchedConfigMap
from rules import admission, teams
from rules.admission import Admission, Size
from rules.causes import missing
from rules.errors import ConfigError
from rules.findings import Finding, degraded, passes
from rules.limits import Claim, Key, Limits
from rules.quoting import shorten_middle
from rules.ruleset import RuleSet

log = logging.getLogger(__name__)

_INTERVAL, _SOON = 1.0, 0.05
"""Seconds between two comparisons with what the watch has brought; _SOON until the first list has
come. If reading takes longer than _INTERVAL, what has been read is put to use in between."""
_PATIENCE = 10.0
"""Seconds for which the list, or the rules, may be awaited before the adapter is ready."""
_SECONDS_FOR_CHANGE = 5.0
"""One namespace may have all its ConfigMaps read at once, and one more in this time: each change
takes up to half a second of a core, and then all rules are merged and listed again."""
_MAX_PROBLEM = 1000
"""Characters that are kept of why a ConfigMap is refused."""
_EXAMPLES = 3
"""Namespaces that the log names."""


class ConfigMapState(enum.StrEnum):
    """State of a ConfigMap, as in the document of a namespace."""

    IN_USE = "InUse"
    REFUSED = "Refused"
    UNREAD = "NotReadYet"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What became of one version of a ConfigMap."""

    version: str
    """`Watched.version`."""
    digest: bytes
    """Of its rules files: most new versions have the same ones."""
    problem: str = ""
    """Why it is refused; empty if it is not."""
    size: Size | None = None
    """None if it is refused."""
    ruleset: RuleSet | None = None
    """None also if the limits leave it out: then only its size is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """The rules that should be in use. A later version has a higher number."""

    version: int
    rulesets: Mapping[Key, RuleSet]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Which ConfigMaps are to be read."""

    watched: Mapping[str, Sequence[WatchedConfigMap]]
    """By namespace; of the ConfigMaps that are not to be read, only the first by name."""
    counts: Mapping[str, int]
    """Number of all ConfigMaps, by namespace."""
    beyond: int
    """Number of those that are more than the index has: refused, and not known by name."""
    reading: Admission
    claims: Sequence[Claim]
    """Those that `reading` admits."""
    due: Sequence[WatchedConfigMap]
    """Those of them that are not read yet."""


class TeamRules:
    """Rules of the ConfigMaps in `index`, which returns None while they are not known.

    `fetch` returns the complete document of a ConfigMap, or None if it does not exist; it may raise
    BackendError. `label` is the label of all series with their namespace. `clock` is monotonic, in
    seconds.
    """

    def __init__(
        self,
        index: Callable[[], ConfigMapIndex | None],
        fetch: Callable[[WatchedConfigMap], Awaitable[Mapping[str, Any] | None]],
        *,
        label: str,
        limits: Limits,
        meter: telemetry.TeamRulesMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._fetch = fetch
        self._label = label
        self._limits = limits
        self._meter = meter
        self._clock = clock
        self._began = clock()
        self._allowances: Allowances[str] = Allowances(
            limits.team_config_maps, _SECONDS_FOR_CHANGE, clock=clock
        )
        self._seen: tuple[ConfigMapIndex | None, int] = None, 0
        """The index, and its number of changes, when it was compared last."""
        self._again = False
        """Whether something is to be read although nothing has changed."""
        self._plan: _Plan | None = None
        """None until the first list is known."""
        self._outcomes: dict[Key, _Outcome] = {}
        self._using = Admission(admitted=(), refused={})
        """What the limits admit of what was read."""
        self.in_use = InUse(version=0, rulesets={})
        self._beyond = Condition()
        self._unread: Counter[str] = Counter()
        """Namespaces with ConfigMaps that are not read yet, or in another version."""
        self._reads: Counter[str] = Counter()
        """How many ConfigMaps of each namespace were read."""
        self._awaited: dict[str, int] = {}
        """Namespace -> version of the rules that is not yet in use."""
        self._settled = False
        """Whether all that was there at the start was once in use."""
        self.revision = 0
        """Changes with `states`."""

    async def run(self, request: Callable[[], None]) -> NoReturn:
        """Read what changes, and call `request` soon after `in_use` is another, until cancelled."""
        while True:
            unfinished = await self.look(request)
            await asyncio.sleep(_SOON if unfinished or self._plan is None else _INTERVAL)

    async def look(self, request: Callable[[], None]) -> bool:
        """Read what has changed, a ConfigMap at a time; return whether there is more to read now.

        After a second, what was read is put to use, and what has changed meanwhile is compared.
        """
        index = self._index()
        if index is None or (self._seen == (index, index.changes) and not self._again):
            return False
        self._seen, self._again = (index, index.changes), False
        # Most is done in threads: there may be 100 000 ConfigMaps, and one may take half a second.
        beyond = Counter(namespace for namespace, _ in index.left_out())
        plan = await asyncio.to_thread(self._planned, list(index.values()), beyond)
        self._note_beyond(beyond)
        self._plan, admitted = plan, set(plan.reading.admitted)
        self._outcomes = {key: each for key, each in self._outcomes.items() if key in admitted}
        self._unread = Counter(each.namespace for each in plan.due)
        ends, unfinished, read = self._clock() + _INTERVAL, False, Counter[str]()
        for each in plan.due:
            if unfinished := self._clock() >= ends:
                break
            if (outcome := await self._outcome(each)) is not None:
                self._outcomes[each.key] = outcome
                read[each.namespace] += 1
        self._reads += read
        self._again = len(plan.due) > read.total()
        await self._publish(plan, request)
        # Only now: what is read is noted as awaited.
        self._unread -= read
        if self._meter is not None:
            self._meter.show({each.name.lower(): n for each, n in self._counts().items()})
        self._note_settled()
        return unfinished

    def adopted(self, version: int) -> None:
        """Note that the rules with this version are in use."""
        self._awaited = {key: each for key, each in self._awaited.items() if each > version}
        self._note_settled()

    def pending(self, namespace: str) -> Finding | None:
        """Return the cause if rules of the namespace are not loaded yet; None if they are."""
        if self._plan is None and not self._is_late():
            return missing.rules_not_loaded("")
        if self._unread[namespace] > 0 or namespace in self._awaited:
            return missing.rules_not_loaded(namespace)
        return None

    def causes(self, namespace: str) -> tuple[Finding, ...]:
        """Return why the namespace may lack a metric: its rules are refused, or cannot be read."""
        if self._plan is None:
            return (missing.rules_unreadable(),)
        refused = {each.name: why for each, why in self.states(namespace) if why}
        return (missing.rules_refused(namespace, refused),) if refused else ()

    @property
    def namespaces(self) -> Iterable[str]:
        """The namespaces that have ConfigMaps."""
        return () if self._plan is None else self._plan.watched.keys()

    def states(self, namespace: str) -> Sequence[tuple[WatchedConfigMap, str | None]]:
        """Return the ConfigMaps of a namespace, and why each is refused.

        That is empty if its rules are in use, and None if it is not read yet. Of ConfigMaps that
        are too many, only some are returned.
        """
        if self._plan is None:
            return ()
        return [(each, self._refusal(each)) for each in self._plan.watched.get(namespace, ())]

    def count(self, namespace: str) -> int:
        """Return the number of ConfigMaps of a namespace."""
        return 0 if self._plan is None else self._plan.counts.get(namespace, 0)

    def check(self) -> Finding:
        """Report the ConfigMaps for /readyz, and name none.

        Raises RuntimeError until their rules are in use, for some seconds at most.
        """
        if not self._settled and not self._is_late():
            raise RuntimeError("the rules of teams are not loaded yet")
        if self._plan is None:
            return degraded("the ConfigMaps with rules of teams cannot be listed")
        if self._index() is None:
            return degraded(
                "the ConfigMaps with rules of teams are not watched now; the last known ones count"
            )
        counts, total = self._counts(), sum(self._plan.counts.values())
        namespaces = len(self._plan.counts)
        refused, unread = counts[ConfigMapState.REFUSED], counts[ConfigMapState.UNREAD]
        text = f"{total} ConfigMaps of {namespaces} namespaces, {refused} refused"
        return passes(f"{text}, {unread} not read yet" if unread else text)

    def _note_beyond(self, beyond: Counter[str]) -> None:
        """Say in the log which namespaces have more ConfigMaps than are kept, if that changes."""
        most = ", ".join(sorted(namespace for namespace, _ in beyond.most_common(_EXAMPLES)))
        if self._beyond.becomes(most) and most:
            log.warning(
                "%d ConfigMaps with rules of teams are refused, and not known by name, because "
                "there are too many, most of them in %s: remove some, or raise "
                "--limit=team-config-maps-all=%d",
                beyond.total(),
                most,
                self._limits.team_config_maps_all,
            )

    def _is_late(self) -> bool:
        return self._clock() - self._began >= _PATIENCE

    def _note_settled(self) -> None:
        self._settled = self._settled or (
            self._plan is not None and not self._unread.total() and not self._awaited
        )

    def _refusal(self, each: WatchedConfigMap) -> str | None:
        assert self._plan is not None
        if problem := self._plan.reading.refused.get(each.key):
            return problem
        outcome = self._outcomes.get(each.key)
        if outcome is None or outcome.version != each.version:
            return None
        return outcome.problem or self._using.refused.get(each.key, "")

    def _counts(self) -> Mapping[ConfigMapState, int]:
        """Return how many ConfigMaps are in each state."""
        assert self._plan is not None
        total = sum(self._plan.counts.values())
        refused = len(self._plan.reading.refused) + len(self._using.refused)
        refused += self._plan.beyond + sum(1 for each in self._outcomes.values() if each.problem)
        unread = self._unread.total()
        # While some are being read, these are counted twice.
        return {
            ConfigMapState.IN_USE: max(total - refused - unread, 0),
            ConfigMapState.REFUSED: refused,
            ConfigMapState.UNREAD: unread,
        }

    def _planned(self, present: Sequence[WatchedConfigMap], beyond: Counter[str]) -> _Plan:
        """Return which of the present ConfigMaps are to be read. Blocks.

        `beyond` has the number of those that the index leaves out, by namespace.
        """
        by_key = {each.key: each for each in present}
        claims = {
            key: Claim(namespace=each.namespace, name=each.name, created=each.created)
            for key, each in by_key.items()
        }
        reading = admission.to_read(claims.values(), self._limits)
        refused: dict[str, list[Key]] = defaultdict(list)
        for key in reading.refused:
            refused[key[0]].append(key)
        watched: dict[str, list[WatchedConfigMap]] = defaultdict(list)
        shown = [heapq.nsmallest(self._limits.team_config_maps, own) for own in refused.values()]
        for key in itertools.chain(reading.admitted, *shown):
            watched[key[0]].append(by_key[key])
        wanted = set(self._using.admitted)
        due: list[tuple[int, WatchedConfigMap]] = []
        turns = self._reads.copy()
        for key in reading.admitted:
            each, outcome = by_key[key], self._outcomes.get(key)
            known = outcome is not None and outcome.version == each.version
            if not known or (key in wanted and outcome is not None and outcome.ruleset is None):
                due.append((turns[each.namespace], each))
                turns[each.namespace] += 1
        # No namespace delays the first ConfigMaps of the others.
        due.sort(key=lambda turn: turn[0])
        return _Plan(
            watched=watched,
            counts=Counter(each.namespace for each in present) + beyond,
            beyond=beyond.total(),
            reading=reading,
            claims=[claims[key] for key in reading.admitted],
            due=[each for _, each in due],
        )

    async def _outcome(self, each: WatchedConfigMap) -> _Outcome | None:
        """Read a ConfigMap; None if that is postponed."""
        if not self._allowances.take(each.namespace):
            if self._meter is not None:
                self._meter.postponed.inc()
            return None
        try:
            document = await self._fetch(each)
        except errors.BackendError as error:
            log.info("the ConfigMap %s/%s cannot be read yet: %s", *each.key, error)
            return None
        if document is None:
            return None  # the watch is about to say so
        before = self._outcomes.get(each.key)
        try:
            return await asyncio.to_thread(self._load, each, document, before)
        except Exception as error:
            log.exception("the ConfigMap %s/%s cannot be read", *each.key)
            problem = f"cannot be read ({type(error).__name__}): simplify it"
            return _Outcome(version=each.version, digest=b"", problem=problem)

    def _load(
        self, each: WatchedConfigMap, document: Mapping[str, Any], before: _Outcome | None
    ) -> _Outcome:
        """Load the rules of a ConfigMap; what is wrong refuses this one alone. Blocks."""
        config_map = teams.read(document)
        digest = config_maps.digest(*itertools.chain.from_iterable(config_map.data))
        if before is not None and before.digest == digest:
            left_out = before.ruleset is None and not before.problem
            if not left_out or each.key not in self._using.admitted:
                return replace(before, version=each.version)
        try:
            ruleset = teams.load(config_map, label=self._label, limits=self._limits)
        except ConfigError as error:
            problem = shorten_middle(str(error), _MAX_PROBLEM)
            log.warning("the ConfigMap %s is refused: %s", config_map, problem)
            return _Outcome(version=each.version, digest=digest, problem=problem)
        log.info("the rules of the ConfigMap %s are loaded", config_map)
        size = Size(
            characters=sum(len(text) for _, text in config_map.data),
            rules=len(ruleset.all),
            pattern_memory=ruleset.pattern_memory,
        )
        return _Outcome(version=each.version, digest=digest, size=size, ruleset=ruleset)

    async def _publish(self, plan: _Plan, request: Callable[[], None]) -> None:
        """Let those be used that the limits admit, and note which these are."""
        outcomes = dict(self._outcomes)
        sizes = {key: each.size for key, each in outcomes.items() if each.size is not None}
        self._using = await asyncio.to_thread(admission.to_use, plan.claims, sizes, self._limits)
        rulesets: dict[Key, RuleSet] = {}
        admitted = set(self._using.admitted)
        for key, outcome in outcomes.items():
            if key not in admitted:
                self._outcomes[key] = replace(outcome, ruleset=None)
            elif outcome.ruleset is None:
                self._again = True  # there is room for it now: read it again
            else:
                rulesets[key] = outcome.ruleset
        self.revision += 1
        before = self.in_use
        changed = {
            key[0]
            for key in before.rulesets.keys() | rulesets.keys()
            if before.rulesets.get(key) is not rulesets.get(key)
        }
        if changed:
            self.in_use = InUse(version=before.version + 1, rulesets=rulesets)
            self._awaited.update(dict.fromkeys(changed, self.in_use.version))
            request()
