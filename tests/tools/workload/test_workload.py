"""Objects of the workload on a real API server, and the pages of its exporter."""

from __future__ import annotations

import yaml

from tools.workload import exporter, objects

DEPLOYMENT = {"metadata": {"name": objects.APP, "annotations": {objects.LOAD: "60"}}}


def pod(name, node="node-a", *, ready=True, containers=("server",)):
    """Return what the API server says of a pod."""
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": name, "namespace": "e2e"},
        "spec": {"nodeName": node, "containers": [{"name": each} for each in containers]},
        "status": {"conditions": [condition]},
    }


def test_ready_pods_share_the_load():
    pods = [pod("b", "node-b"), pod("starting", ready=False), pod("a"), {"status": {}}]

    (only,) = exporter.readings("node-a", pods, DEPLOYMENT)

    gpu, reading = only
    assert (gpu.pod.name, gpu.pod.namespace, reading.utilization) == ("a", "e2e", 30)


def test_each_container_has_a_gpu_that_is_busy_at_most():
    pods = [pod("a", containers=("server", "cache"))]
    heavy = {"metadata": {"name": objects.APP, "annotations": {objects.LOAD: "900"}}}

    found = [
        (gpu.index, gpu.pod.container, reading.utilization)
        for gpu, reading in exporter.readings("node-a", pods, heavy)
    ]

    assert found == [(0, "server", 100), (1, "cache", 100)]


def test_the_page_of_a_node():
    page = exporter.node_page(
        "cpu  9 9 9 9\ncpu0 100 0 50 700 1 0 0 0 0 0\nintr 5",
        "MemTotal:  2 kB\nMemFree:  1 kB\nMemAvailable:  1 kB\nHugePages_Total:  0",
    )

    assert 'node_cpu_seconds_total{cpu="0",mode="idle"} 7.0' in page
    assert page.splitlines()[-2:] == [
        "node_memory_MemTotal_bytes 2048",
        "node_memory_MemAvailable_bytes 1024",
    ]


def test_the_api_server_accepts_all_objects(control_plane):
    found = [
        *objects.prometheus("default"),
        *objects.gpus("default", image="adapter"),
        *objects.app("default", image="adapter", load=15),
    ]

    output = control_plane.kubectl(
        *("apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"),
        text=yaml.safe_dump_all(found),
    )

    assert output.count("(server dry run)") == len(found)
