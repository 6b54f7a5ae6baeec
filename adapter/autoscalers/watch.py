"""Whether each autoscaler gets its metrics, looked at every few seconds.

What the HPA controller was answered counts. Only metrics that nobody requested for a minute are
requested here, through the same steps: the controller may ask another replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from adapter import errors, telemetry
from adapter.api.outcomes import Key, Outcome, Outcomes, key_of
from adapter.apimachinery import request_info
from adapter.apimachinery.request_info import RequestInfo
from adapter.autoscalers import questions
from adapter.autoscalers.events import Change, Events
from adapter.autoscalers.questions import Watched
from adapter.background import gather_or_cancel
from adapter.cluster.value_index import ValueIndex
from adapter.cluster.watch_cache import WatchCaches
from rules.errors import UnknownResourceError
from rules.kinds import GroupResource, Kinds
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
_MAX_ASKED = 256
"""Metrics that are requested here at a time."""
_MAX_CHANGES = 1000
"""Events that wait to be written."""
_SLICE = 50
"""HPAs that are looked at before other work gets its turn."""
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


@dataclass(frozen=True, slots=True)
class _Known:
    """The requests for an HPA, and what they follow from."""

    hpa: Watched
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
        hpas: WatchCaches[ValueIndex[Watched]],
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
        self._changes: asyncio.Queue[Change] = asyncio.Queue(_MAX_CHANGES)
        self._asked: set[Key] = set()
        """What is being requested here."""
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
            await self._events.write(await self._changes.get())

    async def look(self, index: ValueIndex[Watched], asking: asyncio.TaskGroup) -> None:
        """Look at all HPAs once; note what to tell, and request in `asking` what nobody does."""
        kinds = self._kinds()
        known: dict[str, _Known] = {}
        async for hpa in _sliced(list(index.values())):
            known[hpa.uid] = self._know(hpa, kinds)
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
                reason = "" if outcome.resolved else _reason(outcome)
                shown.append((hpa.namespace, hpa.name, each.metric, reason))
                states[hpa.uid, each.metric] = self._state(hpa, each.metric, outcome)
        self._states = states
        self._meter.show(shown)

    def _index(self) -> ValueIndex[Watched] | None:
        try:
            kind = self._kinds().first(_AUTOSCALERS.resource, _AUTOSCALERS.group)
        except UnknownResourceError:
            return None
        return self._hpas.index(kind) if kind.version == _VERSION else None

    def _forget(self) -> None:
        self._states.clear()
        self._outcomes.want(())
        self._meter.show(())

    def _know(self, hpa: Watched, kinds: Kinds) -> _Known:
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
        requests = []
        for metric in hpa.metrics:
            path, _, query = questions.path_of(metric, hpa, kinds, selector).partition("?")
            # A selector may be longer than a request accepts.
            with contextlib.suppress(errors.ApiError, request_info.MalformedError):
                if path:
                    info = request_info.parse(path, query)
                    title = f"{metric.type} metric {metric.name}"
                    requests.append(_Request(title, info, key_of(info), self._clock()))
        return _Known(hpa, selector, kinds, tuple(requests))

    def _selector(self, resource: GroupResource, hpa: Watched) -> Selector | None:
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
        if now >= due and each.key not in self._asked and len(self._asked) < _MAX_ASKED:
            self._asked.add(each.key)
            asking.create_task(self._ask_once(each.key, each.info))

    async def _ask_once(self, key: Key, info: RequestInfo) -> None:
        try:
            await self._ask(info)
        except Exception:
            # As for a request: a defect that one of them meets ends nothing else.
            log.exception("%s: cannot be answered", info.path)
        finally:
            self._asked.discard(key)

    def _state(self, hpa: Watched, metric: str, outcome: Outcome) -> _State:
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
        if known or not outcome.resolved:
            if self._changes.full():
                return state  # the next look finds it again
            self._changes.put_nowait(change)
        state.told = state.resolved
        return state


async def _sliced(every: Sequence[T]) -> AsyncIterator[T]:
    """Yield all elements, and let other work run in between."""
    for number, each in enumerate(every):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        yield each


def _reason(outcome: Outcome) -> str:
    return outcome.causes[0].reason.value if outcome.causes else "Unknown"


def _text(outcome: Outcome) -> str:
    if outcome.causes:
        return outcome.causes[0].summary
    return outcome.problem or "there is no value"
