"""Readiness of pods, from a watch cache of complete pods or from lists, of a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients import watch_cache
from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import complete, contents
from adapter.server.cluster.complete import CompleteObjects
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.cluster.readiness import Readiness
from rules.findings import State
from tools.fakes import kubernetes
from tools.waiting import until

NOW = 1_000_000.0
NAMES = ("new", "old", "unready")


def status(seconds, *, ready=True):
    at = dt.datetime.fromtimestamp(NOW - seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": at}
    return {"phase": "Running", "conditions": [condition]}


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.put("pods", "team", "old", status=status(300))
    cluster.put("pods", "team", "new", status=status(10))
    cluster.put("pods", "team", "unready", status=status(300, ready=False))
    cluster.put("pods", "other", "old", status=status(5))
    return cluster


class Bed:
    def __init__(self, api):
        self.registry = CollectorRegistry()
        self.metrics = telemetry.WatchCacheMetrics(self.registry)

        async def pause(seconds):
            await asyncio.sleep(min(seconds, 0.02))

        def caches(content):
            return WatchCaches(api, content, metrics=self.metrics, sleep=pause)

        self.caches = caches(contents.READY_PODS)
        self.names = caches(contents.OBJECTS)
        ages = Readiness(CompleteObjects(api, self.caches), clock=lambda: NOW)
        self.objects = ClusterObjects(api, caches=self.names, readiness=ages, interval=600)

    async def younger(self, names=NAMES, namespace="team", seconds=60.0):
        return await self.objects.younger(names, namespace=namespace, seconds=seconds)

    async def until_watched(self):
        await self.younger()
        await until(lambda: "pods/status watched" in self.caches.status().fact)

    async def until_younger(self, expected):
        async def is_expected():
            return dict(await self.younger()) == expected

        await until(is_expected)


@pytest.fixture
async def bed(api):
    bed = Bed(api)
    tasks = [asyncio.create_task(caches.run()) for caches in (bed.caches, bed.names)]
    await asyncio.sleep(0)
    yield bed
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_pods_are_young_until_they_have_been_ready_long_enough(bed, cluster):
    await bed.until_watched()
    requests = len(cluster.requests)

    assert await bed.younger() == {"new": 10.0, "unready": 0.0}
    assert await bed.younger(seconds=301.0) == {"new": 10.0, "old": 300.0, "unready": 0.0}
    assert await bed.younger(("old", "none"), namespace="other") == {"old": 5.0, "none": 0.0}
    assert len(cluster.requests) == requests


async def test_a_change_of_readiness_is_followed(bed, cluster):
    await bed.until_watched()

    cluster.put("pods", "team", "unready", status=status(90))
    cluster.put("pods", "team", "old", status=status(1, ready=False))
    await bed.until_younger({"new": 10.0, "old": 0.0})
    cluster.remove("pods", "team", "unready")
    await bed.until_younger({"new": 10.0, "old": 0.0, "unready": 0.0})


async def test_the_cache_starts_with_the_first_request_and_reads_complete_pods(bed, cluster):
    assert not bed.caches.in_use
    assert watch_cache.statuses(bed.names, bed.caches).fact == "no kind is in use"

    await bed.until_watched()

    watches = [each for each in cluster.requests if each.query.get("watch")]
    assert [each.path for each in watches] == ["/api/v1/pods"]
    assert "PartialObjectMetadata" not in watches[0].accept
    assert "status.phase!=Succeeded" in watches[0].query["fieldSelector"]
    text = watch_cache.statuses(bed.names, bed.caches).fact
    assert text.startswith("pods/status watched: 3 objects")
    labels = {"resource": "pods/status"}
    name = "gpu_metrics_adapter_watch_cache_objects"
    assert bed.registry.get_sample_value(name, labels) == 3


async def test_without_a_watch_the_namespace_is_listed_once_for_all_callers(bed, cluster):
    cluster.fail("/api/v1/pods", status=403, times=1000)

    answers = await asyncio.gather(*(bed.younger() for _ in range(5)))

    assert answers == [{"new": 10.0, "unready": 0.0}] * 5
    assert len(cluster.requests_to("/api/v1/namespaces/team/pods")) == 1
    await until(lambda: "status 403" in bed.caches.status().fact)
    assert watch_cache.statuses(bed.names, bed.caches).state is State.WARNING


async def test_a_long_list_answers_requests_for_longer(bed, cluster, monkeypatch):
    monkeypatch.setattr(complete, "_LISTED_TTL", 0.0)
    monkeypatch.setattr(complete, "_TTL_PER_OBJECT", 30.0)
    cluster.fail("/api/v1/pods", status=403, times=1000)

    for _ in range(2):
        await bed.younger()
        await bed.younger(namespace="empty")

    assert len(cluster.requests_to("/api/v1/namespaces/team/pods")) == 1
    assert len(cluster.requests_to("/api/v1/namespaces/empty/pods")) == 2


@pytest.mark.parametrize(("pods", "seconds"), [(1, 2), (1_000, 2), (5_000, 10), (50_000, 30)])
def test_a_list_is_kept_in_proportion_to_its_length(pods, seconds):
    index = ValueIndex()
    for number in range(pods):
        index.put(Item("team", str(number), 0.0))

    assert complete._listed_ttl(("pods", "team"), index) == seconds


async def test_a_failed_list_is_an_error_and_no_pod_counts_as_ready(bed, cluster):
    cluster.fail("/api/v1/", status=500, times=1000)

    with pytest.raises(errors.BackendError):
        await bed.younger()
