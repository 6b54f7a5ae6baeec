"""Watch caches against a real API server."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients import watch_cache
from adapter.clients.kubernetes import Kube
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import contents
from adapter.server.cluster.contents import CompleteObjects
from rules.kinds import PODS, Kinds
from rules.selectors import selectors
from tests.adapter.server.cluster.bed import objects_on
from tools.waiting import running, until

NAMESPACE = "watched"
NAMESPACES = (NAMESPACE, f"{NAMESPACE}-b")
WEB = selectors.parse("app=web")
RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDING = f"{RBAC}/clusterrolebindings/watcher"


class Pods:
    """Pods of one namespace of the real cluster."""

    def __init__(self, admin, namespace=NAMESPACE):
        self.admin = admin
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, name, **labels):
        metadata = {"name": name, "labels": labels}
        spec = {"containers": [{"name": "main", "image": "none"}]}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self.admin.call("POST", self.path, document)

    def delete(self, name):
        self.admin.call("DELETE", f"{self.path}/{name}", {"gracePeriodSeconds": 0})

    def patch(self, name, document, subresource=""):
        media_type = "application/merge-patch+json"
        path = f"{self.path}/{name}{subresource}"
        self.admin.call("PATCH", path, document, content_type=media_type)

    def delete_all(self):
        for item in self.admin.get(self.path)["items"]:
            self.delete(item["metadata"]["name"])


@pytest.fixture(scope="module")
def kubeconfig(control_plane, tmp_path_factory):
    """Return the kubeconfig of a user who may do what manifests/base allows for pods."""
    admin = control_plane.admin
    for name in NAMESPACES:
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        admin.apply(f"/api/v1/namespaces/{name}", document)
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        admin.apply(account, document)
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]}
        for group, resource in (("", "pods"), ("apps", "deployments"))
    ]
    document = {"kind": "ClusterRole", "metadata": {"name": "watcher"}, "rules": rules}
    version = "rbac.authorization.k8s.io/v1"
    admin.apply(f"{RBAC}/clusterroles/watcher", {"apiVersion": version, **document})
    grant(admin)
    path = tmp_path_factory.mktemp("watcher") / "kubeconfig"
    yield str(control_plane.user("watcher").write_kubeconfig(path))
    for path in (BINDING, f"{RBAC}/clusterroles/watcher"):
        admin.request("DELETE", path)
    for name in NAMESPACES:
        Pods(admin, name).delete_all()
        admin.request("DELETE", f"/api/v1/namespaces/{name}")


def grant(admin):
    subject = {"kind": "User", "name": "watcher", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watcher"}
    document = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "watcher"},
        "subjects": [subject],
        "roleRef": role,
    }
    admin.apply(BINDING, document)


class Bed:
    def __init__(self, api):
        self.api = api
        self.registry = CollectorRegistry()
        self.metrics = telemetry.WatchCacheMetrics(self.registry)
        self.caches = WatchCaches(api, contents.OBJECTS, metrics=self.metrics)
        self.stack = contextlib.AsyncExitStack()
        self.objects = objects_on(api, caches=self.caches)
        self.listing = objects_on(api)

    async def names(self, selector=WEB, namespace=NAMESPACE):
        return await self.objects.names(PODS, namespace=namespace, selector=selector)

    async def until_status(self, text, *, present=True):
        await until(lambda: (text in self.caches.status().fact) is present)

    async def until_names(self, expected):
        async def are_expected():
            return await self.names() == expected

        await until(are_expected)


@pytest.fixture
def pods(control_plane, kubeconfig):
    for namespace in NAMESPACES:
        Pods(control_plane.admin, namespace).delete_all()
    pods = Pods(control_plane.admin)
    pods.create("web-1", app="web", tier="x")
    pods.create("web-2", app="web")
    pods.create("db-1", app="db")
    return pods


@pytest.fixture
async def bed(pods, kubeconfig):
    api = await Kube.connect(kubeconfig, qps=1000, burst=1000)
    bed = Bed(api)
    async with bed.stack:
        await bed.stack.enter_async_context(running(bed.caches.run()))
        await bed.names()
        await bed.until_status("pods watched")
        yield bed
    await api.close()


async def test_changes_are_seen_without_a_list(bed, pods):
    lists = bed.registry.get_sample_value(
        "gpu_metrics_adapter_object_lists_total", {"resource": "pods", "state": "syncing"}
    )
    changes = (
        (lambda: pods.create("web-0", app="web"), ("web-0", "web-1", "web-2")),
        (lambda: pods.delete("web-1"), ("web-0", "web-2")),
        (
            lambda: pods.patch("web-0", {"status": {"phase": "Succeeded"}}, "/status"),
            ("web-2",),
        ),
        (lambda: pods.patch("web-2", {"metadata": {"labels": {"app": "db"}}}), ()),
        (lambda: pods.patch("db-1", {"metadata": {"labels": {"app": "web"}}}), ("db-1",)),
    )
    for change, expected in changes:
        change()
        await bed.until_names(expected)
    assert lists == bed.registry.get_sample_value(
        "gpu_metrics_adapter_object_lists_total", {"resource": "pods", "state": "syncing"}
    )
    await until_complete(bed)
    assert bed.registry.get_sample_value(
        "gpu_metrics_adapter_watch_cache_objects", {"resource": "pods"}
    )


@pytest.mark.parametrize("namespace", [NAMESPACE, NAMESPACES[1], "", "unknown"])
async def test_names_equal_those_of_a_list(bed, control_plane, namespace):
    other = Pods(control_plane.admin, NAMESPACES[1])
    other.create("web-1", app="web", tier="y")
    other.create("a", tier="7")
    await until_complete(bed)

    for text in ("", "app=web", "app!=web", "app", "!app", "tier>3", "app in (web,db),tier!=x"):
        selector = selectors.parse(text)
        expected = await bed.listing.names(PODS, namespace=namespace, selector=selector)
        assert await bed.names(selector, namespace) == expected


async def until_complete(bed):
    """Return once the cache has as many pods as a list, which may have those of other tests."""

    async def is_complete():
        listed = await bed.listing.names(PODS, namespace="", selector=selectors.parse(""))
        return f"pods watched: {len(listed)} objects" in bed.caches.status().fact

    await until(is_complete)


async def test_restart_of_the_api_server_is_not_noticed_by_callers(bed, pods, control_plane):
    answers = set()

    async def poll():
        while True:
            answers.add(await bed.names())
            await asyncio.sleep(0.02)

    async with running(poll()):
        await asyncio.to_thread(control_plane.apiserver.kill)
        await bed.until_status("watch broken")
        await asyncio.to_thread(control_plane.apiserver.start)
        await bed.until_status("watch broken", present=False)
    assert answers == {("web-1", "web-2")}

    pods.create("web-3", app="web")
    await bed.until_names(("web-1", "web-2", "web-3"))


async def test_pods_are_young_until_they_have_been_ready_for_long_enough(bed, pods):
    caches = WatchCaches(bed.api, contents.READY_PODS, metrics=bed.metrics)
    ready = objects_on(bed.api, ready=caches)
    await bed.stack.enter_async_context(running(caches.run()))

    def become(name, status, at):
        at_text = at.strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "lastTransitionTime": at_text}
        pods.patch(name, {"status": {"conditions": [condition]}}, "/status")

    async def young():
        return await ready.younger(("web-1", "web-2"), namespace=NAMESPACE, seconds=3600)

    now = dt.datetime.now(dt.UTC)
    become("web-1", "True", now - dt.timedelta(hours=2))
    assert await young() == {"web-2": 0.0}, "listed, because the watch has just begun"

    async def only_web_1_is_young():
        return set(await young()) == {"web-1"}

    await until(lambda: "pods/status watched" in caches.status().fact)
    become("web-2", "True", now - dt.timedelta(hours=2))
    become("web-1", "True", now)
    await until(only_web_1_is_young)


async def test_selectors_of_workloads_are_watched(bed, pods):
    caches = WatchCaches(bed.api, contents.pod_selectors(), metrics=bed.metrics)
    workloads = CompleteObjects(bed.api, caches)
    kind = Kinds.builtin().first("deployments", "apps")
    await bed.stack.enter_async_context(running(caches.run()))

    async def found():
        return {name: str(each) for name, each in (await workloads.of(kind, NAMESPACE)).items()}

    assert await found() == {}, "listed, because the watch has just begun"
    template = {
        "metadata": {"labels": {"app": "web", "tier": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
    }
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
    spec = {"replicas": 0, "selector": selector, "template": template}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec}
    pods.admin.call("POST", path, {**document, "metadata": {"name": "web"}})
    await until(lambda: "deployments.apps/spec watched" in caches.status().fact)

    async def is_found():
        return await found() == {"web": "app=web,tier in (a,b)"}

    await until(is_found)
    pods.admin.call("DELETE", f"{path}/web")


@pytest.fixture
def short_times(monkeypatch):
    monkeypatch.setattr(watch_cache, "_WATCH", 1)
    monkeypatch.setattr(watch_cache, "_FORBIDDEN_GRACE", 1)
    monkeypatch.setattr(watch_cache, "_MIN_RETRY", 0.5)
    monkeypatch.setattr(watch_cache, "_MAX_RETRY", 0.5)


async def test_withdrawn_and_granted_rights_end_and_begin_the_watch(
    short_times, bed, pods, control_plane
):
    control_plane.admin.call("DELETE", BINDING)
    try:
        await bed.until_status("pods listed at each request: status 403")
        with pytest.raises(errors.Refused, match="forbidden"):
            await bed.names()
        pods.create("web-3", app="web")
    finally:
        grant(control_plane.admin)
    await bed.until_status("pods watched")

    assert await bed.names() == ("web-1", "web-2", "web-3")
