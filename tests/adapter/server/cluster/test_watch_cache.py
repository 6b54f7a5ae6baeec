from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections import deque

import pytest

from adapter import bounds, errors
from adapter.clients import watch, watch_cache
from adapter.server.cluster.object_index import Object
from adapter.server.cluster.objects import ClusterObjects
from rules.findings import State
from rules.kinds import NAMESPACES, PODS
from rules.selectors import selectors
from tests.adapter.server.cluster.bed import ALL, BY_SELECTOR, WEB, Bed
from tools.waiting import until

POD_PATH = "/api/v1/pods"


@pytest.mark.slow
@BY_SELECTOR
async def test_names_come_from_the_watch_cache(
    bed, cluster, resource, namespace, selector, expected
):
    await bed.watched(resource)
    requests = len(cluster.requests)

    for _ in range(3):
        assert await bed.names(resource, namespace, selectors.parse(selector)) == expected
    assert len(cluster.requests) == requests


@pytest.mark.parametrize("metadata_only", [True, False])
async def test_one_watch_of_metadata_follows_the_whole_cluster(bed, cluster, metadata_only):
    cluster.metadata_only = metadata_only
    await asyncio.gather(*(bed.names() for _ in range(5)))
    await bed.until_status("pods watched: 4 objects")

    first, second = cluster.requests_to(POD_PATH)
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    assert first.query == {"fieldSelector": selector, "limit": "50"}
    assert "as=PartialObjectMetadataList;" in first.accept
    assert 45 <= int(second.query.pop("timeoutSeconds")) <= 90
    assert second.query == {
        "fieldSelector": selector,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "1",
    }
    assert "as=PartialObjectMetadata;" in second.accept
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})
    await bed.until_names(("web-1", "web-2", "web-3"))


@pytest.mark.slow
async def test_each_request_is_a_list_until_the_watch_is_accepted(bed, cluster):
    accepted = asyncio.Event()
    cluster.fail(POD_PATH, until=accepted, watch=True)
    assert await bed.names() == ("web-1", "web-2")
    await until(lambda: cluster.requests[-1].query.get("watch"))
    assert bed.state("syncing")
    assert await bed.names() == ("web-1", "web-2")

    assert len(cluster.requests_to("/api/v1/namespaces/team-a/pods")) == 2
    assert bed.caches.status().fact == "pods listed at each request: the watch has just begun"
    assert bed.metric("object_lists_total", resource="pods", state="syncing") == 2
    accepted.set()
    await bed.until_status("pods watched")
    assert await bed.names() == ("web-1", "web-2")
    assert bed.metric("object_lists_total", resource="pods", state="syncing") == 2


async def test_failure_of_the_first_list_is_the_reason_for_lists(bed, cluster):
    cluster.fail(POD_PATH, status=503, times=10**6)
    assert await bed.names() == ("web-1", "web-2")
    await bed.until_status("pods listed at each request: Broken")
    assert bed.state("syncing")

    cluster.failures.clear()
    await bed.until_status("pods watched")


async def test_objects_come_from_the_watch_cache_without_a_request(bed, cluster):
    await bed.watched()
    requests = len(cluster.requests)

    found = await bed.objects.objects(PODS, namespace="team-a", selector=WEB)
    pod = await bed.objects.object(PODS, namespace="team-a", name="web-1")
    finished = await bed.objects.object(PODS, namespace="team-a", name="web-0")

    assert [each.name for each in found] == ["web-1", "web-2"]
    assert (pod, finished) == (found[0], None)
    assert len(cluster.requests) == requests


async def test_pod_in_the_cache_is_live_without_a_request(bed, cluster):
    await bed.watched()
    requests = len(cluster.requests)

    assert await bed.objects.live(PODS, namespace="team-a", name="web-1")
    assert len(cluster.requests) == requests
    assert not await bed.objects.live(PODS, namespace="team-a", name="web-0")
    assert await bed.objects.live(PODS, namespace="team-a", name="unknown")
    assert len(cluster.requests) == requests + 2


@pytest.mark.parametrize(
    ("selector", "lists"),
    [
        (f"app in ({','.join(['web', *map(str, range(62))])})", 0),
        (f"app in ({','.join(['web', *map(str, range(63))])})", 1),
        (",".join(["app=web", *(f"!x{number}" for number in range(63))]), 1),
    ],
)
async def test_large_selectors_are_matched_by_the_api_server(bed, cluster, selector, lists):
    await bed.watched()
    requests = len(cluster.requests)

    assert await bed.names(selector=selectors.parse(selector)) == ("web-1", "web-2")
    assert len(cluster.requests) == requests + lists


async def test_only_a_namespace_whose_labels_are_too_large_is_listed(bed, cluster):
    large = {f"k{number}": "v" for number in range(1000)}
    cluster.add("pods", "team-a", "web-5", labels={"app": "web", **large}, phase="Running")
    await bed.watched()
    requests = len(cluster.requests)

    assert await bed.names(selector=ALL) == ("db-1", "web-1", "web-2", "web-5")
    assert await bed.names(namespace="team-a-b", selector=WEB) == ("web-9",)
    assert len(cluster.requests) == requests
    for selector, expected in (("k999", ("web-5",)), ("app=web", ("web-1", "web-2", "web-5"))):
        assert await bed.names(selector=selectors.parse(selector)) == expected
        assert cluster.requests[-1].path == "/api/v1/namespaces/team-a/pods"
        assert cluster.requests[-1].query["labelSelector"] == selector
    found = await bed.objects.objects(PODS, namespace="", selector=WEB)
    assert [f"{each.namespace}/{each.name}" for each in found] == [
        "team-a-b/web-9",
        "team-a/web-1",
        "team-a/web-2",
        "team-a/web-5",
    ]
    assert {each.name: each.labels is None for each in found}["web-5"]
    assert len(cluster.requests) == requests + 3

    cluster.put("pods", "team-a", "web-5", labels={"app": "web"})
    index = bed.caches.index(bed.objects.kinds.first("pods"))
    await until(lambda: index.unlabelled(None) == ())
    assert await bed.names(selector=WEB) == ("web-1", "web-2", "web-5")
    assert len(cluster.requests) == requests + 3


async def test_labels_return_with_a_new_list_once_there_is_room(bed, cluster, monkeypatch):
    monkeypatch.setattr(bounds, "LABELS", 10_000)
    for namespace in ("team-c", "team-d"):
        cluster.add("pods", namespace, "x", labels={"app": "web", "zone": "z" * 63})
    cluster.add("pods", "team-e", "x", labels={f"k{n}": f"{n}" for n in range(100)})
    await bed.watched()
    kind = bed.objects.kinds.first("pods")
    bed.caches.index(kind).put(Object("team-c", "y", ("text", "z" * 12_000)))
    assert bed.caches.index(kind).unlabelled(None) == ("team-e", "team-c")

    cluster.put("pods", "team-d", "x", labels={"app": "db"})
    await bed.until_names((), namespace="team-d")
    assert bed.caches.index(kind).unlabelled("team-c")
    bed.now += watch_cache._MAX_RETRY
    cluster.put("pods", "team-d", "x", labels={"app": "web"})
    await until(lambda: not bed.caches.index(kind).unlabelled("team-c"))

    requests = len(cluster.requests)
    assert await bed.names(namespace="team-c") == ("x",)
    assert len(cluster.requests) == requests


async def test_a_namespace_with_large_labels_does_not_delay_another(bed, cluster, monkeypatch):
    for number in range(6):
        cluster.add("pods", f"large-{number}", "x", labels={"app": "w" * 70_000}, phase="Running")
    await bed.watched()
    listed, release = [], asyncio.Event()

    async def list_into(self, found, kind, namespace, selector):
        listed.append(namespace)
        await release.wait()

    monkeypatch.setattr(ClusterObjects, "_list_into", list_into)
    async with asyncio.TaskGroup() as tasks:
        for number in (0, 0, 0, 0, 0, 1, 2, 3, 4, 5):
            tasks.create_task(bed.names(namespace=f"large-{number}"))
        await until(lambda: len(listed) >= 4)
        for _ in range(20):
            await asyncio.sleep(0)
        assert listed == ["large-0", "large-1", "large-2", "large-3"]
        release.set()

    assert len(listed) == 10
    assert not bed.objects._large_namespaces


async def test_requests_before_the_caches_run_are_lists(api, cluster):
    bed = Bed(api, 10)

    assert await bed.names() == ("web-1", "web-2")
    assert len(cluster.requests) == 1
    assert bed.caches.status().fact == "no kind is in use"


# Failures


@pytest.mark.slow
async def test_expired_version_is_listed_again_and_the_last_state_is_served_until_then(
    bed, cluster
):
    await bed.watched()
    cluster.end_watches()
    cluster.remove("pods", "team-a", "web-1")
    cluster.forget()
    listed = asyncio.Event()
    cluster.fail(POD_PATH, until=listed, watch=False)
    await until(lambda: cluster.failures == deque())
    requests = len(cluster.requests)

    assert await bed.names() == ("web-1", "web-2")
    assert len(cluster.requests) == requests
    listed.set()
    await bed.until_names(("web-2",))


@pytest.mark.slow
async def test_silent_watch_is_replaced(bed, cluster, monkeypatch):
    monkeypatch.setattr(watch, "_GRACE", 0.2)
    monkeypatch.setattr(watch_cache, "_WATCH", 0.1)
    cluster.silent = True
    await bed.watched()
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})
    await bed.until_status("watch broken: TimedOut")
    assert await bed.names() == ("web-1", "web-2")

    cluster.silent = False
    await bed.until_names(("web-1", "web-2", "web-3"))


@pytest.mark.slow
async def test_last_state_is_served_until_a_slow_watch_is_accepted(bed, cluster):
    await bed.watched()
    accepted = asyncio.Event()
    cluster.fail(POD_PATH, until=accepted, watch=True)
    cluster.end_watches()
    await until(lambda: cluster.failures == deque())
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})

    assert await bed.names() == ("web-1", "web-2")
    accepted.set()
    await bed.until_names(("web-1", "web-2", "web-3"))
    assert len([each for each in cluster.requests_to(POD_PATH) if "limit" in each.query]) == 1


async def test_last_state_is_served_while_the_watch_is_broken(bed, cluster, caplog):
    caplog.set_level(logging.INFO)
    await bed.watched()
    cluster.fail(POD_PATH, drop=True, times=10**6)
    cluster.end_watches()
    await until(lambda: bed.state("broken"))
    bed.now += 35

    assert await bed.names() == ("web-1", "web-2")
    assert bed.caches.status().fact == (
        "pods watched: 4 objects, last response 35 s ago, watch broken: Unreachable"
    )
    assert bed.caches.status().state is State.WARNING
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})
    cluster.failures.clear()
    await bed.until_names(("web-1", "web-2", "web-3"))
    assert bed.state("watched")
    assert not bed.state("broken")
    assert caplog.text.count("failed and is retried") == 1
    assert caplog.text.count("pods: watched") == 2


@pytest.mark.slow
@pytest.mark.parametrize("status", [403, 404, 405])
@pytest.mark.parametrize("watch_only", [True, False])
async def test_kind_that_cannot_be_watched_is_listed(bed, cluster, status, watch_only, caplog):
    cluster.fail(
        POD_PATH, status=status, message="not you", times=3, watch=True if watch_only else None
    )
    assert await bed.names() == ("web-1", "web-2")
    await bed.until_status(f"pods listed at each request: status {status}")
    assert bed.state("forbidden")

    cluster.add("pods", "team-a", "web-3", labels={"app": "web"})
    assert await bed.names() == ("web-1", "web-2", "web-3")
    await bed.until_status("pods watched")
    assert await bed.names() == ("web-1", "web-2", "web-3")
    lines = [each.getMessage() for each in caplog.records]
    text = "pods: listed at each request instead of watched"
    assert lines == [f"{text}: status {status}: GET /api/v1/pods: {status}: not you"]


async def test_refusal_of_a_list_reaches_the_caller(bed, cluster):
    cluster.fail("/api/v1/", status=403, message="not you", times=10**6)

    for _ in range(2):
        with pytest.raises(errors.Refused, match="not you"):
            await bed.names()
        await until(lambda: bed.state("forbidden"))


@pytest.mark.slow
async def test_short_refusals_do_not_end_a_watch(bed, cluster):
    await bed.watched()
    cluster.fail(POD_PATH, status=403, times=5)
    cluster.end_watches()
    await until(lambda: bed.state("broken"))
    assert await bed.names() == ("web-1", "web-2")
    await until(lambda: bed.state("watched"))

    cluster.fail(POD_PATH, status=403, times=10**6)
    cluster.end_watches()
    await until(lambda: bed.state("broken"))
    bed.now += 11
    await until(lambda: bed.state("forbidden"))
    # An alert on old responses is only for caches that are served.
    assert bed.metric("watch_cache_last_response_timestamp_seconds", resource="pods") is None
    assert bed.metric("watch_cache_objects", resource="pods") is None


@pytest.mark.parametrize("max_objects", [3])
async def test_too_many_objects_are_listed(bed, cluster, caplog):
    assert await bed.names() == ("web-1", "web-2")
    await bed.until_status("pods listed at each request: too many objects")
    assert bed.state("too_many")
    cluster.remove("pods", "team-a", "db-1")
    await bed.until_status("pods watched: 3 objects")
    cluster.put("pods", "team-a", "web-3", labels={"app": "web"})
    await bed.until_status("pods listed at each request: too many objects")

    assert await bed.names() == ("web-1", "web-2", "web-3")
    assert "more than 3" in caplog.text


# Start and end


async def test_unused_watch_ends_and_begins_again(bed, cluster):
    await bed.watched()
    await bed.watched(NAMESPACES)
    bed.now += 3599
    await bed.names(NAMESPACES)
    bed.now += 1
    await until(lambda: "pods" not in bed.caches.status().fact)
    await until(lambda: cluster.watching == 1)

    assert bed.metric("watch_cache_objects", resource="pods") is None
    assert not bed.state("watched")
    assert bed.state("watched", "namespaces")
    await bed.watched()
    assert bed.state("watched")


async def test_another_version_of_a_kind_replaces_its_watch(bed, cluster):
    kind = bed.objects.kinds.first("pods", "")
    bed.caches.index(dataclasses.replace(kind, version="v0"))
    await bed.until_status("pods listed at each request: status 404")
    await bed.watched()
    bed.now += 3600
    await bed.names()
    await until(lambda: bed.caches.status().fact.count("pods") == 1)

    assert bed.state("watched")
    assert bed.metric("watch_cache_objects", resource="pods") == 4


async def test_watches_end_with_run(api, cluster):
    bed = Bed(api, 10)
    task = asyncio.create_task(bed.caches.run())
    await asyncio.sleep(0)
    await bed.watched()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: cluster.watching == 0)


async def test_bug_in_a_watch_ends_run_and_all_watches(api, cluster, monkeypatch):
    bed = Bed(api, 10)
    monkeypatch.setattr(watch, "follow", None)
    task = asyncio.create_task(bed.caches.run())
    await asyncio.sleep(0)
    await bed.names()

    with pytest.raises(ExceptionGroup):
        await task
    assert await bed.names() == ("web-1", "web-2")
    assert bed.caches.status().fact == "no kind is in use"
