"""What the cluster shows of our APIs through a real aggregator: discovery and OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import server
from tests.cluster.server import Server
from tests.control_plane.client import RefusedError
from tests.control_plane.plane import ControlPlane
from tests.real import prometheus
from tests.real.prometheus import wait_for

GROUP, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
EVERYTHING = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PACKAGE = "io.k8s.metrics.pkg.apis.custom_metrics"
OLD_EXPLANATION = ("--output=plaintext-openapiv2",)
"""The newer one looks for a path that names the resource, and ours is a parameter of the path."""
KIND = "x-kubernetes-group-version-kind"
COMPLAINTS = ("openapi", "discovery", "metrics.k8s.io")
"""What a warning or an error in the API server's log would name if it were about us."""
UNREACHED = ("Body: service unavailable", "could not get list of group versions")
"""What it goes on saying until it passes requests on to an APIService that became Available."""
LEFT = re.compile(r"(Timeout or abort while handling|Post-timeout activity).*/openapi/v3\b")
"""What it says of a client of its own that leaves before it has answered."""


RULES = """
externalRules:
- seriesQuery: queue_length
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""


@pytest.fixture(scope="module")
def adapter(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """The program, for which there is a metric of pods, and an external one without a series."""
    folder = tmp_path_factory.mktemp("server")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with prometheus.run(folder) as scraped, server.installed(control_plane):
        scraped.put('DCGM_FI_DEV_GPU_UTIL{UUID="u",namespace="default",pod="bert-0"} 22')
        flags = (f"--prometheus-url={scraped.url}", "--preset=gpu-dcgm", f"--config={rules}")
        found = Server(control_plane, folder / "server.log", flags)
        try:
            found.start()
            yield found
        finally:
            found.stop()


@pytest.fixture(scope="module")
def log(control_plane: ControlPlane) -> Path:
    return control_plane.apiserver.log


@pytest.fixture(scope="module")
def served(adapter: Server, log: Path) -> int:
    """How long the API server's log was when we were Available."""
    return log.stat().st_size


def discovered(cluster: ControlPlane, group: str = GROUP) -> dict[str, Any]:
    """The API server's own list of everything, as far as it is about `group`: by version."""
    reply = cluster.admin.request("GET", "/apis", accept=EVERYTHING)
    assert reply.headers["Content-Type"] == EVERYTHING
    groups = {each["metadata"]["name"]: each for each in reply.document["items"]}
    versions = groups.get(group, {}).get("versions", ())
    return {each["version"]: each for each in versions if each.get("resources")}


def described(cluster: ControlPlane, path: str) -> dict[str, Any]:
    """The paths of one of the API server's OpenAPI documents that are ours."""
    paths = cluster.admin.get(path)["paths"]
    return {key: paths[key] for key in paths if GROUP in key}


@pytest.fixture(scope="module")
def shown(control_plane: ControlPlane, adapter: Server, served: int) -> ControlPlane:
    """The cluster, once its API server has read all that we say of ourselves."""
    for name in adapter.api_services:
        # Whoever reads documents failed before we were there, and would try again in a minute.
        control_plane.kubectl("annotate", "apiservice", name, "tests/touched=true")
    for group, versions in {GROUP: 2, EXTERNAL: 1}.items():
        wait_for(
            lambda group=group, versions=versions: (
                len(discovered(control_plane, group)) == versions
            ),
            f"every version of {group} has resources",
            seconds=70,
        )
    for path in ("/openapi/v2", "/openapi/v3"):
        wait_for(lambda path=path: described(control_plane, path), f"{path} has ours", seconds=70)
    return control_plane


def test_the_clusters_discovery_lists_metrics_as_subresources(shown: ControlPlane) -> None:
    for version, listed in discovered(shown).items():
        resources = {each["resource"]: each for each in listed["resources"]}
        assert listed["freshness"] == "Current"
        assert resources["pods"]["scope"] == "Namespaced"
        assert resources["namespaces"]["scope"] == "Cluster"
        assert {
            "subresource": "duty_cycle_current",
            "responseKind": {"group": GROUP, "version": version, "kind": "MetricValueList"},
            "verbs": ["get"],
        } in resources["pods"]["subresources"]


def test_kubectl_finds_every_resource_that_it_found_without_us(shown: ControlPlane) -> None:
    names = shown.kubectl("api-resources", "--output=name", "--cached=false").split()

    assert {"pods", "deployments.apps", "horizontalpodautoscalers.autoscaling"} <= set(names)
    assert not [name for name in names if GROUP in name]
    assert f"queue_length.{EXTERNAL}" in names
    assert {f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"} <= set(shown.kubectl("api-versions").split())


def test_the_clusters_swagger_has_our_paths_and_none_of_its_own_definitions_twice(
    shown: ControlPlane,
) -> None:
    document = shown.admin.get("/openapi/v2")

    paths = [path for path in document["paths"] if GROUP in path]
    assert {path.split("/")[3] for path in paths} == {"v1beta1", "v1beta2"}
    assert document["definitions"][f"{PACKAGE}.v1beta2.MetricValueList"][KIND] == [
        {"group": GROUP, "version": "v1beta2", "kind": "MetricValueList"}
    ]
    # The API server gives such a name to a definition that differs from its own of that name.
    assert not [name for name in document["definitions"] if name.endswith("_v2")]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_clusters_openapi_index_leads_to_our_documents(
    shown: ControlPlane, version: str
) -> None:
    entry = described(shown, "/openapi/v3")[f"apis/{GROUP}/{version}"]

    reply = shown.admin.request("GET", entry["serverRelativeURL"])

    schemas = reply.document["components"]["schemas"]
    assert reply.status == 200
    assert "immutable" in reply.headers["Cache-Control"]
    assert schemas[f"{PACKAGE}.{version}.MetricValueList"][KIND][0]["version"] == version


def test_the_api_servers_own_documents_stay_its_own(shown: ControlPlane) -> None:
    index = shown.admin.get("/openapi/v3")["paths"]

    for key in ("apis", "version", "api/v1"):
        document = shown.admin.get(index[key]["serverRelativeURL"])
        assert document["info"]["title"] == "Kubernetes"


@pytest.mark.parametrize("output", ["plaintext", "plaintext-openapiv2"])
@pytest.mark.parametrize(
    ("resource", "says"),
    [("pods.spec.nodeName", "<string>"), ("deployments", "declarative updates")],
)
def test_kubectl_explains_other_resources(
    shown: ControlPlane, resource: str, says: str, output: str
) -> None:
    assert says in shown.kubectl("explain", resource, f"--output={output}")


def test_kubectl_says_that_a_metric_of_pods_is_no_resource(shown: ControlPlane) -> None:
    with pytest.raises(RuntimeError, match="not found in OpenAPI schema"):
        shown.kubectl("explain", "pods", f"--api-version={GROUP}/v1beta1")


def test_who_may_only_discover_may_read_what_we_say_of_ourselves(shown: ControlPlane) -> None:
    stranger = shown.user("stranger")
    url = described(shown, "/openapi/v3")[f"apis/{GROUP}/v1beta1"]["serverRelativeURL"]

    assert stranger.get(url)["openapi"] == "3.0.0"
    assert stranger.get(f"/apis/{GROUP}/v1beta1")["resources"]
    with pytest.raises(RefusedError):
        shown.client().get(url)


def test_kubectl_explains_an_external_metric(shown: ControlPlane) -> None:
    told = shown.kubectl(
        "explain", "queue_length", f"--api-version={EXTERNAL}/v1beta1", *OLD_EXPLANATION
    )

    assert "ExternalMetricValueList" in told


def test_the_api_server_has_no_complaint(
    shown: ControlPlane, adapter: Server, served: int, log: Path
) -> None:
    said = log.read_bytes()[served:].decode().splitlines()

    # Lines without a mark of their own go on with an error of several lines.
    wrong = [line for line in said if not line.startswith("I")]
    ours = [line for line in wrong if any(each in line.lower() for each in COMPLAINTS)]
    assert all(shown.available(name)[0] for name in adapter.api_services)
    about_us = [line for line in ours if not any(each in line for each in UNREACHED)]
    assert [line for line in about_us if not LEFT.search(line)] == []
