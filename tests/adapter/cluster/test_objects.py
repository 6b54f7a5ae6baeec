from __future__ import annotations

import asyncio
import contextlib
import logging

import pytest

from adapter import errors
from adapter.cluster import objects
from rules.kinds import GroupResource
from rules.selectors import selectors
from tests.fakes import kubernetes

PODS = GroupResource("", "pods")
NAMESPACES = GroupResource("", "namespaces")
DEPLOYMENTS = GroupResource("apps", "deployments")
WIDGETS = GroupResource("example.com", "widgets")
ALL = selectors.parse("")


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.add("pods", "team-a", "web-2", labels={"app": "web"}, phase="Running")
    cluster.add("pods", "team-a", "web-1", labels={"app": "web"}, phase="Pending")
    cluster.add("pods", "team-a", "web-0", labels={"app": "web"}, phase="Succeeded")
    cluster.add("pods", "team-a", "db-1", labels={"app": "db"}, phase="Running")
    cluster.add("pods", "team-b", "web-9", labels={"app": "web"}, phase="Running")
    cluster.add("deployments", "team-a", "web", labels={"app": "web"})
    cluster.add("namespaces", "", "team-a", labels={"tier": "gold"})
    cluster.add("namespaces", "", "team-b")
    return cluster


class Time:
    """A clock that is moved by hand, and sleeps that last until they are ended by hand."""

    def __init__(self):
        self.now = 1000.0
        self.slept = []
        self.awake = asyncio.Event()

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.slept.append(seconds)
        await self.awake.wait()
        self.awake.clear()


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def known(api, time):
    return objects.ClusterObjects(api, interval=600, clock=time, sleep=time.sleep)


@contextlib.asynccontextmanager
async def running(known):
    task = asyncio.create_task(known.run())
    yield task
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for is on the fake's side
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("resource", "namespace", "selector", "expected"),
    [
        (PODS, "team-a", "", ("db-1", "web-1", "web-2")),
        (PODS, "team-a", "app=web", ("web-1", "web-2")),
        (PODS, "team-a", "app in (web, x), app!=db", ("web-1", "web-2")),
        (PODS, "team-b", "app=web", ("web-9",)),
        (PODS, "team-c", "", ()),
        (PODS, "", "app=web", ("web-1", "web-2", "web-9")),
        (DEPLOYMENTS, "team-a", "", ("web",)),
        (NAMESPACES, "", "tier", ("team-a",)),
        (NAMESPACES, "team-a", "", ("team-a", "team-b")),
    ],
)
async def test_names_are_listed_by_selector(known, resource, namespace, selector, expected):
    names = await known.names(resource, namespace=namespace, selector=selectors.parse(selector))

    assert names == expected


async def test_the_api_server_does_the_selecting(known, cluster):
    await known.names(PODS, namespace="team-a", selector=selectors.parse("b = 1, a in (x)"))
    await known.names(DEPLOYMENTS, namespace="team-a", selector=ALL)

    pods, deployments = cluster.requests
    assert pods.path == "/api/v1/namespaces/team-a/pods"
    assert pods.query == {
        "labelSelector": "a in (x),b=1",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "limit": "50",
    }
    assert "PartialObjectMetadataList" in pods.accept
    assert deployments.path == "/apis/apps/v1/namespaces/team-a/deployments"
    assert deployments.query == {"limit": "50"}


async def test_an_api_server_without_metadata_lists_serves_as_well(known, cluster):
    cluster.metadata_only = False

    assert await known.names(PODS, namespace="team-b", selector=ALL) == ("web-9",)


@pytest.mark.parametrize("namespace", ["..", ".", "team-a/pods", "team%2Fa"])
async def test_a_namespace_that_cannot_be_is_not_asked_about(known, cluster, namespace):
    assert await known.names(PODS, namespace=namespace, selector=ALL) == ()
    assert not await known.live(PODS, namespace=namespace, name="web-1")
    assert cluster.requests == []


async def test_a_strange_namespace_stays_one_segment_of_the_path(known, cluster):
    assert await known.names(PODS, namespace="a?b#c d", selector=ALL) == ()

    assert cluster.requests[0].path == "/api/v1/namespaces/a%3Fb%23c%20d/pods"


async def test_a_refused_list_is_told_with_the_api_servers_words(known, cluster):
    cluster.fail("/apis/apps", status=403, message="deployments.apps is forbidden")

    with pytest.raises(errors.Refused, match=r"deployments\.apps is forbidden"):
        await known.names(DEPLOYMENTS, namespace="team-a", selector=ALL)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("web-2", True), ("web-1", True), ("web-0", False), ("gone", False), ("a,b=c", False)],
)
async def test_a_pod_is_live_while_it_exists_and_has_not_finished(known, name, expected):
    assert await known.live(PODS, namespace="team-a", name=name) is expected


async def test_the_name_of_a_pod_cannot_add_conditions(known, cluster):
    await known.live(PODS, namespace="team-a", name="x,metadata.name=web-1\\")

    assert cluster.requests[0].query["fieldSelector"] == (
        "metadata.name=x\\,metadata.name\\=web-1\\\\,status.phase!=Succeeded,status.phase!=Failed"
    )


async def test_other_objects_count_as_live_unasked(known, cluster):
    assert await known.live(DEPLOYMENTS, namespace="team-a", name="gone")
    assert cluster.requests == []


async def test_whether_a_pod_lives_is_not_guessed(known, cluster):
    cluster.fail("/api/v1/namespaces", status=403, message="not for you")

    with pytest.raises(errors.Refused, match="not for you"):
        await known.live(PODS, namespace="team-a", name="web-1")


# Kinds


def widget(version="v1"):
    return kubernetes.Resource(
        group="example.com", version=version, name="widgets", kind="Widget", singular="widget"
    )


async def test_before_the_first_discovery_the_usual_kinds_are_known(known, cluster):
    assert not known.discovered
    assert known.kinds.resolve("pod").api_version == "v1"
    assert cluster.requests == []


async def test_a_kind_that_is_missing_is_looked_up_at_once(known, cluster):
    cluster.resources.append(widget())
    cluster.add("widgets", "team-a", "w", labels={})

    assert await known.names(WIDGETS, namespace="team-a", selector=ALL) == ("w",)
    assert known.discovered
    assert cluster.asked("/apis/example.com")[0].path == (
        "/apis/example.com/v1/namespaces/team-a/widgets"
    )


async def test_the_first_version_that_discovery_lists_is_asked(known, cluster):
    cluster.resources += [widget("v1beta1"), widget("v1")]

    await known.names(WIDGETS, namespace="team-a", selector=ALL)

    assert cluster.requests[-1].path.startswith("/apis/example.com/v1beta1/")


async def test_an_unknown_kind_does_not_cost_a_discovery_each_time(known, cluster, time):
    for _ in range(3):
        with pytest.raises(errors.Refused, match="widgets") as caught:
            await known.names(WIDGETS, namespace="team-a", selector=ALL)
        assert caught.value.status == 404
    assert len(cluster.requests) == 2

    time.now += 30.0
    cluster.resources.append(widget())

    assert await known.names(WIDGETS, namespace="team-a", selector=ALL) == ()


async def test_those_who_miss_a_kind_together_ask_once(known, cluster):
    cluster.resources.append(widget())

    await asyncio.gather(
        *(known.names(WIDGETS, namespace="team-a", selector=ALL) for _ in range(5))
    )

    assert len(cluster.asked("/api")) - len(cluster.asked("/apis/example.com")) == 2


async def test_a_failed_lookup_is_told(known, cluster):
    cluster.fail("/apis", status=503, message="starting")

    with pytest.raises(errors.Broken, match="starting"):
        await known.names(WIDGETS, namespace="team-a", selector=ALL)

    assert not known.discovered


async def test_discovery_goes_on_and_swaps_the_kinds(known, cluster, time):
    async with running(known):
        await until(lambda: time.slept)
        before = known.kinds
        cluster.resources.append(widget())
        time.awake.set()
        await until(lambda: len(time.slept) == 2)

    assert time.slept == [600, 600]
    assert known.kinds.resolve("widgets").group == "example.com"
    assert before is not known.kinds
    assert "example.com" not in [group.name for group in before.groups]


async def test_the_first_discovery_is_tried_again_with_growing_pauses(known, cluster, time, caplog):
    cluster.fail("/api", status=503, message="starting", times=8)
    async with running(known):
        for count in range(1, 10):
            await until(lambda count=count: len(time.slept) == count)
            time.awake.set()
        await until(lambda: known.discovered)

    assert time.slept[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 600]
    assert "custom resources and their metrics are not known yet" in caplog.text
    assert "starting" in caplog.text


async def test_kinds_outlive_a_discovery_that_fails(known, cluster, time, caplog):
    caplog.set_level(logging.WARNING)
    cluster.resources.append(widget())
    async with running(known):
        await until(lambda: time.slept)
        cluster.fail("/api", drop=True)
        time.awake.set()
        await until(lambda: len(time.slept) == 2)

    assert time.slept == [600, 1]
    assert known.kinds.resolve("widgets").group == "example.com"
    assert "kinds of resource stay as they were" in caplog.text
