"""How long the pods of the cluster have been Ready, for `minPodAge` of rules."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from adapter.server.cluster.complete import CompleteObjects
from rules.kinds import PODS, Kinds
from rules.query.pod_age import too_young


class Readiness:
    """Ages of Ready pods. `clock` returns Unix seconds. Methods raise BackendError subclasses."""

    def __init__(
        self, pods: CompleteObjects[float], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._pods = pods
        self._clock = clock
        self._kind = Kinds.builtin().first(PODS.resource)

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`, and for how long.

        It is 0 for pods that are not Ready or do not exist.
        """
        ready = await self._pods.of(self._kind, namespace)
        return too_young(ready, names, now=self._clock(), seconds=seconds)
