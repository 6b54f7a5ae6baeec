"""Discovery and OpenAPI documents of the cluster, merged by a real aggregator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.cluster import server
from tools.cluster.server import Server
from tools.control_plane.client import RefusedError
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus
from tools.real.prometheus import wait_for

GROUP, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"
EVERYTHING = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
PACKAGE = "io.k8s.metrics.pkg.apis.custom_metrics"
OLD_EXPLANATION = ("--output=plaintext-openapiv2",)
"""The newer format searches for a path with the resource, which is a parameter in our paths."""
KIND = "x-kubernetes-group-version-kind"
COMPLAINTS = ("openapi", "discovery", "metrics.k8s.io")
"""Words in warnings and errors of the API server that concern the adapter."""
NOT_YET_FORWARDED = ("Body: service unavailable", "could not get list of group versions")
"""Logged until the API server forwards requests to an APIService that became Available."""
DISCONNECTED = re.compile(r"(Timeout or abort while|Post-timeout activity).*/openapi/v[23]\b")
"""Logged if a client of the API server disconnects before the response."""


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
    """The program, with a metric of pods and an external metric without series."""
    folder = tmp_path_factory.mktemp("server")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with prometheus.run(folder) as scraped, server.installed(control_plane):
        scraped.put('DCGM_FI_DEV_GPU_UTIL{UUID="u",namespace="default",pod="bert-0"} 22')
        flags = (f"--prometheus-url={scraped.url}", "--preset=gpu-dcgm", f"--config={rules}")
        process = Server(control_plane, folder / "server.log", flags)
        try:
            process.start()
            yield process
        finally:
            process.stop()


@pytest.fixture(scope="module")
def log(control_plane: ControlPlane) -> Path:
    return control_plane.apiserver.log


@pytest.fixture(scope="module")
def served(adapter: Server, log: Path) -> int:
    """Size of the API server's log in bytes when the adapter became Available."""
    return log.stat().st_size


def discovered(cluster: ControlPlane, group: str = GROUP) -> dict[str, Any]:
    """Return the versions of `group` in the aggregated discovery of the API server."""
    reply = cluster.admin.request("GET", "/apis", accept=EVERYTHING)
    assert reply.headers["Content-Type"] == EVERYTHING
    groups = {each["metadata"]["name"]: each for each in reply.document["items"]}
    versions = groups.get(group, {}).get("versions", ())
    return {each["version"]: each for each in versions if each.get("resources")}


def described(cluster: ControlPlane, path: str) -> dict[str, Any]:
    """Return the adapter's paths in an OpenAPI document of the API server."""
    paths = cluster.admin.get(path)["paths"]
    return {key: paths[key] for key in paths if GROUP in key}


@pytest.fixture(scope="module")
def published(control_plane: ControlPlane, adapter: Server, served: int) -> ControlPlane:
    """The cluster, once its API server has read the adapter's documents."""
    for name in adapter.api_services:
        # The API server failed to read the documents earlier, and would retry after a minute.
        control_plane.kubectl("annotate", "apiservice", name, "tests/touched=true")
    for group, versions in {GROUP: 2, EXTERNAL: 1}.items():
        wait_for(
            lambda group=group, versions=versions: (
                len(discovered(control_plane, group)) == versions
            ),
            f"every version of {group} has resources",
        )
    for path in ("/openapi/v2", "/openapi/v3"):
        wait_for(lambda path=path: described(control_plane, path), f"{path} has ours")
    return control_plane


def test_the_clusters_discovery_lists_metrics_as_subresources(published: ControlPlane) -> None:
    for version, listed in discovered(published).items():
        resources = {each["resource"]: each for each in listed["resources"]}
        assert listed["freshness"] == "Current"
        assert resources["pods"]["scope"] == "Namespaced"
        assert resources["namespaces"]["scope"] == "Cluster"
        assert {
            "subresource": "duty_cycle_current",
            "responseKind": {"group": GROUP, "version": version, "kind": "MetricValueList"},
            "verbs": ["get"],
        } in resources["pods"]["subresources"]


def test_kubectl_lists_the_resources_of_the_cluster_and_of_the_adapter(
    published: ControlPlane,
) -> None:
    names = published.kubectl("api-resources", "--output=name", "--cached=false").split()

    assert {"pods", "deployments.apps", "horizontalpodautoscalers.autoscaling"} <= set(names)
    assert not [name for name in names if GROUP in name]
    assert f"queue_length.{EXTERNAL}" in names
    assert {f"{GROUP}/v1beta1", f"{GROUP}/v1beta2"} <= set(
        published.kubectl("api-versions").split()
    )


def test_the_openapi_v2_document_has_our_paths_and_no_conflicting_definition(
    published: ControlPlane,
) -> None:
    document = published.admin.get("/openapi/v2")

    paths = [path for path in document["paths"] if GROUP in path]
    assert {path.split("/")[3] for path in paths} == {"v1beta1", "v1beta2"}
    assert document["definitions"][f"{PACKAGE}.v1beta2.MetricValueList"][KIND] == [
        {"group": GROUP, "version": "v1beta2", "kind": "MetricValueList"}
    ]
    # The API server renames a definition that differs from its own to NAME_v2.
    assert not [name for name in document["definitions"] if name.endswith("_v2")]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_the_openapi_v3_index_links_to_our_documents(published: ControlPlane, version: str) -> None:
    entry = described(published, "/openapi/v3")[f"apis/{GROUP}/{version}"]

    reply = published.admin.request("GET", entry["serverRelativeURL"])

    schemas = reply.document["components"]["schemas"]
    assert reply.status == 200
    assert "immutable" in reply.headers["Cache-Control"]
    assert schemas[f"{PACKAGE}.{version}.MetricValueList"][KIND][0]["version"] == version


def test_the_documents_of_the_api_server_do_not_change(published: ControlPlane) -> None:
    index = published.admin.get("/openapi/v3")["paths"]

    for key in ("apis", "version", "api/v1"):
        document = published.admin.get(index[key]["serverRelativeURL"])
        assert document["info"]["title"] == "Kubernetes"


@pytest.mark.parametrize("output", ["plaintext", "plaintext-openapiv2"])
@pytest.mark.parametrize(
    ("resource", "words"),
    [("pods.spec.nodeName", "<string>"), ("deployments", "declarative updates")],
)
def test_kubectl_explains_other_resources(
    published: ControlPlane, resource: str, words: str, output: str
) -> None:
    assert words in published.kubectl("explain", resource, f"--output={output}")


def test_kubectl_explain_does_not_find_a_metric_of_pods(published: ControlPlane) -> None:
    with pytest.raises(RuntimeError, match="not found in OpenAPI schema"):
        published.kubectl("explain", "pods", f"--api-version={GROUP}/v1beta1")


def test_every_authenticated_user_may_read_discovery_and_openapi(published: ControlPlane) -> None:
    stranger = published.user("stranger")
    url = described(published, "/openapi/v3")[f"apis/{GROUP}/v1beta1"]["serverRelativeURL"]

    assert stranger.get(url)["openapi"] == "3.0.0"
    assert stranger.get(f"/apis/{GROUP}/v1beta1")["resources"]
    with pytest.raises(RefusedError):
        published.client().get(url)


def test_kubectl_explains_an_external_metric(published: ControlPlane) -> None:
    output = published.kubectl(
        "explain", "queue_length", f"--api-version={EXTERNAL}/v1beta1", *OLD_EXPLANATION
    )

    assert "ExternalMetricValueList" in output


def test_the_api_server_logs_no_problem_with_the_adapter(
    published: ControlPlane, adapter: Server, served: int, log: Path
) -> None:
    lines = log.read_bytes()[served:].decode().splitlines()

    # Lines without a severity continue an error of several lines.
    problems = [line for line in lines if not line.startswith("I")]
    ours = [line for line in problems if any(each in line.lower() for each in COMPLAINTS)]
    for name in adapter.api_services:
        published.wait_available(name)
    about_us = [line for line in ours if not any(each in line for each in NOT_YET_FORWARDED)]
    assert [line for line in about_us if not DISCONNECTED.search(line)] == []
