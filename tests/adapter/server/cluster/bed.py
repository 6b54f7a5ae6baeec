"""Objects of the fake API server, and cases that lists and watch caches answer alike."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import contents
from adapter.server.cluster.contents import CompleteObjects
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.cluster.scales import Scales
from rules.kinds import NAMESPACES, PODS, GroupResource, Kinds
from rules.selectors import selectors
from tools.waiting import until

DEPLOYMENTS = GroupResource("apps", "deployments")
ALL = selectors.parse("")
WEB = selectors.parse("app=web")
BY_SELECTOR = pytest.mark.parametrize(
    ("resource", "namespace", "selector", "expected"),
    [
        (PODS, "team-a", "", ("db-1", "web-1", "web-2")),
        (PODS, "team-a", "app=web", ("web-1", "web-2")),
        (PODS, "team-a", "app in (web, x), app!=db", ("web-1", "web-2")),
        (PODS, "team-a-b", "app=web", ("web-9",)),
        (PODS, "team-c", "", ()),
        (PODS, "", "app=web", ("web-9", "web-1", "web-2")),
        (DEPLOYMENTS, "team-a", "", ("web",)),
        (NAMESPACES, "", "tier", ("team-a",)),
        (NAMESPACES, "team-a", "", ("team-a", "team-b")),
    ],
)


def objects_on(api, *, caches=None, ready=None, **options) -> ClusterObjects:
    """Return the objects of a cluster; they are listed where no watch cache is given."""

    def idle(content):
        return WatchCaches(api, content, metrics=telemetry.WatchCacheMetrics(CollectorRegistry()))

    return ClusterObjects(
        api,
        listing=api,
        caches=caches or idle(contents.OBJECTS),
        ready=CompleteObjects(api, ready or idle(contents.READY_PODS)),
        workloads=CompleteObjects(api, idle(contents.pod_selectors())),
        scales=Scales(api, resources=(), kinds=Kinds.builtin),
        **{"interval": 600, **options},
    )


class Bed:
    """Objects with watch caches whose clock the test advances and whose pauses are short."""

    def __init__(self, api, max_objects):
        self.now = 1000.0
        self.registry = CollectorRegistry()
        self.caches = WatchCaches(
            api,
            contents.OBJECTS,
            metrics=telemetry.WatchCacheMetrics(self.registry),
            max_objects=max_objects,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        self.objects = objects_on(api, caches=self.caches)

    async def sleep(self, seconds):
        await asyncio.sleep(min(seconds, 0.02))

    async def names(self, resource=PODS, namespace="team-a", selector=WEB):
        return await self.objects.names(resource, namespace=namespace, selector=selector)

    async def until_status(self, text):
        await until(lambda: text in self.caches.status().fact)

    async def until_names(self, expected, **arguments):
        async def are_expected():
            return await self.names(**arguments) == expected

        await until(are_expected)

    async def watched(self, resource=PODS):
        """Request a kind and wait until it is watched."""
        await self.names(resource)
        await self.until_status(f"{resource} watched")

    def metric(self, name, **labels):
        return self.registry.get_sample_value(f"gpu_metrics_adapter_{name}", labels)

    def state(self, state, resource="pods"):
        return self.metric("watch_cache_state", resource=resource, state=state) == 1
