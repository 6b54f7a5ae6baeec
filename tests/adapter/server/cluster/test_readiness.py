"""Readiness of pods, from a watch cache of complete pods or from lists, of a fake API server."""

from __future__ import annotations

import asyncio
import datetime as dt
import tracemalloc

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients import watch_cache
from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import contents
from rules.findings import State
from rules.query.pod_age import too_young
from tests.adapter.server.cluster.bed import objects_on
from tools.fakes import kubernetes
from tools.waiting import running, until

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
        self.objects = objects_on(api, caches=self.names, ready=self.caches, clock=lambda: NOW)

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
    async with running(bed.caches.run(), bed.names.run()):
        yield bed


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
    monkeypatch.setattr(contents, "_LISTED_TTL", 0.0)
    monkeypatch.setattr(contents, "_TTL_PER_OBJECT", 30.0)
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

    assert contents._listed_ttl(("pods", "team"), index) == seconds


async def test_a_failed_list_is_an_error_and_no_pod_counts_as_ready(bed, cluster):
    cluster.fail("/api/v1/", status=500, times=1000)

    with pytest.raises(errors.BackendError):
        await bed.younger()


def condition(name="Ready", status="True", **more):
    return {"type": name, "status": status, **more}


@pytest.mark.parametrize(
    ("status", "since"),
    [
        ({"conditions": [condition(lastTransitionTime="1970-01-01T00:01:00Z")]}, 60.0),
        ({"conditions": [condition(lastTransitionTime=None)]}, 0.0),
        (
            {"conditions": [condition(status="False", lastTransitionTime="1970-01-01T00:01:00Z")]},
            None,
        ),
        ({"conditions": [condition(status="Unknown")]}, None),
        ({"conditions": [condition("PodScheduled"), condition("ContainersReady")]}, None),
        ({"conditions": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_only_the_condition_ready_counts(status, since):
    metadata = {"namespace": "a", "name": "p", "labels": {"big": "x"}}

    assert contents.READY_PODS.parse({"metadata": metadata, "status": status}) == Item(
        "a", "p", since
    )


def test_an_invalid_time_is_a_type_error_as_other_invalid_documents():
    with pytest.raises(TypeError, match="'soon' is not a time"):
        contents.ready_since({"conditions": [condition(lastTransitionTime="soon")]})


def test_the_index_has_the_ready_pods_of_each_namespace():
    index = ValueIndex()
    for item in (
        Item("a", "p", 1.0),
        Item("a", "q", 2.0),
        Item("b", "p", 3.0),
        Item("a", "r", None),
    ):
        index.put(item)
    assert (index.of("a"), index.of("b"), index.of("c")) == ({"p": 1.0, "q": 2.0}, {"p": 3.0}, {})
    assert len(index) == 3

    index.put(Item("a", "p", 9.0))
    index.put(Item("a", "q", None))
    index.remove("b", "p")
    index.remove("b", "never")
    assert (index.of("a"), index.of("b")) == ({"p": 9.0}, {})
    assert len(index) == 1


def test_pods_are_too_young_until_they_have_been_ready_long_enough():
    ready = {"old": 100.0, "just": 140.0, "young": 141.0, "ahead": 201.0}

    young = too_young(ready, ("old", "just", "young", "ahead", "unready"), now=200.0, seconds=60.0)

    assert young == {"young": 59.0, "ahead": 0.0, "unready": 0.0}


@pytest.mark.slow
def test_a_ready_pod_needs_less_than_300_bytes():
    item = {"status": {"conditions": [condition(lastTransitionTime="2026-01-01T00:01:00Z")]}}
    tracemalloc.start()
    index = ValueIndex()
    for number in range(10_000):
        name = f"inference-{number // 10}-5c9f7b6d4c-{number:05}"
        index.put(contents.READY_PODS.parse({**item, "metadata": {"namespace": "a", "name": name}}))
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()

    assert len(index) == 10_000
    assert size / len(index) < 300
