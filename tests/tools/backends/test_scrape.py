"""Generated configurations in Prometheus 3, which discovers the pods of a real API server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tools import embedded, http_server
from tools.backends import programs
from tools.cluster import kubelet
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.plane import ControlPlane
from tools.http_server import METRICS, Answer
from tools.real import prometheus
from tools.workload.page import stamped

PAGES = {
    ("127.9.0.1", 8000): 'vllm:num_requests_running{model_name="m",pod="x",namespace="y"} 4\n',
    ("127.9.0.2", 8200): 'vllm:num_requests_running{model_name="m"} 5\n',
    ("127.9.0.3", 9400): 'DCGM_FI_DEV_GPU_UTIL{UUID="u",pod="llm-0",namespace="serving"} 6\n',
}
"""Address -> the page; each pod has a loopback address of its own."""
DCGM = "nvcr.io/nvidia/k8s/dcgm-exporter:4.8.2"
MODEL_SERVER = {
    "name": "modelserver",
    "image": "own",
    "ports": [{"name": "modelserver", "containerPort": 8200}],
}
PROXY = {
    "name": "routing-proxy",
    "image": "own",
    "ports": [{"containerPort": 8000}],
    "restartPolicy": "Always",
}
PODS: Mapping[tuple[str, str], tuple[str, Mapping[str, Any], Mapping[str, str]]] = {
    ("serving", "llm-0"): (
        "127.9.0.1",
        {"containers": [{"name": "vllm", "image": "vllm/vllm-openai:v0.18.0"}]},
        {},
    ),
    ("serving", "decode-0"): (
        "127.9.0.2",
        {"containers": [MODEL_SERVER], "initContainers": [PROXY]},
        {"llm-d.ai/role": "decode"},
    ),
    ("gpu-operator", "dcgm"): ("127.9.0.3", {"containers": [{"name": "dcgm", "image": DCGM}]}, {}),
    ("serving", "forged"): ("127.9.0.3", {"containers": [{"name": "dcgm", "image": DCGM}]}, {}),
}
"""Namespace and name -> address, containers and labels."""


@pytest.fixture(scope="module")
def pods(control_plane: ControlPlane) -> Iterator[None]:
    """Create the pods, as running on a node that does not exist."""
    namespaces = {namespace for namespace, _ in PODS}
    for namespace in namespaces:
        control_plane.kubectl("create", "namespace", namespace)
        account = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        prometheus.wait_for(lambda at=account: control_plane.admin.get(at)["items"], "an account")
    try:
        for (namespace, name), (ip, spec, labels) in PODS.items():
            path = f"/api/v1/namespaces/{namespace}/pods"
            pod = {
                "metadata": {"name": name, "labels": labels},
                "spec": {"nodeName": "node-1", **spec},
            }
            created = control_plane.admin.call("POST", path, pod)
            status = {**kubelet.running_status(created), "podIP": ip, "podIPs": [{"ip": ip}]}
            control_plane.admin.call(
                "PATCH", f"{path}/{name}/status", {"status": status}, content_type=MERGE_PATCH
            )
        yield
    finally:
        for namespace in namespaces:
            control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
        for namespace, name in PODS:
            control_plane.kubectl("-n", namespace, "delete", "pod", name, "--force", "--wait=false")


@pytest.mark.usefixtures("pods")
@pytest.mark.parametrize("minimal", [False, True])
def test_prometheus_3_discovers_and_scrapes_what_the_jobs_say(
    control_plane: ControlPlane, tmp_path: Path, *, minimal: bool
) -> None:
    program = prometheus_3()
    config = embedded.local(
        control_plane.kubeconfig, interval=1, trusted=["gpu-operator"], minimal=minimal
    )

    with ExitStack() as stack:
        for (host, port), text in PAGES.items():
            stack.enter_context(http_server.serving(page(text), host=host, port=port))
        server = stack.enter_context(prometheus.run(tmp_path, config, program=program))
        query = '{__name__=~"vllm:num_requests_running|DCGM_FI_DEV_GPU_UTIL"}'
        prometheus.wait_for(lambda: len(server.query(query)) >= len(PAGES), "3 series", seconds=60)
        series = [each["metric"] for each in server.query(query)]
        targets = server.get("/api/v1/targets", state="active")["activeTargets"]

    assert len(targets) == len(PAGES)
    assert {each["health"] for each in targets} == {"up"}
    of = {each.pop("instance"): each for each in series}
    server_labels = {"__name__": "vllm:num_requests_running", "model_name": "m", "node": "node-1"}
    server_labels |= {"namespace": "serving", "job": "inference-vllm"}
    assert of == {
        "127.9.0.1:8000": {
            **server_labels,
            "pod": "llm-0",
            "container": "vllm",
            "exported_pod": "x",
            "exported_namespace": "y",
        },
        "127.9.0.2:8200": {**server_labels, "pod": "decode-0", "container": "modelserver"},
        "127.9.0.3:9400": {
            "__name__": "DCGM_FI_DEV_GPU_UTIL",
            "UUID": "u",
            "job": "gpu-dcgm",
            "node": "node-1",
            "exporter_pod": "dcgm",
            "namespace": "serving",
            "pod": "llm-0",
        },
    }


@pytest.mark.usefixtures("pods")
def test_a_series_with_timestamps_of_its_own_ends_with_its_page(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = embedded.local(
        control_plane.kubeconfig, interval=1, trusted=["gpu-operator"], minimal=True
    )
    series, (host, port) = "DCGM_FI_DEV_GPU_UTIL", ("127.9.0.3", 9400)
    text = f'{series}{{UUID="u",pod="llm-0",namespace="serving"}} 6 NOW-1\n'
    pages = ExitStack()
    with pages, prometheus.run(tmp_path, config, program=prometheus_3()) as server:
        pages.enter_context(http_server.serving(page(text), host=host, port=port))
        prometheus.wait_for(lambda: server.query(series), "a series")
        pages.close()
        # Without tracking it would stay for five minutes.
        prometheus.wait_for(lambda: not server.query(series), "it ended")


def prometheus_3() -> Path:
    program = programs.find(programs.PROMETHEUS_3)
    if program is None:
        pytest.skip(programs.missing(programs.PROMETHEUS_3))
    return program


def page(text: str) -> Callable[[BaseHTTPRequestHandler, bytes], Answer]:
    def answer(request: BaseHTTPRequestHandler, _: bytes) -> Answer:
        return (
            (200, METRICS, stamped(text).encode())
            if request.path == "/metrics"
            else (404, METRICS, b"")
        )

    return answer
