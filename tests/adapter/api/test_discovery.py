from __future__ import annotations

import json

import pytest

from adapter.api import discovery
from adapter.api.groups import custom
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


class Shelf:
    """Hands out the catalog that stands on it."""

    def __init__(self, found: Catalog) -> None:
        self.catalog = found

    def __call__(self) -> Catalog:
        return self.catalog


@pytest.fixture
def shelf():
    return Shelf(catalog("b", "a"))


@pytest.fixture
def found(shelf):
    return discovery.Discovery((custom,), shelf, secure_port=6443)


def read(found, path):
    return json.loads(found.encoded(path, pretty=False))


def test_every_group_and_version_has_a_path(found):
    assert found.paths == (
        "/apis",
        "/apis/custom.metrics.k8s.io",
        "/apis/custom.metrics.k8s.io/v1beta1",
        "/apis/custom.metrics.k8s.io/v1beta2",
    )


def test_a_group_lists_both_versions_and_prefers_the_first(found):
    group = read(found, "/apis/custom.metrics.k8s.io")

    assert list(group) == ["kind", "apiVersion", "name", "versions", "preferredVersion"]
    assert [version["version"] for version in group["versions"]] == ["v1beta1", "v1beta2"]
    assert group["preferredVersion"]["groupVersion"] == "custom.metrics.k8s.io/v1beta1"


def test_the_list_of_groups_has_no_api_version_and_an_address_without_a_host(found):
    groups = read(found, "/apis")

    assert list(groups) == ["kind", "groups"]
    assert groups["groups"][0]["serverAddressByClientCIDRs"] == [
        {"clientCIDR": "0.0.0.0/0", "serverAddress": ":6443"}
    ]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_version_lists_every_metric_sorted(found, version):
    listed = read(found, f"/apis/custom.metrics.k8s.io/{version}")

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


def test_an_empty_catalog_is_an_empty_list(shelf, found):
    shelf.catalog = Catalog.empty()

    assert read(found, "/apis/custom.metrics.k8s.io/v1beta1")["resources"] == []


def test_a_document_is_encoded_once_for_each_catalog(shelf, found):
    path = "/apis/custom.metrics.k8s.io/v1beta1"
    first = found.encoded(path, pretty=False)

    assert found.encoded(path, pretty=False) is first
    assert found.encoded(path, pretty=True) != first

    shelf.catalog = catalog("c")

    assert b"pods/c" in found.encoded(path, pretty=False)


@pytest.mark.parametrize(
    ("path", "served"),
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
def test_a_path_belongs_to_the_group_that_it_names(found, path, served):
    assert (found.group(path) is custom) is served
