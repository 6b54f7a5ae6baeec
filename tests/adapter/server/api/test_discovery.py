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
