"""Discovery documents of groups and versions."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest

from adapter.server.api import discovery, encoded_answers
from adapter.server.api.groups import custom
from adapter.server.apimachinery import encoding, request_info
from rules.kinds import GroupResource
from rules.query.catalog import Catalog, Entry

PODS = GroupResource("", "pods")
APPS = GroupResource("apps", "deployments")


def catalog(*metrics: str) -> Catalog:
    entries = [
        Entry(metric=metric, resource=resource, namespaced=True, sources=())
        for metric in metrics
        for resource in (PODS, APPS)
    ]
    return Catalog.of(entries, ())


@pytest.fixture
def current():
    """The current catalog, as an object whose attribute can be replaced."""
    return SimpleNamespace(catalog=catalog("b", "a"))


@pytest.fixture
def served(current):
    return discovery.Discovery(lambda: (custom,), lambda: current.catalog, secure_port=6443)


async def body(served, path, query=""):
    answer = await served.answer(request_info.parse(path, query), {})
    return answer.body


async def read(served, path):
    return json.loads(await body(served, path))


def test_every_group_and_version_has_a_path(served):
    assert served.paths == (
        "/apis",
        "/apis/custom.metrics.k8s.io",
        "/apis/custom.metrics.k8s.io/v1beta1",
        "/apis/custom.metrics.k8s.io/v1beta2",
    )


async def test_a_group_lists_its_versions_and_prefers_the_first(served):
    group = await read(served, "/apis/custom.metrics.k8s.io")

    assert list(group) == ["kind", "apiVersion", "name", "versions", "preferredVersion"]
    assert [version["version"] for version in group["versions"]] == ["v1beta1", "v1beta2"]
    assert group["preferredVersion"]["groupVersion"] == "custom.metrics.k8s.io/v1beta1"


async def test_the_group_list_has_no_api_version_and_no_host(served):
    groups = await read(served, "/apis")

    assert list(groups) == ["kind", "groups"]
    assert groups["groups"][0]["serverAddressByClientCIDRs"] == [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": ":6443"}
    ]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_version_lists_all_metrics_sorted(served, version):
    listed = await read(served, f"/apis/custom.metrics.k8s.io/{version}")

    assert listed["groupVersion"] == f"custom.metrics.k8s.io/{version}"
    assert [resource["name"] for resource in listed["resources"]] == [
        "deployments.apps/a",
        "deployments.apps/b",
        "pods/a",
        "pods/b",
    ]
    assert listed["resources"][2] == {
        "name": "pods/a",
        "singularName": "",
        "namespaced": True,
        "kind": "MetricValueList",
        "verbs": ["get"],
    }


async def test_an_empty_catalog_is_an_empty_list(current, served):
    current.catalog = Catalog.empty()

    assert (await read(served, "/apis/custom.metrics.k8s.io/v1beta1"))["resources"] == []


async def test_a_document_is_encoded_once_per_catalog(current, served):
    path = "/apis/custom.metrics.k8s.io/v1beta1"
    first = await body(served, path)

    assert await body(served, path) is first
    assert await body(served, path, "pretty=1") != first

    current.catalog = catalog("c")

    assert b"pods/c" in await body(served, path)


async def test_a_document_of_an_old_catalog_is_not_kept(current, served, monkeypatch):
    monkeypatch.setattr(encoded_answers, "_MAX_ON_LOOP", dict.fromkeys(encoding.PRODUCED, 0))
    path = "/apis/custom.metrics.k8s.io/v1beta1"
    old = asyncio.create_task(body(served, path))
    await asyncio.sleep(0)
    current.catalog = catalog("c")

    assert b"pods/c" in await body(served, path)
    assert b"pods/a" in await old
    assert b"pods/c" in await body(served, path)


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
def test_a_path_belongs_to_the_group_that_it_names(served, path, belongs):
    assert (served.group(path) is custom) is belongs
