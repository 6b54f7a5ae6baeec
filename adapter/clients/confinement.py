"""Confines the requests of one namespace's rules: their text, number and answers.

`prometheus` sends the requests. The client of a namespace can send no other query.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping

from adapter import errors
from adapter.clients.circuit_breaker import NamespaceBreaker
from adapter.clients.fair_slots import FairSlots
from rules.errors import PlanError
from rules.query import confined
from rules.ruleset import Team


class Confinement:
    """Limits of the requests for the rules of `team`; all namespaces share `slots`."""

    def __init__(
        self,
        team: Team,
        slots: FairSlots,
        *,
        monotonic: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.limits = team.limits
        self._team = team
        self._slots = slots
        self._breaker = NamespaceBreaker(team.namespace, clock=monotonic)

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
        now = asyncio.get_running_loop().time
        began = now()
        with self._breaker.request(slow_is_failure=slow_is_failure):
            async with self._slots.slot(self._team.namespace):
                yield now() - began
