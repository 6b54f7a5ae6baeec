"""Starts the watch of autoscalers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable

from adapter import errors, telemetry
from adapter.clients.watch_cache import WatchCaches, WatchContent
from adapter.server.api import groups
from adapter.server.api.groups import custom
from adapter.server.api.groups.backend import Backend
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.app.cluster import Watches
from adapter.server.app.host import Host
from adapter.server.autoscalers import questions
from adapter.server.autoscalers.events import Events
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster.shared_index import SharedIndex
from rules.metrics_apis import EXTERNAL

_QPS, _BURST = 20.0, 100
"""Of requests for Events, which delay no others."""
_TIMEOUT = 30.0
"""Seconds for a request that is sent for the sake of its outcome."""


def start(
    host: Host, watched: Watches | None, outcomes: Outcomes, backend: Callable[[], Backend]
) -> None:
    """Start to watch all HPAs, if there is a cluster. Without the right to, the log says so."""
    if watched is None:
        return
    limits = host.settings.limited.limits

    async def ask(info: RequestInfo) -> None:
        present, loop = backend(), asyncio.get_running_loop()
        group = groups.of_path(present.generation, info.path)
        if group is None:
            return
        info = custom.to_object_scope(info, present.kinds)
        present = present.of(info.namespace)
        with contextlib.suppress(errors.ApiError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await outcomes.answer(group, info, present, deadline=loop.time() + _TIMEOUT)

    def is_served(group: str, namespace: str) -> bool:
        """Return whether a group is ours: external metrics without a rule are another server's."""
        if group == EXTERNAL.name:
            return bool(backend().of(namespace).generation.ruleset.external)
        return groups.of_path(backend().generation, f"/apis/{group}") is not None

    content: WatchContent[SharedIndex[questions.WatchedHpa]] = WatchContent(
        index=functools.partial(SharedIndex, limits.hpa_metrics_all),
        parse=functools.partial(questions.parse, limits=limits),
        metadata_only=False,
        unwatched="not watched, so no Event and no metric says whether they get their metrics",
    )
    hpas = WatchCaches(watched.kube, content, metrics=watched.metrics, max_objects=None)
    host.start("watch of autoscalers", hpas.run())
    autoscalers = Autoscalers(
        hpas=hpas,
        workloads=watched.workloads,
        kinds=lambda: backend().kinds,
        outcomes=outcomes,
        ask=ask,
        is_served=is_served,
        events=Events(watched.kube.with_rate(qps=_QPS, burst=_BURST)),
        meter=telemetry.AutoscalerMetrics(host.registry),
    )
    host.start("autoscalers", autoscalers.run())
    host.check("autoscalers", autoscalers.check)
