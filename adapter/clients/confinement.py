"""Confines the requests of one namespace's rules: their text, number and answers.

`prometheus` sends the requests. The client of a namespace can send no other query.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping

from adapter import errors
from adapter.clients.circuit_breaker import FAILURES, OPEN
from adapter.clients.limits import FairSlots
from rules.errors import PlanError
from rules.query import confined
from rules.ruleset import Team


class Confinement:
    """Limits of the requests for the rules of `team`; all namespaces share `slots`.

    After five consecutive timeouts of the namespace, it sends one probe at a time. Unlike
    `CircuitBreaker`, this counts expensive queries, too: each takes a slot of the namespace, and a
    worker of the autoscaler that waits. `monotonic` is in seconds.
    """

    def __init__(
        self, team: Team, slots: FairSlots, *, monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self.limits = team.limits
        self._team = team
        self._slots = slots
        self._monotonic = monotonic
        self._failures = 0
        self._last = ""
        self._next_probe = 0.0
        self._probing = False

    def confined(self, params: Mapping[str, str]) -> Mapping[str, str]:
        """Return parameters of a request that read series of the namespace only.

        A text that is confined stays as it is. Raises Refused for one that cannot be confined.
        """
        key = "query" if "query" in params else "match[]"
        confine = confined.confine if key == "query" else confined.confine_selector
        try:
            text = confine(params[key], self._team.label, self._team.namespace)
        except PlanError as error:
            raise errors.Refused(str(error), status=400) from error
        return {**params, key: text}

    @contextlib.asynccontextmanager
    async def turn(self, *, slow_is_failure: bool) -> AsyncIterator[float]:
        """Wait for a slot, and take it in this context. Yield the seconds of the wait.

        Raises TimedOut at once while the queries of the namespace take too long.
        """
        probe = self._failures >= FAILURES
        if probe and (self._probing or self._monotonic() < self._next_probe):
            raise errors.TimedOut(
                f"Prometheus is not queried for the rules of namespace {self._team.namespace}, "
                f"because {self._failures} queries took too long; one at a time is tried. The last "
                f"one: {self._last}"
            )
        self._probing = probe
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with self._slots.slot(self._team.namespace):
                yield now() - began
        except errors.TimedOut as error:
            if slow_is_failure:
                self._failures += 1
                self._last = str(error)
                self._next_probe = self._monotonic() + OPEN
            raise
        except errors.Unreachable:
            raise  # says nothing of this namespace
        except errors.BackendError:
            self._failures = 0
            raise
        else:
            self._failures = 0
        finally:
            if probe:
                self._probing = False
