from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from adapter import errors
from adapter.server.cluster import objects as objects_module
from adapter.server.cluster.object_index import Object, ObjectIndex
from rules.kinds import NAMESPACES, PODS, GroupResource, Kinds
from rules.selectors import selectors
from tests.adapter.server.cluster.bed import ALL, BY_SELECTOR, DEPLOYMENTS, objects_on
from tools.fakes import kubernetes
from tools.waiting import running, until

WIDGETS = GroupResource("example.com", "widgets")


class Time:
    """A clock that the test advances, and a sleep that the test ends."""

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
def objects(api, time):
    return objects_on(api, monotonic=time, sleep=time.sleep)


@pytest.mark.slow
@BY_SELECTOR
async def test_names_are_listed_by_selector(objects, resource, namespace, selector, expected):
    names = await objects.names(resource, namespace=namespace, selector=selectors.parse(selector))

    assert names == expected


async def test_selectors_are_sent_to_the_api_server(objects, cluster):
    await objects.names(PODS, namespace="team-a", selector=selectors.parse("b = 1, a in (x)"))
    await objects.names(DEPLOYMENTS, namespace="team-a", selector=ALL)

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


async def test_complete_objects_are_accepted_as_well(objects, cluster):
    cluster.metadata_only = False

    assert await objects.names(PODS, namespace="team-a-b", selector=ALL) == ("web-9",)


async def test_objects_are_listed_with_their_labels(objects):
    found = await objects.objects(PODS, namespace="", selector=selectors.parse("app=web"))

    assert [each[:2] for each in found] == [
        ("team-a-b", "web-9"),
        ("team-a", "web-1"),
        ("team-a", "web-2"),
    ]
    assert {tuple(each.label_map.items()) for each in found} == {(("app", "web"),)}


async def test_an_object_is_listed_by_its_name_unless_it_has_finished(objects, cluster):
    found = await objects.object(PODS, namespace="team-a", name="web-1")

    assert found is not None
    assert found.label_map == {"app": "web"}
    assert cluster.requests[0].query["fieldSelector"] == (
        "metadata.name=web-1,status.phase!=Succeeded,status.phase!=Failed"
    )
    assert await objects.object(PODS, namespace="team-a", name="web-0") is None
    assert await objects.object(PODS, namespace="team-a", name="none") is None
    team = await objects.object(NAMESPACES, namespace="", name="team-a")
    assert team is not None
    assert team.label_map == {"tier": "gold"}


async def test_kinds_are_indexed_while_other_work_runs(objects, monkeypatch):
    threads = []
    of = Kinds.of

    def noted(*arguments):
        threads.append(threading.current_thread())
        return of(*arguments)

    monkeypatch.setattr(Kinds, "of", noted)

    await objects.refresh()

    assert objects.discovered
    assert threading.main_thread() not in threads != []


@pytest.mark.parametrize("found", ["names", "objects"])
async def test_costly_selectors_leave_other_work_its_turns(api, found):
    index = ObjectIndex(Object("a", f"p{each}", ("app", f"x{each}")) for each in range(100))

    class Caches:
        def index(self, _):
            return index

    objects = objects_on(api, caches=Caches())
    turns = 0

    async def work():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    values = ",".join(f"v{each}" for each in range(60))
    some = [selectors.parse(f"app notin ({values},z{each})") for each in range(20)]
    kept = [objects.present_names(PODS, namespace="a", selector=each) for each in some]
    async with running(work()):
        answers = await asyncio.gather(
            *(getattr(objects, found)(PODS, namespace="a", selector=each) for each in some)
        )

    assert kept == [None] * 20
    assert {len(each) for each in answers} == {100}
    assert turns >= 20


@pytest.mark.parametrize("namespace", ["..", ".", "team-a/pods", "team%2Fa"])
async def test_impossible_namespace_causes_no_request(objects, cluster, namespace):
    assert await objects.names(PODS, namespace=namespace, selector=ALL) == ()
    assert await objects.objects(PODS, namespace=namespace, selector=ALL) == ()
    assert await objects.object(PODS, namespace=namespace, name="web-1") is None
    assert await objects.live(PODS, namespace=namespace, name="web-1")
    assert cluster.requests == []


async def test_namespace_is_escaped_in_the_path(objects, cluster):
    assert await objects.names(PODS, namespace="a?b#c d", selector=ALL) == ()

    assert cluster.requests[0].path == "/api/v1/namespaces/a%3Fb%23c%20d/pods"


async def test_refused_list_quotes_the_api_server(objects, cluster):
    cluster.fail("/apis/apps", status=403, message="deployments.apps is forbidden")

    with pytest.raises(errors.Refused, match=r"deployments\.apps is forbidden"):
        await objects.names(DEPLOYMENTS, namespace="team-a", selector=ALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web-2", True),
        ("web-1", True),
        ("web-0", False),
        ("web-f", False),
        ("gone", True),
        ("a,b=c", True),
    ],
)
async def test_only_a_pod_known_to_be_finished_is_not_live(objects, cluster, name, expected):
    cluster.add("pods", "team-a", "web-f", phase="Failed")

    assert await objects.live(PODS, namespace="team-a", name=name) is expected


async def test_pod_name_is_escaped_in_the_field_selector(objects, cluster):
    await objects.live(PODS, namespace="team-a", name="x,metadata.name=web-1\\")

    assert cluster.requests[0].query == {
        "fieldSelector": "metadata.name=x\\,metadata.name\\=web-1\\\\"
    }


async def test_pod_without_a_phase_is_live(objects, cluster):
    cluster.add("pods", "team-a", "new")

    assert await objects.live(PODS, namespace="team-a", name="new")


async def test_malformed_list_of_pods_is_broken(objects, cluster):
    cluster.fail("/api/v1/namespaces", body=b'{"items": [1]}')

    with pytest.raises(errors.Broken, match="not a list of pods"):
        await objects.live(PODS, namespace="team-a", name="web-1")


async def test_other_objects_are_live_without_a_request(objects, cluster):
    assert await objects.live(DEPLOYMENTS, namespace="team-a", name="gone")
    assert cluster.requests == []


async def test_forbidden_list_of_pods_raises(objects, cluster):
    cluster.fail("/api/v1/namespaces", status=403, message="not for you")

    with pytest.raises(errors.Refused, match="not for you"):
        await objects.live(PODS, namespace="team-a", name="web-1")


# Kinds


def widget(version="v1"):
    return kubernetes.Resource(
        group="example.com", version=version, name="widgets", kind="Widget", singular="widget"
    )


async def test_before_the_first_discovery_the_builtin_kinds_are_used(objects, cluster):
    assert not objects.discovered
    assert objects.kinds.resolve("pod").api_version == "v1"
    assert cluster.requests == []


async def test_unknown_kind_triggers_discovery(objects, cluster):
    cluster.resources.append(widget())
    cluster.add("widgets", "team-a", "w", labels={})

    assert await objects.names(WIDGETS, namespace="team-a", selector=ALL) == ("w",)
    assert objects.discovered
    assert cluster.requests_to("/apis/example.com")[0].path == (
        "/apis/example.com/v1/namespaces/team-a/widgets"
    )


async def test_first_version_in_discovery_order_is_listed(objects, cluster):
    cluster.resources += [widget("v1beta1"), widget("v1")]

    await objects.names(WIDGETS, namespace="team-a", selector=ALL)

    assert cluster.requests[-1].path.startswith("/apis/example.com/v1beta1/")


async def test_unknown_kinds_trigger_discovery_every_30_seconds_at_most(objects, cluster, time):
    for _ in range(3):
        with pytest.raises(errors.Refused, match="widgets") as caught:
            await objects.names(WIDGETS, namespace="team-a", selector=ALL)
        assert caught.value.status == 404
    assert len(cluster.requests) == 2

    time.now += 30.0
    cluster.resources.append(widget())

    assert await objects.names(WIDGETS, namespace="team-a", selector=ALL) == ()


async def test_concurrent_requests_for_unknown_kinds_share_a_discovery(objects, cluster):
    cluster.resources.append(widget())

    await asyncio.gather(
        *(objects.names(WIDGETS, namespace="team-a", selector=ALL) for _ in range(5))
    )

    assert len(cluster.requests_to("/api")) - len(cluster.requests_to("/apis/example.com")) == 2


async def test_failed_discovery_of_an_unknown_kind_raises_for_30_seconds(objects, cluster, time):
    cluster.resources.append(widget())
    cluster.fail("/apis", status=503, message="starting", times=1)

    for _ in range(2):
        with pytest.raises(errors.Broken, match="starting"):
            await objects.names(WIDGETS, namespace="team-a", selector=ALL)

    assert not objects.discovered
    time.now += 30.0
    assert await objects.names(WIDGETS, namespace="team-a", selector=ALL) == ()


async def test_discovery_is_repeated_and_replaces_a_changed_snapshot(objects, cluster, time):
    async with running(objects.run()):
        await until(lambda: time.slept)
        before = objects.kinds
        cluster.resources.append(widget())
        time.awake.set()
        await until(lambda: len(time.slept) == 2)

    assert time.slept == [600, 600]
    assert objects.kinds.resolve("widgets").group == "example.com"
    assert before is not objects.kinds
    assert "example.com" not in [group.name for group in before.groups]


async def test_discovery_of_the_same_kinds_keeps_the_snapshot(objects, cluster, time):
    await objects.refresh()
    before = objects.kinds
    time.now += 30.0
    await objects.refresh()

    assert len(cluster.requests) == 4
    assert objects.kinds is before


async def test_a_request_does_not_wait_for_an_api_server_that_hangs(objects, cluster, monkeypatch):
    monkeypatch.setattr(objects_module, "_REFRESH_TIMEOUT", 0.05)
    cluster.fail("/api", delay=30.0)

    with pytest.raises(errors.TimedOut, match="no discovery within"):
        await objects.refresh()
    with pytest.raises(errors.TimedOut, match="did not end"):
        await objects.refresh()


async def test_failed_discovery_is_retried_with_backoff(objects, cluster, time, caplog):
    cluster.fail("/api", status=503, message="starting", times=8)
    async with running(objects.run()):
        for count in range(1, 10):
            await until(lambda count=count: len(time.slept) == count)
            time.awake.set()
        await until(lambda: objects.discovered)

    assert time.slept[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 600]
    assert "metrics of custom resources are not served yet" in caplog.text
    assert "starting" in caplog.text


async def test_failed_rediscovery_keeps_the_kinds(objects, cluster, time, caplog):
    caplog.set_level(logging.WARNING)
    cluster.resources.append(widget())
    async with running(objects.run()):
        await until(lambda: time.slept)
        cluster.fail("/api", drop=True)
        time.awake.set()
        await until(lambda: len(time.slept) == 2)

    assert time.slept == [600, 1]
    assert objects.kinds.resolve("widgets").group == "example.com"
    assert "known resources stay as they are" in caplog.text
