"""Watch of the autoscalers: whether each gets its metrics, and what these propose.

Every few seconds, all HPAs are checked. The answers to the HPA controller count; a metric that
nobody has requested for a minute is requested here, through the same steps: the controller may
send its requests to another replica.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import logging
import time
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar
from urllib.parse import urlencode

from adapter import errors, telemetry
from adapter.background import Condition, FairQueue, gather_or_cancel, guarded, has_share
from adapter.clients import collection
from adapter.clients.value_index import ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.api.outcomes import Key, Outcome, Outcomes, key_of
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.autoscalers import proposals, watched_hpa
from adapter.server.autoscalers.events import Change, Events
from adapter.server.autoscalers.proposals import Proposals, Seen
from adapter.server.autoscalers.watched_hpa import WatchedHpa
from adapter.server.cluster.scales import Scales, ScaleTarget
from adapter.server.cluster.shared_index import SharedIndex
from rules import limits
from rules.causes import missing
from rules.causes.reasons import summarize
from rules.errors import UnknownResourceError
from rules.findings import Finding, degraded, passes
from rules.hpa.autoscaler import MetricSpec, Reference
from rules.kinds import GroupResource, Kinds
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL = 5.0
"""Seconds between two checks."""
_UNREQUESTED = 60.0
"""Seconds after which a metric that nobody requests is requested here."""
_STABLE = 10.0
"""Seconds for which a state must last until an Event has it: two checks, less than a sync."""
_FIRST_REQUEST = 20.0
"""Seconds until the first request for a new HPA: a sync of the controller, and some."""
_NEW = 60.0
"""Seconds for which a target of an unknown kind lets the kinds be discovered, every 30 s."""
_MAX_REQUESTS = 512
"""Metrics that are requested here at a time; at most half as many of one namespace."""
_MAX_CHANGES = 2000
"""Events that wait to be written; at most half as many of one namespace."""
_SLICE = 50
"""Metrics, or HPAs, that are checked before other work gets its turn."""
_VALUES = 20
"""Pods and values of a metric that take as long to check as one metric."""
_MAX_NOTED = 100
"""HPAs for which one answer is noted: further ones that send the same request have no proposal.
The request waits for 15 µs for each."""
_EXAMPLES = 3
"""HPAs that the log names."""
_ALL_METRICS = limits.name_of("hpa_metrics_all")
_AUTOSCALERS = GroupResource("autoscaling", "horizontalpodautoscalers")
_VERSION = "v2"


@dataclass(slots=True)
class _State:
    """State of one metric of an HPA."""

    resolved: bool
    since: float
    reported: bool | None
    """The state that the last Event has; None before the first."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A metric of an HPA, and the controller's request for it."""

    metric: str
    """Type and name."""
    spec: MetricSpec
    info: RequestInfo
    key: Key
    found: float
    """When it was first checked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """The requests for an HPA, and what they follow from."""

    hpa: WatchedHpa
    metrics: frozenset[str]
    """Types and names."""
    resource: GroupResource | None
    """Of the target; None if its kind was not discovered."""
    selector: Selector | None
    kinds: Kinds
    scale_targets: tuple[ScaleTarget, ...]
    left_out: Mapping[str, int]
    """Number of metrics that are not watched, by the reason."""
    requests: tuple[_Request, ...]


class Autoscalers:
    """Checks all HPAs while `run` runs.

    `request` answers a request for the sake of its outcome. `is_served` returns whether a group has
    rules in a namespace. `discover` discovers the kinds anew. `clock` is monotonic.
    """

    def __init__(
        self,
        *,
        hpas: WatchCaches[SharedIndex[WatchedHpa]],
        workloads: WatchCaches[ValueIndex[Selector]],
        scales: Scales,
        kinds: Callable[[], Kinds],
        outcomes: Outcomes,
        request: Callable[[RequestInfo], Awaitable[None]],
        is_served: Callable[[str, str], bool],
        discover: Callable[[], Awaitable[object]],
        events: Events,
        proposals: Proposals,
        meter: telemetry.AutoscalerMetrics,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hpas = hpas
        self._workloads = workloads
        self._scales = scales
        self._kinds = kinds
        self._outcomes = outcomes
        self._request = request
        self._is_served = is_served
        self._discover = discover
        self._events = events
        self._proposals = proposals
        self._meter = meter
        self._clock = clock
        self._sleep = sleep
        self._changes: FairQueue[Change] = FairQueue(_MAX_CHANGES)
        self._requested: set[Key] = set()
        """What is being requested here."""
        self._requested_in: Counter[str] = Counter()
        """Number of these requests, by namespace."""
        self._is_listed = True
        """Whether the HPAs were known at the last check; before the first, they are expected."""
        self._left_out = Condition()
        self._numbers: Mapping[str, int] = {}
        """Number of metrics that are not watched, by the reason."""
        self._unknown: Mapping[tuple[str, str], float] = {}
        """Group and kind of targets that are not discovered, and when that was found."""
        self._known: dict[str, _Known] = {}
        """By the uid of the HPA, as of the last check."""
        self._states: dict[tuple[str, str], _State] = {}
        """By the uid of the HPA, and the type and name of the metric."""
        self._by_key: dict[Key, dict[str, tuple[WatchedHpa, _Request]]] = {}
        """By what the request is for, and by the uid of the HPA; at most _MAX_NOTED of each."""
        self._seen: dict[tuple[str, Key], Seen] = {}
        """By the uid of the HPA and what the request is for."""
        self._reported_before: frozenset[str] = frozenset()
        """Names of Events that this or another process wrote before the first check."""

    async def run(self) -> NoReturn:
        """Check all HPAs periodically until cancelled."""
        await gather_or_cancel((self._check_periodically(), self._write_events()))
        raise AssertionError  # neither of them returns

    async def _check_periodically(self) -> NoReturn:
        started = False
        async with asyncio.TaskGroup() as requests:
            while True:
                await self._sleep(INTERVAL)
                index = self._index()
                self._is_listed = index is not None
                if index is None:
                    self._forget()
                    continue
                if not started:
                    self._reported_before = await self._events.unresolvable()
                    started = True
                await self._check_all(index, requests)

    async def _write_events(self) -> NoReturn:
        while True:
            change = await self._changes.get()
            with guarded(_name(change.hpa), "the Event cannot be written"):
                written = await self._events.write(change)
                state = self._states.get((change.hpa.uid, change.metric))
                if state is not None and not written:
                    state.reported = not change.resolved  # the next check finds it again

    async def _check_all(self, index: SharedIndex[WatchedHpa], requests: asyncio.TaskGroup) -> None:
        kinds, known = self._kinds(), dict[str, _Known]()
        async for hpa in _sliced([*index.values()], lambda each: max(1, len(each.metrics))):
            with guarded(_name(hpa), "cannot be watched"):
                known[hpa.uid] = self._know(hpa, kinds)
        self._known = known
        self._note_left_out(index)
        self._discover_new(requests)
        served = functools.cache(self._is_served)
        watched = [
            (each.hpa, one)
            for each in known.values()
            for one in each.requests
            if served(one.info.group, one.info.namespace)
        ]
        self._by_key = {}
        for hpa, each in watched:
            same = self._by_key.setdefault(each.key, {})
            if len(same) < _MAX_NOTED:
                same[hpa.uid] = hpa, each
        needed = [(hpa, each) for hpa, each in watched if hpa.needs(each.spec)]
        # The first call forgets the outcomes of metrics that need no value now, because their HPA
        # has no pods. The second also wants their next outcomes: the first one with pods counts.
        self._outcomes.want({each.key for _, each in needed})
        self._outcomes.want(self._by_key, self._note)
        now = self._clock()
        proposed: dict[tuple[str, str, str], int] = {}
        found: dict[tuple[str, str], tuple[WatchedHpa, Outcome]] = {}
        scales = {each: False for hpa in known.values() for each in hpa.scale_targets}
        async for hpa, each in _sliced(needed, self._weight):
            outcome = self._outcomes.of(each.key)
            self._request_if_due(each, outcome, now, requests)
            if outcome is None:
                continue
            outcome = _judged(each, outcome)
            # Metrics that differ only in their selectors or targets count as one: it has no value
            # if any of them has none, and proposes the most replicas of all.
            _, last = found.get((hpa.uid, each.metric), (hpa, outcome))
            found[hpa.uid, each.metric] = hpa, outcome if last.resolved else last
            if (replicas := self._proposed(hpa, each)) is not None:
                title = hpa.namespace, hpa.name, each.metric
                proposed[title] = max(replicas, proposed.get(title, replicas))
            if not outcome.resolved:
                scales.update(dict.fromkeys(known[hpa.uid].scale_targets, True))
        self._scales.want(scales)
        # What an Event calls unresolvable stays so at checks without an outcome, as without pods.
        states = {
            (uid, metric): _State(resolved=False, since=each.since, reported=False)
            for (uid, metric), each in self._states.items()
            if each.reported is False and uid in known and metric in known[uid].metrics
        }
        shown = []
        async for (uid, metric), (hpa, outcome) in _sliced([*found.items()]):
            reason = "" if outcome.resolved else _reason(outcome)
            shown.append((hpa.namespace, hpa.name, metric, reason))
            states[uid, metric] = self._state(hpa, metric, outcome)
        self._states = states
        for key in self._seen.keys() - {(hpa.uid, each.key) for hpa, each in watched}:
            del self._seen[key]
        self._meter.show(shown, proposed)

    def _note(self, key: Key, outcome: Outcome) -> None:
        """Note what the controller sees beside the answer to a request."""
        by_target: dict[Reference | None, Seen] = {}
        for hpa, each in self._by_key.get(key, {}).values():
            self._seen.pop((hpa.uid, key), None)
            # For a metric of pods, all HPAs that send the request see the same.
            target = None if each.spec.type == "Pods" else hpa.target
            with guarded(_name(hpa), "what its controller sees cannot be noted"):
                if target not in by_target:
                    noted = self._proposals.note(hpa, each.spec, outcome, self._kinds())
                    by_target[target] = noted
                self._seen[hpa.uid, key] = by_target[target]

    def _weight(self, one: tuple[WatchedHpa, _Request]) -> int:
        """Return how long a metric takes to check, compared with one that has no value."""
        if (outcome := self._outcomes.of(one[1].key)) is None:
            return 1
        return 1 + (len(outcome.selected) + len(outcome.values)) // _VALUES

    def _proposed(self, hpa: WatchedHpa, request: _Request) -> int | None:
        """Return the replicas that a metric proposes; None if that is not known."""
        if (seen := self._seen.get((hpa.uid, request.key))) is not None:
            with guarded(_name(hpa), f"{request.metric}: no proposal"):
                return proposals.replicas(hpa, request.spec, seen)
        return None

    def _discover_new(self, requests: asyncio.TaskGroup) -> None:
        """Discover the kinds anew if an HPA has a target of a kind that may be new."""
        now = self._clock()
        unknown = (each.hpa.target for each in self._known.values() if each.resource is None)
        keys = {(each.group, each.kind) for each in unknown}
        self._unknown = {key: self._unknown.get(key, now) for key in keys}
        if any(now - found < _NEW for found in self._unknown.values()):
            requests.create_task(self._discover_once())

    async def _discover_once(self) -> None:
        try:
            await self._discover()
        except errors.BackendError as error:
            log.info("targets of HPAs may be of kinds that are not known yet: %s", error)

    def _note_left_out(self, index: SharedIndex[WatchedHpa]) -> None:
        """Say which metrics are not watched; in the log, only if it has changed."""
        found: defaultdict[str, Counter[limits.Key]] = defaultdict(Counter)
        for each in self._known.values():
            for reason, number in each.left_out.items():
                found[reason][each.hpa.namespace, each.hpa.name] += number
        if beyond := index.left_out():
            found[_ALL_METRICS].update(beyond)
        self._show_left_out({reason: hpas.total() for reason, hpas in found.items()})
        problem = "; ".join(f"{reason}: {_some(hpas)}" for reason, hpas in sorted(found.items()))
        if self._left_out.becomes(problem):
            if problem:
                log.warning(
                    "metrics of HPAs are not watched, because they exceed a limit (use fewer, or "
                    "raise it by --limit=NAME=NUMBER), cannot be read, or are of pods of a kind "
                    "that --scale-targets lacks (unlisted): %s",
                    problem,
                )
            else:
                log.info("all metrics of HPAs are watched again")

    def _show_left_out(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._meter.leave_out(numbers)

    def requests(self) -> Iterator[tuple[WatchedHpa, Selector, RequestInfo]]:
        """Yield each HPA with the selector of its pods, for each request of its controller."""
        for known in tuple(self._known.values()):
            if known.selector is not None:
                for each in known.requests:
                    if known.hpa.needs(each.spec):
                        yield known.hpa, known.selector, each.info

    def check(self) -> Finding:
        """Return how many metrics are not watched, for /readyz, without a name of an HPA."""
        if not self._is_listed:
            return degraded("HPAs cannot be watched, so none is checked; the log has the reason")
        if not self._numbers:
            return passes("no metric is left out")
        reasons = ", ".join(sorted(self._numbers))
        return passes(
            f"{sum(self._numbers.values())} metrics left out, for these reasons: {reasons}"
        )

    def _index(self) -> SharedIndex[WatchedHpa] | None:
        try:
            kind = self._kinds().first(_AUTOSCALERS.resource, _AUTOSCALERS.group)
        except UnknownResourceError:
            return None
        return self._hpas.index(kind) if kind.version == _VERSION else None

    def _forget(self) -> None:
        self._known, self._by_key = {}, {}
        self._states, self._seen = {}, {}
        self._outcomes.want(())
        self._scales.want({})
        self._meter.show((), {})
        self._show_left_out({})

    def _know(self, hpa: WatchedHpa, kinds: Kinds) -> _Known:
        """Return the requests for an HPA: those of the last check, if nothing has changed."""
        resource = watched_hpa.resource_of(hpa.target, kinds)
        is_listed = resource in kinds.workloads
        selector = self._selector(resource, hpa, kinds) if resource and is_listed else None
        last = self._known.get(hpa.uid)
        if last and last.hpa is hpa and last.selector is selector and last.kinds is kinds:
            return last
        request = functools.partial(self._request_for, hpa=hpa, kinds=kinds, selector=selector)
        # A selector may be longer than a request accepts; whatever fails concerns this metric.
        found = (collection.attempt(metric, request) for metric in hpa.metrics)
        of_pods = sum(each.type == "Pods" for each in hpa.metrics)
        unlisted = of_pods if resource and not is_listed else 0
        return _Known(
            hpa=hpa,
            metrics=frozenset(map(_title, hpa.metrics)),
            resource=resource,
            selector=selector,
            kinds=kinds,
            scale_targets=tuple(watched_hpa.scale_targets(hpa, kinds)),
            left_out=+Counter({**hpa.left_out, watched_hpa.UNLISTED: unlisted}),
            requests=tuple(each for each in found if isinstance(each, _Request)),
        )

    def _request_for(
        self, metric: MetricSpec, hpa: WatchedHpa, kinds: Kinds, selector: Selector | None
    ) -> _Request | None:
        """Return the request for a metric; None if there is none now."""
        request = watched_hpa.request_of(metric, hpa, kinds, selector)
        if request is None:
            return None
        info = request_info.parse(request.path, urlencode(request.params))
        return _Request(_title(metric), metric, info, key_of(info), self._clock())

    def _selector(self, resource: GroupResource, hpa: WatchedHpa, kinds: Kinds) -> Selector | None:
        """Return the selector of the pods of the target; None until it is known."""
        if resource in kinds.scale_targets:
            return self._scales.selected(ScaleTarget(resource, hpa.namespace, hpa.target.name))
        index = self._workloads.index(kinds.first(resource.resource, resource.group))
        return None if index is None else index.of(hpa.namespace).get(hpa.target.name)

    def _request_if_due(
        self, each: _Request, outcome: Outcome | None, now: float, requests: asyncio.TaskGroup
    ) -> None:
        """Request a metric that nobody has requested for long; soon, if it has no value."""
        if outcome is None:
            due = each.found + _FIRST_REQUEST
        else:
            due = outcome.at + (_UNREQUESTED if outcome.resolved else _STABLE)
        if now < due or each.key in self._requested:
            return
        namespace, free = each.info.namespace, _MAX_REQUESTS - len(self._requested)
        if has_share(self._requested_in[namespace], free):
            self._requested.add(each.key)
            self._requested_in[namespace] += 1
            requests.create_task(self._request_once(each.key, each.info))

    async def _request_once(self, key: Key, info: RequestInfo) -> None:
        with guarded(info.path, "cannot be answered"):
            await self._request(info)
        self._requested.discard(key)
        self._requested_in -= Counter((info.namespace,))  # keeps no zeros

    def _state(self, hpa: WatchedHpa, metric: str, outcome: Outcome) -> _State:
        """Return the state of a metric; once a change has lasted, an Event is to be written."""
        now, state = self._clock(), self._states.get((hpa.uid, metric))
        if state is None or state.resolved != outcome.resolved:
            state = _State(outcome.resolved, now, state.reported if state is not None else None)
        if state.reported == state.resolved or now - state.since < _STABLE:
            return state
        text = "there is a value again" if outcome.resolved else _text(outcome)
        change = Change(
            hpa=hpa, metric=metric, resolved=outcome.resolved, message=f"{metric}: {text}"
        )
        known = state.reported is not None or change.name(resolved=False) in self._reported_before
        if (known or not outcome.resolved) and not self._changes.put(hpa.namespace, change):
            return state  # the next check finds it again
        state.reported = state.resolved
        return state


def _name(hpa: WatchedHpa) -> str:
    return f"{hpa.namespace}/{hpa.name}"


def _title(metric: MetricSpec) -> str:
    return f"{metric.type} metric {metric.name}"


async def _sliced(every: Sequence[T], weight: Callable[[T], int] = lambda _: 1) -> AsyncIterator[T]:
    """Yield all elements, and let other work run in between."""
    left = 0
    for each in every:
        if left <= 0:
            await asyncio.sleep(0)
            left = _SLICE
        left -= weight(each)
        yield each


def _some(keys: Collection[limits.Key]) -> str:
    """Return the first HPAs, by namespace and name."""
    first = ", ".join("/".join(each) for each in heapq.nsmallest(_EXAMPLES, keys))
    return f"{first} and others" if len(keys) > _EXAMPLES else first


def _judged(request: _Request, outcome: Outcome) -> Outcome:
    """Return the outcome for this metric: the HPA controller cannot use each value."""
    averaged = request.spec.target == "AverageValue"
    if averaged and any(value < 0 for value in outcome.external):
        return replace(outcome, resolved=False, causes=(missing.negative_value(),))
    return outcome


def _reason(outcome: Outcome) -> str:
    return outcome.causes[0].reason if outcome.causes else "Unknown"


def _text(outcome: Outcome) -> str:
    if outcome.causes:
        return summarize(outcome.causes[0])
    return outcome.problem or "there is no value"
