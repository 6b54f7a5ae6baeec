"""Confines the requests of one namespace's rules: their text, number and answers.

`prometheus` sends the requests. The client of a namespace can send no other query.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping

from adapter import errors
from adapter.clients.circuit_breaker import FAILURES, OPEN
from adapter.clients.limits import FairSlots
from rules.errors import PlanError
from rules.query import confined
from rules.ruleset import Team


class Confinement:
    """Limits of the requests for the rules of `team`; all namespaces share `slots`.

    After five consecutive failures of the namespace, it sends one probe at a time. Unlike
    `CircuitBreaker`, this counts expensive queries, too: each takes a slot of the namespace, and a
    worker of the autoscaler that waits. `monotonic` is in seconds.
    """

    def __init__(
        self, team: Team, slots: FairSlots, *, monotonic: Callable[[], float] = time.perf_counter
    ) -> None:
        self.limits = team.limits
        self._team = team
        self.namespace = team.namespace
        self._slots = slots
        self._monotonic = monotonic
        self._failures = 0
        self._last = ""
        self._timed_out = False
        self._next_probe = 0.0
        self._probing = False

    def confined(self, params: Mapping[str, str]) -> Mapping[str, str]:
        """Return parameters of a request that read series of the namespace only.

        A text that is confined stays as it is. Raises Refused for one that cannot be confined.
        """
        key = "query" if "query" in params else "match[]"
        confine = confined.confine if key == "query" else confined.confine_selector
        try:
            text = confine(params[key], self._team.label, self.namespace)
        except PlanError as error:
            raise errors.Refused(str(error), status=400) from error
        return {**params, key: text}

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[float]:
        """Wait for a slot, and take it in this context. Yield the seconds of the wait.

        Raises TimedOut or Unreachable at once while the queries of the namespace fail.
        """
        probe = self._failures >= FAILURES
        if probe and (self._probing or self._monotonic() < self._next_probe):
            kind = errors.TimedOut if self._timed_out else errors.Unreachable
            raise kind(
                f"Prometheus is not queried for the rules of namespace {self.namespace}, "
                f"because {self._failures} queries failed; one at a time is tried. The last "
                f"failure: {self._last}"
            )
        self._probing = probe
        now = asyncio.get_running_loop().time
        began = now()
        try:
            async with self._slots.slot(self.namespace):
                yield now() - began
        finally:
            if probe:
                self._probing = False

    @contextlib.contextmanager
    def request(self, *, slow_is_failure: bool) -> Iterator[None]:
        """Count the outcome of the request in this context.

        Without `slow_is_failure`, TimedOut counts as nothing.
        """
        try:
            yield
        except (errors.Unreachable, errors.TimedOut) as error:
            slow = isinstance(error, errors.TimedOut)
            if slow_is_failure or not slow:
                self._failures += 1
                self._last, self._timed_out = str(error), slow
                self._next_probe = self._monotonic() + OPEN
            raise
        except errors.BackendError:
            self._failures = 0
            raise
        else:
            self._failures = 0
