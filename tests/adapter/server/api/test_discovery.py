"""Discovery documents, and aggregated discovery as aggregators and kubectl request it.

The plain documents are those that tests/parity has recorded of the original.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import hashlib
import json
from types import SimpleNamespace

import pytest

from adapter.server.api import discovery, encoded_answers, groups
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.groups import custom, external
from adapter.server.api.groups.group import Resource
from adapter.server.apimachinery import encoding, request_info
from rules.kinds import GroupResource
from rules.query.catalog import Catalog, Entry
from tests import world
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


@pytest.fixture
async def port():
    async with wired.listening(wired.build_router(catalog("b", "a"))) as port:
        yield port


async def listed(port: int, accept: str, **headers: str):
    return await wired.fetch(port, "/apis", headers={"Accept": accept, **headers})


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        pytest.param(f"{V2},{V2BETA1}", "v2", id="aggregator"),
        pytest.param(f"{V2},{V2BETA1},application/json", "v2", id="kubectl"),
        pytest.param(f"{V2BETA1},{V2}", "v2beta1", id="reversed"),
        pytest.param(V2BETA1, "v2beta1", id="aggregator before 1.30"),
        pytest.param(f"{V2};profile=nopeer", "v2", id="profile=nopeer"),
        pytest.param(f"{V2};q=0.5,{V2BETA1}", "v2beta1", id="weights"),
        pytest.param(f"application/json,{V2};q=0.1", "v2", id="preferred to a plain document"),
        pytest.param(f"{V2.replace('v2', 'v3')},{V2BETA1}", "v2beta1", id="unknown version"),
        pytest.param(V2.replace("application/json", "*/*"), "v2", id="any encoding"),
    ],
)
async def test_aggregated_discovery_is_served_in_the_preferred_version(port, accept, version):
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
async def test_other_accept_headers_get_the_plain_document(port, accept):
    reply = await listed(port, accept)

    assert json.loads(reply.body)["kind"] == "APIGroupList"
    assert reply.headers["Content-Type"] == "application/json"
    assert "Etag" not in reply.headers


@pytest.mark.parametrize("accept", [V2.replace("v2", "v3"), V2.replace("apidiscovery", "meta")])
async def test_an_unknown_version_or_group_alone_is_not_acceptable(port, accept):
    reply = await listed(port, accept)

    assert reply.status == 406
    assert "only the following media types" in json.loads(reply.body)["message"]


async def test_only_the_root_has_aggregated_discovery(port):
    reply = await wired.fetch(port, "/apis/custom.metrics.k8s.io", headers={"Accept": V2})

    assert reply.status == 406


async def test_metrics_are_subresources_of_resources_without_a_kind(port):
    document = json.loads((await listed(port, V2)).body)

    group, queue, _ = document["items"]
    assert queue["metadata"] == {"name": "external.metrics.k8s.io"}
    assert [version.get("resources", []) for version in queue["versions"]] == [[]]
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


async def test_a_matching_etag_gets_304(port):
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


async def test_all_forms_have_the_same_etag(port):
    replies = [
        await listed(port, V2),
        await listed(port, V2BETA1),
        await listed(port, f"{V2};pretty=1"),
    ]

    tags = {reply.headers["Etag"] for reply in replies}
    assert tags == {f'"{hashlib.sha512(replies[0].body).hexdigest().upper()}"'}
    assert len({reply.body for reply in replies}) == 3


@pytest.mark.parametrize("tag", ["", "*", "W/{}", '"0"', "{}, {}"])
async def test_other_etags_get_the_document(port, tag):
    current = (await listed(port, V2)).headers["Etag"]

    reply = await listed(port, V2, **{"If-None-Match": tag.replace("{}", current)})

    assert reply.status == 200


async def test_replicas_with_the_same_metrics_have_the_same_etag(port):
    async with wired.listening(wired.build_router(catalog("a", "b"))) as other:
        tags = [(await listed(each, V2)).headers["Etag"] for each in (port, other)]

    assert len(set(tags)) == 1


async def test_a_long_document_is_compressed_with_a_vary_header():
    many = catalog(*(f"metric_{number}" for number in range(400)))
    async with wired.listening(wired.build_router(many)) as port:
        reply = await listed(port, V2, **{"Accept-Encoding": "gzip"})

    assert json.loads(gzip.decompress(reply.body))["items"]
    assert reply.headers["Content-Encoding"] == "gzip"
    assert reply.headers["Vary"] == "Accept, Accept-Encoding"


def group(*resources: Resource):
    """Return a group with one version and the same resources for every catalog."""
    return SimpleNamespace(API=external.API, resources=lambda _: resources)


def resource(name: str, *, namespaced: bool = True) -> Resource:
    return Resource(name=name, namespaced=namespaced, kind="Values")


def documents(*served: object, of: Catalog | None = None) -> discovery.Documents:
    catalog = of or Catalog.empty()
    return discovery.Documents(served, catalog, port=6443, encoded=EncodedAnswers())


async def answer(served: discovery.Documents, **headers: str):
    return await served.answer(request_info.parse("/apis"), {"Accept": V2, **headers})


async def resources(served: discovery.Documents):
    return json.loads((await answer(served)).body)["items"][0]["versions"][0]["resources"]


async def test_a_document_is_encoded_once_per_catalog_and_gets_a_new_etag():
    served = discovery.Discovery(secure_port=6443)
    generation = wired.generation(catalog("a"))
    first, listed = await answer(served.of(generation)), await body(served.of(generation))

    again = served.of(dataclasses.replace(generation, statuses={}))
    assert (await answer(again)).body is first.body
    assert await body(again) is listed
    assert await body(again, "pretty=1") != listed

    new = served.of(wired.generation(catalog("b")))
    second = await answer(new, **{"If-None-Match": first.headers["Etag"]})
    assert second.status == 200
    assert second.headers["Etag"] != first.headers["Etag"]
    assert b"pods/b" in await body(new)


async def body(served: discovery.Documents, query: str = "") -> bytes:
    info = request_info.parse("/apis/custom.metrics.k8s.io/v1beta1", query)
    return (await served.answer(info, {})).body


async def test_a_document_of_an_old_catalog_is_not_kept(monkeypatch):
    monkeypatch.setattr(encoded_answers, "_MAX_ON_LOOP", dict.fromkeys(encoding.PRODUCED, 0))
    served = discovery.Discovery(secure_port=6443)
    old = asyncio.create_task(body(served.of(wired.generation(catalog("a")))))
    await asyncio.sleep(0)
    new = served.of(wired.generation(catalog("c")))

    assert b"pods/c" in await body(new)
    assert b"pods/a" in await old
    assert b"pods/c" in await body(new)


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        ("/apis/custom.metrics.k8s.io", True),
        ("/apis/custom.metrics.k8s.io/", True),
        ("/apis/custom.metrics.k8s.io/v1beta9/x", True),
        ("/apis/custom.metrics.k8s.iox", False),
        ("/apis/nosuch.group/v1", False),
        ("/apis", False),
        ("//apis/custom.metrics.k8s.io", False),
    ],
)
def test_a_path_belongs_to_the_group_that_it_names(path, belongs):
    present = world.generation("rules: []")

    assert (groups.of_path(present, path) is custom) is belongs


async def test_a_resource_without_subresources_has_kind_and_verbs():
    only = group(resource("queue_len"))
    served = documents(only)

    assert await resources(served) == [
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


async def test_a_resource_is_listed_once_with_one_scope_and_all_subresources():
    only = group(
        resource("a/x", namespaced=False), resource("a/y"), resource("a"), resource("a/z/z")
    )
    served = documents(only)

    (listed,) = await resources(served)

    assert (listed["scope"], listed["responseKind"]["kind"]) == ("Namespaced", "Values")
    assert [each["subresource"] for each in listed["subresources"]] == ["x", "y", "z/z"]


async def test_a_group_without_resources_is_listed_as_current():
    served = documents(group())

    assert json.loads((await answer(served)).body)["items"] == [
        {
            "metadata": {"name": "external.metrics.k8s.io"},
            "versions": [{"version": "v1beta1", "resources": [], "freshness": "Current"}],
        }
    ]
