"""Wires the rules of teams: the watch of their ConfigMaps, a client, and what is written back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from adapter import errors, telemetry
from adapter.clients import sources
from adapter.clients.prometheus import Prometheus
from adapter.clients.rights import Right
from adapter.clients.watch_cache import WatchCaches, WatchContent
from adapter.server.app.cluster import Watches
from adapter.server.app.host import Host
from adapter.server.app.reload import Reload
from adapter.server.series.generation import Generation
from adapter.server.teams import config_maps
from adapter.server.teams.config_maps import ConfigMapIndex
from adapter.server.teams.reports import Reports
from adapter.server.teams.rules import TeamRules
from rules.kinds import Kinds
from rules.teams import QUERY_TIMEOUT, SOURCE

_CONSEQUENCE = "the rules of teams have no effect"
_UNANNOTATED = "the annotation that --team-rules-status writes is missing"
_KEPT = 20_000
"""ConfigMaps that are known at least, and refused with a reason if they exceed a limit. The
namespaces share them out, so that one with more does not end the watch."""
_QPS, _BURST = 5.0, 50
"""Of requests for Events and annotations, which delay no others."""
_READ_QPS, _READ_BURST = 200.0, 400
"""Of requests for the texts of ConfigMaps, one at a time."""


async def connect(
    host: Host,
    watched_objects: Watches | None,
    generation: Callable[[], Generation],
    reload: Reload,
    clients: dict[str, Prometheus],
) -> Reports | None:
    """Start to watch the ConfigMaps, if there is a cluster and teams may have rules.

    `reload` gets the rules, and `clients` gets one for their queries alone: these are shorter, and
    delay no others.
    """
    settings = host.settings
    if not settings.rules.team_selector or watched_objects is None:
        return None
    kube = watched_objects.kube
    limits = settings.limited.limits
    content: WatchContent[ConfigMapIndex] = WatchContent(
        index=functools.partial(ConfigMapIndex, max(_KEPT, 2 * limits.team_config_maps_all)),
        parse=config_maps.parse,
        metadata_only=True,
        labels=settings.rules.team_selector,
        suffix="/metadata",
        unwatched=f"not watched, so {_CONSEQUENCE}",
    )
    caches = WatchCaches(kube, content, metrics=watched_objects.metrics, max_objects=None)
    host.start("watch of team rules", caches.run())
    kind = Kinds.builtin().first("configmaps")
    right = Right(
        group="", resource="configmaps", verbs=("list", "watch"), consequence=_CONSEQUENCE
    )
    annotate = settings.rules.team_status
    written = replace(right, verbs=("patch",), consequence=_UNANNOTATED)
    host.rights.require(kube, lambda: (right, written) if annotate else (right,))
    connection = replace(
        settings.prometheus, timeout=min(QUERY_TIMEOUT, settings.prometheus.timeout)
    )
    clients[SOURCE] = await host.connections.enter_async_context(
        sources.connect_prometheus(connection, host.requests, name=SOURCE, held=host.held)
    )
    reading = kube.with_rate(qps=_READ_QPS, burst=_READ_BURST)

    async def fetch(config_map: config_maps.WatchedConfigMap) -> Mapping[str, Any] | None:
        """Return the document of a ConfigMap. A list needs no right beside that of the watch."""
        namespace, name = config_map.key
        path = config_maps.collection(namespace)
        found = await reading.get(path, {"fieldSelector": f"metadata.name={name}"})
        try:
            items: Sequence[Mapping[str, Any]] = found["items"] or ()
            return next(iter(items), None)
        except (AttributeError, KeyError, TypeError) as error:
            raise errors.Broken(f"GET {path}: the response is not a list: {error!r}") from error

    rules = TeamRules(
        functools.partial(caches.index, kind),
        fetch,
        label=settings.rules.team_label,
        limits=limits,
        meter=telemetry.TeamRulesMetrics(host.registry),
    )
    host.check("team-rules", rules.check)
    writing = kube.with_rate(qps=_QPS, burst=_BURST)
    reports = Reports(rules, generation, writing, annotate=annotate)
    reload.add(rules)
    host.start("changes of team rules", rules.run(reload.request))
    host.start("reports of team rules", reports.run())
    return reports
