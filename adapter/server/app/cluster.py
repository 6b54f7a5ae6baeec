"""Connects to the cluster: kinds, objects and their watch caches; or reads objects from files."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from adapter import errors, telemetry
from adapter.clients import own_rights, watch_cache
from adapter.clients.kubernetes import Kube
from adapter.clients.watch_cache import WatchCaches
from adapter.server.app.host import Host
from adapter.server.cluster import contents
from adapter.server.cluster.contents import CompleteObjects, WorkloadIndex
from adapter.server.cluster.manifests import FileObjects
from adapter.server.cluster.object_index import ObjectIndex
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.cluster.scales import BURST, QPS, TIMEOUT, Scales
from rules.findings import passes
from rules.ruleset import RuleSet

_LIST_QPS, _LIST_BURST = 100.0, 200
"""Minimum limits of the lists for kinds that are not watched: those of 1 500 autoscalers."""
_LIST_TIMEOUT = 10.0
"""Seconds for each page of such a list, because the caller waits for it."""
_RATE_FLAGS = "--client-qps and --client-burst"


class Watches(NamedTuple):
    """What the watches of autoscalers and of teams' rules share with those of objects."""

    kube: Kube
    objects: WatchCaches[ObjectIndex]
    workloads: WatchCaches[WorkloadIndex]
    scales: Scales
    metrics: telemetry.WatchCacheMetrics


async def connect(
    host: Host, present: Callable[[], RuleSet]
) -> tuple[ClusterObjects | FileObjects, Watches | None]:
    """Start to watch kinds and objects; nothing is watched if they are read from files.

    `present` returns the rules, whose kinds the adapter must be allowed to list. Raises StartError.
    """
    if host.settings.cluster.objects:
        try:
            objects = FileObjects(host.settings.cluster.objects)
        except errors.BackendError as error:
            raise errors.StartError(str(error)) from error
        host.check("kinds", lambda: None)
        host.check("watch-caches", lambda: passes("objects are read from files"))
        return objects, None
    return await _connect(host, present)


async def _connect(host: Host, present: Callable[[], RuleSet]) -> tuple[ClusterObjects, Watches]:
    flags = host.settings.cluster
    try:
        kube = await Kube.connect(
            flags.kubeconfig, qps=flags.qps, burst=flags.burst, flags=_RATE_FLAGS
        )
    except errors.BackendError as error:
        raise errors.StartError(
            f"{error}\nuse --lister-kubeconfig=FILE for another cluster, "
            "or --objects=FILE to run without one"
        ) from error
    host.connections.push_async_callback(kube.close)
    metrics = telemetry.WatchCacheMetrics(host.registry)
    caches = WatchCaches(kube, contents.OBJECTS, metrics=metrics)
    host.start("watch caches", caches.run())
    ready = WatchCaches(kube, contents.READY_PODS, metrics=metrics)
    host.start("watch of ready pods", ready.run())
    limits = host.settings.limited.limits
    workloads = WatchCaches(kube, contents.pod_selectors(limits), metrics=metrics)
    host.start("watch of workloads", workloads.run())
    # Callers wait for lists. So these have a rate limit of their own, and do not delay the watches.
    listing = kube.with_rate(
        qps=max(flags.qps, _LIST_QPS),
        burst=max(flags.burst, _LIST_BURST),
        flags=_RATE_FLAGS,
        timeout=_LIST_TIMEOUT,
    )
    scales = Scales(
        kube.with_rate(qps=QPS, burst=BURST, timeout=TIMEOUT),
        resources=flags.scale_targets,
        kinds=lambda: objects.kinds,
        limits=limits,
    )
    objects = ClusterObjects(
        kube,
        listing=listing,
        caches=caches,
        ready=CompleteObjects(listing, ready),
        workloads=CompleteObjects(listing, workloads),
        scales=scales,
        interval=flags.discovery_interval,
    )
    host.start("discovery of kinds", objects.run())
    host.start("scales", scales.run())
    host.rights.require(kube, lambda: own_rights.of_rules(present(), objects.kinds))
    host.check("kinds", lambda: _check_kinds(objects))
    host.check("watch-caches", lambda: watch_cache.statuses(caches, ready, workloads))
    return objects, Watches(kube, caches, workloads, scales, metrics)


def _check_kinds(objects: ClusterObjects) -> None:
    if not objects.discovered:
        raise RuntimeError("the resource kinds of the cluster are not discovered yet")
