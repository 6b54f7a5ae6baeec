"""Whether each autoscaler gets its metrics, looked at every few seconds.

What the HPA controller was answered counts. Only metrics that nobody requested for a minute are
requested here, through the same steps: the controller may ask another replica.
"""

from __future__ import annotations

import asyncio
import functools
import heapq
import logging
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar
from urllib.parse import urlencode

from adapter import telemetry
from adapter.background import Condition, FairQueue, gather_or_cancel, has_share
from adapter.clients import collection
from adapter.clients.value_index import ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.api.outcomes import Key, Outcome, Outcomes, key_of
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.autoscalers import questions
from adapter.server.autoscalers.events import Change, Events
from adapter.server.autoscalers.questions import WatchedHpa
from adapter.server.cluster.shared_index import SharedIndex
from rules.causes import missing
from rules.causes.reasons import summarize
from rules.errors import UnknownResourceError
from rules.findings import Finding, passes
from rules.hpa.autoscaler import MetricSpec
from rules.kinds import GroupResource, Kinds
from rules.limits import name_of
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

T = TypeVar("T")

INTERVAL = 5.0
"""Seconds between two looks."""
_ASKED = 60.0
"""Seconds after which a metric that nobody requests is requested here."""
_HELD = 10.0
"""Seconds for which a state must last until it is told: two looks, less than a sync."""
_FIRST_ASKED = 20.0
"""Seconds until that for an HPA that was just found: a sync of the controller, and some."""
_MAX_ASKED = 512
"""Metrics that are requested here at a time; at most half as many of one namespace."""
_MAX_CHANGES = 2000
"""Events that wait to be written; at most half as many of one namespace."""
_SLICE = 50
"""Metrics, or HPAs, that are looked at before other work gets its turn."""
_EXAMPLES = 3
"""HPAs that the log names."""
_ALL_METRICS = name_of("hpa_metrics_all")
_AUTOSCALERS = GroupResource("autoscaling", "horizontalpodautoscalers")
_VERSION = "v2"


@dataclass(slots=True)
class _State:
    """State of one metric of an HPA."""

    resolved: bool
    since: float
    told: bool | None
    """The state that is known to be told by an Event; None before the first."""


@dataclass(frozen=True, slots=True)
class _Request:
    """A metric of an HPA, and the controller's request for it."""

    metric: str
    """Type and name."""
    info: RequestInfo
    key: Key
    found: float
    """When it was first looked at."""
    averaged: bool
    """Whether it is an external metric whose target is an AverageValue."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The requests for an HPA, and what they follow from."""

    hpa: WatchedHpa
    selector: Selector | None
    kinds: Kinds
    requests: tuple[_Request, ...]


class Autoscalers:
    """Looks at all HPAs while `run` runs.

    `ask` answers a request for the sake of its outcome. `is_served` returns whether a group has
    rules in a namespace. `clock` is monotonic.
    """

    def __init__(
        self,
        *,
        hpas: WatchCaches[SharedIndex[WatchedHpa]],
        workloads: WatchCaches[ValueIndex[Selector]],
        kinds: Callable[[], Kinds],
        outcomes: Outcomes,
        ask: Callable[[RequestInfo], Awaitable[None]],
        is_served: Callable[[str, str], bool],
        events: Events,
        meter: telemetry.AutoscalerMetrics,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._hpas = hpas
        self._workloads = workloads
        self._kinds = kinds
        self._outcomes = outcomes
        self._ask = ask
        self._is_served = is_served
        self._events = events
        self._meter = meter
        self._clock = clock
        self._sleep = sleep
        self._changes: FairQueue[Change] = FairQueue(_MAX_CHANGES)
        self._asked: set[Key] = set()
        """What is being requested here."""
        self._asked_in: Counter[str] = Counter()
        """Number of these requests, by namespace."""
        self._left_out = Condition()
        self._numbers: Mapping[str, int] = {}
        """Number of metrics that are not watched, by the reason."""
        self._known: dict[str, _Known] = {}
        """By the uid of the HPA, as of the last look."""
        self._states: dict[tuple[str, str], _State] = {}
        """By the uid of the HPA, and the type and name of the metric."""
        self._told_before: frozenset[str] = frozenset()
        """Names of Events that this or another process wrote before the first look."""

    async def run(self) -> NoReturn:
        """Look at all HPAs periodically until cancelled."""
        await gather_or_cancel((self._look_periodically(), self._tell()))
        raise AssertionError  # neither of them returns

    async def _look_periodically(self) -> NoReturn:
        started = False
        async with asyncio.TaskGroup() as asking:
            while True:
                await self._sleep(INTERVAL)
                index = self._index()
                if index is None:
                    self._forget()
                    continue
                if not started:
                    self._told_before = await self._events.unresolvable()
                    started = True
                await self.look(index, asking)

    async def _tell(self) -> NoReturn:
        while True:
            change = await self._changes.get()
            try:
                await self._events.write(change)
            except Exception:
                # A defect that one Event meets ends nothing else.
                hpa = change.hpa
                log.exception("%s/%s: the Event cannot be written", hpa.namespace, hpa.name)

    async def look(self, index: SharedIndex[WatchedHpa], asking: asyncio.TaskGroup) -> None:
        """Look at all HPAs once; note what to tell, and request in `asking` what nobody does."""
        kinds = self._kinds()
        hpas = list(index.values())
        self._note_left_out(index, hpas)
        known: dict[str, _Known] = {}
        async for hpa in _sliced(hpas, lambda each: max(1, len(each.metrics))):
            found = collection.attempt(hpa, functools.partial(self._know, kinds=kinds))
            if isinstance(found, Exception):
                log.warning("%s/%s: cannot be watched: %r", hpa.namespace, hpa.name, found)
            else:
                known[hpa.uid] = found
        self._known = known
        served = functools.cache(self._is_served)
        watched = [
            (each.hpa, one)
            for each in known.values()
            for one in each.requests
            if served(one.info.group, one.info.namespace)
        ]
        self._outcomes.want({each.key for _, each in watched})
        now, shown = self._clock(), []
        states: dict[tuple[str, str], _State] = {}
        async for hpa, each in _sliced(watched):
            outcome = self._outcomes.of(each.key)
            self._ask_if_nobody_does(each, outcome, now, asking)
            if outcome is not None:
                outcome = _judged(each, outcome)
                reason = "" if outcome.resolved else _reason(outcome)
                shown.append((hpa.namespace, hpa.name, each.metric, reason))
                states[hpa.uid, each.metric] = self._state(hpa, each.metric, outcome)
        self._states = states
        self._meter.show(shown)

    def _note_left_out(self, index: SharedIndex[WatchedHpa], hpas: Iterable[WatchedHpa]) -> None:
        """Say which metrics are not watched; in the log, only if it has changed."""
        numbers: Counter[str] = Counter()
        examples: dict[str, list[tuple[str, str]]] = {}
        for hpa in hpas:
            for reason, number in hpa.left_out.items():
                numbers[reason] += number
                examples.setdefault(reason, []).append((hpa.namespace, hpa.name))
        if beyond := index.left_out():
            numbers[_ALL_METRICS] = sum(beyond.values())
            examples[_ALL_METRICS] = list(beyond)
        self._show_left_out(+numbers)
        problem = "; ".join(f"{reason}: {_some(keys)}" for reason, keys in sorted(examples.items()))
        if self._left_out.becomes(problem):
            if problem:
                log.warning(
                    "metrics of HPAs are not watched, because they exceed a limit or cannot be "
                    "read; use fewer, or raise the limit by --limit=NAME=NUMBER: %s",
                    problem,
                )
            else:
                log.info("all metrics of HPAs are watched again")

    def _show_left_out(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._meter.leave_out(numbers)

    def check(self) -> Finding:
        """Return how many metrics are not watched, for /readyz, without a name of an HPA."""
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
        self._states.clear()
        self._outcomes.want(())
        self._meter.show(())
        self._show_left_out({})

    def _know(self, hpa: WatchedHpa, kinds: Kinds) -> _Known:
        """Return the requests for an HPA: those of the last look, if nothing has changed."""
        resource = questions.workload(hpa.target, kinds)
        selector = self._selector(resource, hpa) if resource else None
        known = self._known.get(hpa.uid)
        if (
            known is not None
            and known.hpa is hpa
            and known.selector is selector
            and known.kinds is kinds
        ):
            return known
        request = functools.partial(self._request, hpa=hpa, kinds=kinds, selector=selector)
        # A selector may be longer than a request accepts; whatever fails concerns this metric.
        found = (collection.attempt(metric, request) for metric in hpa.metrics)
        requests = tuple(each for each in found if isinstance(each, _Request))
        return _Known(hpa, selector, kinds, requests)

    def _request(
        self, metric: MetricSpec, hpa: WatchedHpa, kinds: Kinds, selector: Selector | None
    ) -> _Request | None:
        """Return the request for a metric; None if there is none now."""
        request = questions.request_of(metric, hpa, kinds, selector)
        if request is None:
            return None
        info = request_info.parse(request.path, urlencode(request.params))
        title = f"{metric.type} metric {metric.name}"
        averaged = metric.type == "External" and metric.target == "AverageValue"
        return _Request(title, info, key_of(info), self._clock(), averaged)

    def _selector(self, resource: GroupResource, hpa: WatchedHpa) -> Selector | None:
        """Return the selector of the pods of the target; None until the workloads are known."""
        index = self._workloads.index(self._kinds().first(resource.resource, resource.group))
        return None if index is None else index.of(hpa.namespace).get(hpa.target.name)

    def _ask_if_nobody_does(
        self, each: _Request, outcome: Outcome | None, now: float, asking: asyncio.TaskGroup
    ) -> None:
        if outcome is None:
            due = each.found + _FIRST_ASKED
        else:
            due = outcome.at + (_ASKED if outcome.resolved else _HELD)
        if now < due or each.key in self._asked:
            return
        namespace = each.info.namespace
        if has_share(self._asked_in[namespace], _MAX_ASKED - len(self._asked)):
            self._asked.add(each.key)
            self._asked_in[namespace] += 1
            asking.create_task(self._ask_once(each.key, each.info))

    async def _ask_once(self, key: Key, info: RequestInfo) -> None:
        try:
            await self._ask(info)
        except Exception:
            # As for a request: a defect that one of them meets ends nothing else.
            log.exception("%s: cannot be answered", info.path)
        finally:
            self._asked.discard(key)
            self._asked_in[info.namespace] -= 1
            if not self._asked_in[info.namespace]:
                del self._asked_in[info.namespace]

    def _state(self, hpa: WatchedHpa, metric: str, outcome: Outcome) -> _State:
        """Return the state of a metric; once a change has lasted, it is to be told."""
        now, state = self._clock(), self._states.get((hpa.uid, metric))
        if state is None or state.resolved != outcome.resolved:
            state = _State(outcome.resolved, now, state.told if state is not None else None)
        if state.told == state.resolved or now - state.since < _HELD:
            return state
        text = "there is a value again" if outcome.resolved else _text(outcome)
        change = Change(
            hpa=hpa, metric=metric, resolved=outcome.resolved, message=f"{metric}: {text}"
        )
        known = state.told is not None or change.name(resolved=False) in self._told_before
        if (known or not outcome.resolved) and not self._changes.put(hpa.namespace, change):
            return state  # the next look finds it again
        state.told = state.resolved
        return state


async def _sliced(every: Sequence[T], weight: Callable[[T], int] = lambda _: 1) -> AsyncIterator[T]:
    """Yield all elements, and let other work run in between."""
    left = 0
    for each in every:
        if left <= 0:
            await asyncio.sleep(0)
            left = _SLICE
        left -= weight(each)
        yield each


def _some(keys: Collection[tuple[str, str]]) -> str:
    """Return the first HPAs, by namespace and name."""
    first = ", ".join("/".join(each) for each in heapq.nsmallest(_EXAMPLES, keys))
    return f"{first} and others" if len(keys) > _EXAMPLES else first


def _judged(request: _Request, outcome: Outcome) -> Outcome:
    """Return the outcome for this metric: the HPA controller cannot use each value."""
    if outcome.negative and request.averaged:
        return replace(outcome, resolved=False, causes=(missing.negative_value(),))
    return outcome


def _reason(outcome: Outcome) -> str:
    return outcome.causes[0].reason if outcome.causes else "Unknown"


def _text(outcome: Outcome) -> str:
    if outcome.causes:
        return summarize(outcome.causes[0])
    return outcome.problem or "there is no value"
