"""The list of everything at `/apis`, as aggregators ask for it."""

from __future__ import annotations

import gzip
import hashlib
import json
from types import SimpleNamespace

import pytest

from adapter.api import discovery
from adapter.api.groups.group import Resource
from adapter.http import request_info
from rules.kinds import GroupResource, Kinds
from rules.query.catalog import Catalog, Entry
from tests.adapter import wired

PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
APPS = GroupResource("apps", "deployments")

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"


def entry(resource: GroupResource, metric: str) -> Entry:
    return Entry(metric=metric, resource=resource, namespaced=resource != NODES, sources=())


def catalog(*metrics: str) -> Catalog:
    entries = [entry(resource, metric) for metric in metrics for resource in (PODS, NODES, APPS)]
    return Catalog.of(entries, ())


def build_router(found: Catalog):
    return wired.build_router(found, wired.Objects(Kinds.builtin(), {}), wired.Evaluation({}))


@pytest.fixture
async def port():
    async with wired.listening(build_router(catalog("b", "a"))) as port:
        yield port


async def listed(port: int, accept: str, **headers: str):
    return await wired.fetch(port, "/apis", headers={"Accept": accept, **headers})


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        pytest.param(f"{V2},{V2BETA1}", "v2", id="what an aggregator asks"),
        pytest.param(f"{V2},{V2BETA1},application/json", "v2", id="what kubectl asks"),
        pytest.param(f"{V2BETA1},{V2}", "v2beta1", id="the other way round"),
        pytest.param(V2BETA1, "v2beta1", id="what an aggregator before 1.30 asks"),
        pytest.param(f"{V2};profile=nopeer", "v2", id="of this server alone"),
        pytest.param(f"{V2};q=0.5,{V2BETA1}", "v2beta1", id="by weight"),
        pytest.param(f"application/json,{V2};q=0.1", "v2", id="before any plain document"),
        pytest.param(f"{V2.replace('v2', 'v3')},{V2BETA1}", "v2beta1", id="an unknown version"),
        pytest.param(V2.replace("application/json", "*/*"), "v2", id="in any encoding"),
    ],
)
async def test_who_asks_for_everything_gets_it_in_the_version_wanted_most(port, accept, version):
    reply = await listed(port, accept)

    document = json.loads(reply.body)
    assert reply.status == 200
    assert (document["kind"], document["apiVersion"]) == (
        "APIGroupDiscoveryList",
        f"apidiscovery.k8s.io/{version}",
    )
    assert reply.headers["Content-Type"] == (
        f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    )
    assert reply.headers["Vary"] == "Accept"
    assert reply.headers["Cache-Control"] == "public"


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "application/json",
        f"{V2.replace('v2', 'v3')},application/json",
        f"{V2.replace('APIGroupDiscoveryList', 'Table')},application/json",
        f"{V2};stream=rows,application/json",
        f"{V2};sv=v1,application/json",
    ],
)
async def test_everybody_else_gets_the_plain_document(port, accept):
    reply = await listed(port, accept)

    assert json.loads(reply.body)["kind"] == "APIGroupList"
    assert reply.headers["Content-Type"] == "application/json"
    assert "Etag" not in reply.headers


@pytest.mark.parametrize("accept", [V2.replace("v2", "v3"), V2.replace("apidiscovery", "meta")])
async def test_a_list_that_nobody_has_is_refused(port, accept):
    reply = await listed(port, accept)

    assert reply.status == 406
    assert "only the following media types" in json.loads(reply.body)["message"]


async def test_only_the_root_has_the_list_of_everything(port):
    reply = await wired.fetch(port, "/apis/custom.metrics.k8s.io", headers={"Accept": V2})

    assert reply.status == 406


async def test_metrics_are_subresources_of_resources_without_a_kind(port):
    document = json.loads((await listed(port, V2)).body)

    group, external = document["items"]
    assert external["metadata"] == {"name": "external.metrics.k8s.io"}
    assert [version.get("resources", []) for version in external["versions"]] == [[]]
    versions = {version["version"]: version for version in group["versions"]}
    kind = {"group": "custom.metrics.k8s.io", "version": "v1beta1", "kind": "MetricValueList"}
    assert group["metadata"] == {"name": "custom.metrics.k8s.io"}
    assert list(versions) == ["v1beta1", "v1beta2"]
    assert {version["freshness"] for version in versions.values()} == {"Current"}
    assert [
        (resource["resource"], resource["scope"]) for resource in versions["v1beta2"]["resources"]
    ] == [("deployments.apps", "Namespaced"), ("nodes", "Cluster"), ("pods", "Namespaced")]
    assert versions["v1beta1"]["resources"][2] == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": ""},
        "scope": "Namespaced",
        "singularResource": "",
        "verbs": [],
        "subresources": [
            {"subresource": "a", "responseKind": kind, "verbs": ["get"]},
            {"subresource": "b", "responseKind": kind, "verbs": ["get"]},
        ],
    }


async def test_who_has_the_list_is_told_so_in_few_words(port):
    first = await listed(port, V2)
    tag = first.headers["Etag"]

    again = await listed(port, V2, **{"If-None-Match": tag})

    assert (again.status, again.body) == (304, b"")
    assert "Content-Type" not in again.headers
    assert {name: again.headers[name] for name in ("Etag", "Vary", "Cache-Control")} == {
        "Etag": tag,
        "Vary": "Accept",
        "Cache-Control": "public",
    }


async def test_the_tag_is_a_hash_that_every_form_of_the_list_has(port):
    replies = [
        await listed(port, V2),
        await listed(port, V2BETA1),
        await listed(port, f"{V2};pretty=1"),
    ]

    tags = {reply.headers["Etag"] for reply in replies}
    assert tags == {f'"{hashlib.sha512(replies[0].body).hexdigest().upper()}"'}
    assert len({reply.body for reply in replies}) == 3


@pytest.mark.parametrize("tag", ["", "*", "W/{}", '"0"', "{}, {}"])
async def test_another_tag_gets_the_list(port, tag):
    current = (await listed(port, V2)).headers["Etag"]

    reply = await listed(port, V2, **{"If-None-Match": tag.replace("{}", current)})

    assert reply.status == 200


async def test_a_replica_with_the_same_metrics_has_the_same_tag(port):
    async with wired.listening(build_router(catalog("a", "b"))) as other:
        tags = [(await listed(each, V2)).headers["Etag"] for each in (port, other)]

    assert len(set(tags)) == 1


async def test_a_long_list_is_compressed_and_says_what_it_depends_on():
    many = catalog(*(f"metric_{number}" for number in range(400)))
    async with wired.listening(build_router(many)) as port:
        reply = await listed(port, V2, **{"Accept-Encoding": "gzip"})

    assert json.loads(gzip.decompress(reply.body))["items"]
    assert reply.headers["Content-Encoding"] == "gzip"
    # The last of the two headers of that name; the first is "Accept".
    assert reply.headers["Vary"] == "Accept-Encoding"


class Shelf:
    """Hands out the catalog that stands on it."""

    def __init__(self, found: Catalog) -> None:
        self.catalog = found

    def __call__(self) -> Catalog:
        return self.catalog


def group(*resources: Resource):
    """A group of this one version, with these resources whatever the catalog."""
    return SimpleNamespace(
        NAME="external.metrics.k8s.io", VERSIONS=("v1beta1",), resources=lambda _: resources
    )


def resource(name: str, *, namespaced: bool = True) -> Resource:
    return Resource(name=name, namespaced=namespaced, kind="Values", verbs=("get",))


def answer(found: discovery.Discovery, **headers: str):
    return found.answer(request_info.parse("/apis"), {"Accept": V2, **headers})


def resources(found: discovery.Discovery):
    return json.loads(answer(found).body)["items"][0]["versions"][0]["resources"]


def test_a_list_is_encoded_once_for_each_catalog_and_tagged_anew():
    shelf = Shelf(catalog("a"))
    served = group(resource("a"))
    found = discovery.Discovery((served,), shelf, secure_port=6443)
    first = answer(found)

    assert answer(found).body is first.body

    served.resources = lambda _: (resource("b"),)
    assert answer(found).body is first.body

    shelf.catalog = catalog("b")
    then = answer(found, **{"If-None-Match": first.headers["Etag"]})
    assert then.status == 200
    assert then.headers["Etag"] != first.headers["Etag"]


def test_a_resource_of_its_own_has_its_kind_and_verbs():
    served = group(resource("queue_len"))
    found = discovery.Discovery((served,), Catalog.empty, secure_port=6443)

    assert resources(found) == [
        {
            "resource": "queue_len",
            "responseKind": {
                "group": "external.metrics.k8s.io",
                "version": "v1beta1",
                "kind": "Values",
            },
            "scope": "Namespaced",
            "singularResource": "",
            "verbs": ["get"],
        }
    ]


def test_a_resource_is_listed_once_with_one_scope_and_all_its_subresources():
    served = group(
        resource("a/x", namespaced=False), resource("a/y"), resource("a"), resource("a/z/z")
    )
    found = discovery.Discovery((served,), Catalog.empty, secure_port=6443)

    (only,) = resources(found)

    assert (only["scope"], only["responseKind"]["kind"]) == ("Namespaced", "Values")
    assert [each["subresource"] for each in only["subresources"]] == ["x", "y", "z/z"]


def test_a_group_without_resources_is_listed_as_current():
    found = discovery.Discovery((group(),), Catalog.empty, secure_port=6443)

    assert json.loads(answer(found).body)["items"] == [
        {
            "metadata": {"name": "external.metrics.k8s.io"},
            "versions": [{"version": "v1beta1", "resources": [], "freshness": "Current"}],
        }
    ]
