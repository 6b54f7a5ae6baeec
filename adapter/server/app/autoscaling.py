"""Starts the watch of autoscalers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable

from adapter import errors, telemetry
from adapter.background import Background
from adapter.clients.kubernetes import Kube
from adapter.server.api.discovery import Discovery
from adapter.server.api.groups.group import Backend
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.autoscalers import questions
from adapter.server.autoscalers.events import Events
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster.shared_index import SharedIndex
from adapter.server.cluster.value_index import ValueIndex
from adapter.server.cluster.watch_cache import Content, WatchCaches
from rules.hpa.reading import EXTERNAL
from rules.limits import Limits
from rules.selectors.selectors import Selector

_QPS, _BURST = 20.0, 100
"""Of requests for Events, which delay no others."""
_TIMEOUT = 30.0
"""Seconds for a request that is sent for the sake of its outcome."""


def start(
    *,
    kube: Kube,
    workloads: WatchCaches[ValueIndex[Selector]],
    outcomes: Outcomes,
    discovery: Discovery,
    backend: Callable[[], Backend],
    background: Background,
    limits: Limits,
    watch_metrics: telemetry.WatchCacheMetrics,
    meter: telemetry.AutoscalerMetrics,
) -> Autoscalers:
    """Start to watch all HPAs. Without the right to, a line of the log says so."""

    async def ask(info: RequestInfo) -> None:
        present, loop = backend().of(info.namespace), asyncio.get_running_loop()
        group = discovery.group(info.path)
        if group is None:
            return
        info = group.to_object_scope(info, present.objects.kinds)
        with contextlib.suppress(errors.ApiError, TimeoutError):
            async with asyncio.timeout(_TIMEOUT):
                await outcomes.answer(group, info, present, deadline=loop.time() + _TIMEOUT)

    def is_served(group: str, namespace: str) -> bool:
        """Return whether a group is ours: external metrics without a rule are another server's."""
        if group == EXTERNAL:
            return bool(backend().of(namespace).generation.ruleset.external)
        return discovery.group(f"/apis/{group}") is not None

    content: Content[SharedIndex[questions.Watched]] = Content(
        index=functools.partial(SharedIndex, limits.hpa_metrics_all),
        parse=functools.partial(questions.parse, limits=limits),
        metadata_only=False,
        unwatched="not watched, so no Event and no metric says whether they get their metrics",
    )
    hpas = WatchCaches(kube, content, metrics=watch_metrics, max_objects=None)
    background.start("watch of autoscalers", hpas.run())
    autoscalers = Autoscalers(
        hpas=hpas,
        workloads=workloads,
        kinds=lambda: backend().objects.kinds,
        outcomes=outcomes,
        ask=ask,
        is_served=is_served,
        events=Events(kube.with_rate(qps=_QPS, burst=_BURST)),
        meter=meter,
    )
    background.start("autoscalers", autoscalers.run())
    return autoscalers
