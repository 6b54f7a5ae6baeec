"""Wires the rules of teams: the watch of their ConfigMaps, a client, and what is written back."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass, replace

from adapter import telemetry
from adapter.app import sources
from adapter.background import Background
from adapter.clients.held import Held
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.clients.rights import Right, Rights
from adapter.cluster.value_index import ValueIndex
from adapter.cluster.watch_cache import Content, WatchCaches
from adapter.series.generation import Generation
from adapter.settings import Settings
from adapter.teams import config_maps
from adapter.teams.reports import Reports
from adapter.teams.rules import TeamRules
from rules.kinds import Kinds
from rules.teams import QUERY_TIMEOUT, SOURCE

_CONSEQUENCE = "the rules of teams have no effect"
_PAUSE, _PAUSES = 0.05, 200
"""How long to wait for the first list: the server listens only once it has its rules."""
_QPS, _BURST = 5.0, 50
"""Of requests that write to ConfigMaps, which delay no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams:
    """The rules of teams, and what serves them."""

    rules: TeamRules
    client: Prometheus
    """For their queries alone: they are shorter, and delay no others."""
    kube: Kube

    def start(
        self,
        background: Background,
        request: Callable[[], None],
        generation: Callable[[], Generation],
    ) -> None:
        """Start to call `request` after changes, and to write back what became of the rules."""
        background.start("changes of team rules", self.rules.run(request))
        kube = self.kube.with_rate(qps=_QPS, burst=_BURST)
        background.start("reports of team rules", Reports(self.rules, generation, kube).run())


async def connect(
    settings: Settings,
    kube: Kube,
    rights: Rights,
    stack: contextlib.AsyncExitStack,
    background: Background,
    watch_metrics: telemetry.WatchCacheMetrics,
    requests: telemetry.PrometheusRequestMetrics,
    held: Held,
) -> Teams:
    """Start to watch the ConfigMaps, and wait for the first list."""
    content: Content[ValueIndex[config_maps.Watched]] = Content(
        index=ValueIndex,
        parse=config_maps.parse,
        metadata_only=False,
        labels=settings.rules.team_selector,
        unwatched=f"not watched, so {_CONSEQUENCE}",
    )
    caches = WatchCaches(kube, content, metrics=watch_metrics)
    background.start("watch of team rules", caches.run())
    kind = Kinds.builtin().first("configmaps")
    index = functools.partial(caches.index, kind)
    right = Right(
        group="", resource="configmaps", verbs=("list", "watch"), consequence=_CONSEQUENCE
    )
    rights.require(kube, lambda: (right,))
    for _ in range(_PAUSES):
        if index() is not None:
            break
        await asyncio.sleep(_PAUSE)
    connection = replace(
        settings.prometheus, timeout=min(QUERY_TIMEOUT, settings.prometheus.timeout)
    )
    client = await stack.enter_async_context(
        sources.connect_prometheus(
            connection, requests, name=SOURCE, limits=settings.limited.limits, held=held
        )
    )
    rules = TeamRules(index, label=settings.rules.team_label)
    return Teams(rules=rules, client=client, kube=kube)
