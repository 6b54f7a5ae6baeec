"""Starts the watch of autoscalers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping

from adapter import errors, telemetry
from adapter.clients.prometheus import Prometheus
from adapter.clients.watch_cache import WatchCaches, WatchContent
from adapter.server.api import groups
from adapter.server.api.groups import custom
from adapter.server.api.groups.backend import Backend
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.app.cluster import Watches
from adapter.server.app.host import Host
from adapter.server.autoscalers import watched_hpa
from adapter.server.autoscalers.events import Events
from adapter.server.autoscalers.lookahead import LookAhead
from adapter.server.autoscalers.proposals import Proposals
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster import contents
from adapter.server.cluster.shared_index import SharedIndex
from rules.metrics_apis import EXTERNAL

_QPS, _BURST = 20.0, 100
"""Of requests for Events, which delay no others."""
_TIMEOUT = 30.0
"""Seconds for a request that is sent for the sake of its outcome."""


def start(
    host: Host,
    watched: Watches | None,
    outcomes: Outcomes,
    backend: Callable[[], Backend],
    clients: Mapping[str, Prometheus],
) -> None:
    """Start to watch all HPAs, and to make forecasts for them, if there is a cluster.

    Without the right to, the log says so.
    """
    if watched is None:
        return
    limits = host.settings.limited.limits

    async def request(info: RequestInfo) -> None:
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

    async def discover() -> None:
        await backend().objects.refresh()

    content: WatchContent[SharedIndex[watched_hpa.WatchedHpa]] = WatchContent(
        index=functools.partial(SharedIndex, limits.hpa_metrics_all),
        parse=functools.partial(watched_hpa.parse, limits=limits),
        metadata_only=False,
        unwatched="not watched, so no Event and no metric says whether they get their metrics",
    )
    hpas = WatchCaches(watched.kube, content, metrics=watched.metrics, max_objects=None)
    host.start("watch of autoscalers", hpas.run())
    pending = WatchCaches(watched.kube, contents.PENDING_PODS, metrics=watched.metrics)
    host.start("watch of pending pods", pending.run())
    autoscalers = Autoscalers(
        hpas=hpas,
        workloads=watched.workloads,
        scales=watched.scales,
        kinds=lambda: backend().kinds,
        outcomes=outcomes,
        request=request,
        is_served=is_served,
        discover=discover,
        events=Events(watched.kube.with_rate(qps=_QPS, burst=_BURST)),
        proposals=Proposals(pods=watched.objects, pending=pending, workloads=watched.workloads),
        meter=telemetry.AutoscalerMetrics(host.registry),
    )
    host.start("autoscalers", autoscalers.run())
    host.check("autoscalers", autoscalers.check)
    ahead = LookAhead(
        backend=backend,
        watched=autoscalers.requests,
        clients=clients,
        kube=watched.kube,
        forecasts=backend().forecasts,
    )
    host.start("look ahead", ahead.run())
    host.check("ahead", ahead.check)
