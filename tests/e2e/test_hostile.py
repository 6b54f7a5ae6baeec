"""Pods of a team that nobody trusts, which the Prometheus in the adapter's pods scrapes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rules import metrics_apis
from tests.e2e.test_defaults import execute, restarts
from tests.e2e.test_embedded import EMBEDDED, LOAD, REPLICAS, scaled, sidecars
from tools import documents
from tools.control_plane.client import RefusedError
from tools.documents import Document
from tools.e2e import installation
from tools.e2e.installation import LOAD_OF_ONE, NAMESPACE, PATH, Cluster
from tools.workload import hostile, objects

TEAM = "mallory"
PICKER: Mapping[str, Any] = {"labels": {"inferencepool": "pool-epp"}, "port": 9090}
"""A pod as those whose pages get a token in `tokenNamespaces`."""
PORTS = 10_000
SECONDS = 60.0
_GET = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9090{}').read().decode())"


def server(name: str, page: str, victim: str, *, port: int = 8000, **metadata: object) -> Document:
    """Return a pod with a page of `hostile`, by default annotated as a model server."""
    container = objects.idle("main", image=installation.image())
    python, option, _ = container["command"]
    text = Path(hostile.__file__).read_text()
    container["resources"]["limits"] = {"cpu": "100m"}
    container["command"] = [python, option, text, page, f"{port}", victim]
    container["ports"] = [{"name": "metrics", "containerPort": port}]
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = documents.new("v1", "Pod", name, TEAM, spec=spec)
    annotations = {"gpu-metrics-adapter/scrape": "inference-vllm"}
    pod["metadata"] |= metadata or {
        "annotations": annotations | {"gpu-metrics-adapter/port": f"{port}"}
    }
    return pod


def of_ports() -> Document:
    """Return a pod that looks like a model server and declares PORTS ports."""
    container = objects.idle("main", image=installation.image())
    container["ports"] = [{"containerPort": 1 + number} for number in range(PORTS)]
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    pod = documents.new("v1", "Pod", "ports", TEAM, spec=spec)
    pod["metadata"]["labels"] = {"model.aibrix.ai/name": "m"}
    return pod


@pytest.fixture
def attacked(cluster: Cluster) -> Iterator[Cluster]:
    """Cluster with the chart, and a namespace for hostile pods."""
    cluster.install({"prometheus": {"embedded": EMBEDDED}})
    cluster.kubectl("create", "namespace", TEAM)
    cluster.settled()
    for name in metrics_apis.CUSTOM.apiservices:
        cluster.wait_available(name)
    cluster.wait(lambda: answers(cluster), "both replicas have values")
    yield cluster
    cluster.kubectl("delete", "namespace", TEAM)
    cluster.set_load(LOAD_OF_ONE)
    cluster.uninstall()


def answers(cluster: Cluster) -> bool:
    """Return whether ten requests, which reach both pods, get values."""
    try:
        return all(cluster.client.get(PATH)["items"] for _ in range(10))
    except RefusedError:
        return False


def create(cluster: Cluster, pods: Sequence[Document]) -> None:
    """Create pods; `kubectl apply` would write them into an annotation, which has a limit."""
    cluster.kubectl("create", "--filename=-", text=yaml.safe_dump_all(pods), namespace=TEAM)


def get(cluster: Cluster, path: str) -> Any:
    """Return the answer of the Prometheus in the first pod of the adapter."""
    return json.loads(execute(cluster, _GET.format(path)))["data"]


def targets(cluster: Cluster) -> Mapping[str, str]:
    """Return each hostile pod that was scraped with the error of its scrape, "" for none."""
    found = get(cluster, "/api/v1/targets?state=active")["activeTargets"]
    return {
        each["labels"]["pod"]: each["lastError"]
        for each in found
        if each["labels"].get("namespace") == TEAM and each["health"] != "unknown"
    }


def requests(log: str) -> list[str]:
    """Return the path and the Authorization header of each request, without tracebacks."""
    return [line for line in log.splitlines() if line.startswith("/")]


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_peak(process: int) -> int:
    """Return the largest resident memory of a process, in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10


def test_hostile_pods_harm_only_themselves(attacked: Cluster, report) -> None:
    (victim,) = attacked.pods(f"app={objects.APP}")
    name = f"{NAMESPACE}/{victim['metadata']['name']}"
    exporter = {"app.kubernetes.io/name": objects.EXPORTER}
    create(
        attacked,
        [
            *(server(page, page, name) for page in hostile.PAGES),
            server("exporter", "forged", name, port=9400, labels=exporter),
            server("picker", "forged", name, **PICKER),
            of_ports(),
        ],
    )
    attacked.kubectl(
        "wait", "pod/picker", "--for=condition=Ready", "--timeout=180s", namespace=TEAM
    )
    picker = attacked.kubectl(
        "get", "pod/picker", "--output=jsonpath={.status.podIP}", namespace=TEAM
    )
    create(attacked, [server("redirect", hostile.REDIRECT, f"{picker}:9090", **PICKER)])
    scraped = {*hostile.PAGES, "picker", "redirect", "ports"}
    seconds = attacked.wait(lambda: targets(attacked).keys() >= scraped, "all are scraped")

    processes = sidecars(attacked)
    cpu, started = [*map(cpu_seconds, processes)], time.monotonic()
    with attacked.probing(interval=0.5) as probe:
        out = scaled(attacked, LOAD, REPLICAS)
        time.sleep(max(0.0, SECONDS - (time.monotonic() - started)))

    errors = targets(attacked)
    query = (
        'count by (__name__,namespace,exporter_pod) ({__name__=~"vllm:.*|DCGM_FI_DEV_GPU_UTIL"})'
    )
    series = get(attacked, f"/api/v1/query?query={query.replace(' ', '+')}")["result"]
    logs = {
        each: requests(attacked.kubectl("logs", each, "--tail=-1", namespace=TEAM))
        for each in ("exporter", *(scraped - {"ports"}))
    }
    used = [after - before for before, after in zip(cpu, map(cpu_seconds, processes), strict=True)]
    peaks = [memory_peak(each) for each in processes]
    report(
        f"scraped after {seconds:.0f} s, {REPLICAS} replicas after {out:.0f} s; {probe}; "
        f"in the sidecars {used} s of CPU time, peaks of {peaks} MiB; {errors}; {series}"
    )
    assert (probe.failed, probe.lost_syncs) == (0, 0)
    assert restarts(attacked) == 0
    assert "exporter" not in errors
    for each in ("huge", "endless", "redirect", "ports"):
        assert errors[each]
    for each in ("forged", "labels", "future", "churn", "picker"):
        assert not errors[each]
    for each in series:
        of = each["metric"]
        if of["__name__"].startswith("vllm"):
            assert of["namespace"] == TEAM
        else:
            assert of["exporter_pod"].startswith(objects.EXPORTER)
    assert {name for name, lines in logs.items() if not lines} == {"exporter"}
    assert {line for lines in logs.values() for line in lines} == {"/metrics None"}
