"""A Prometheus in each pod of the adapter: as the only one, and beside another one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rules import metrics_apis
from rules.document import sources
from tools import documents
from tools.cluster import hpa
from tools.control_plane.client import RefusedError
from tools.e2e import installation
from tools.e2e.installation import LOAD_OF_ONE, METRIC, NAMESPACE, PATH, Cluster
from tools.workload import objects

EMBEDDED = {
    "enabled": True,
    "image": {"tag": objects.PROMETHEUS_IMAGE.rpartition(":")[2], "digest": ""},
}
LOAD, REPLICAS = 100, 5
"""100 % of a GPU need five replicas at 20 % each."""
OTHER, OTHER_REPLICAS = "other", 2
"""Deployment with an HPA on RULE, and its replicas at LOAD, which are all that it may have."""
RULE = {
    "seriesQuery": 'DCGM_FI_DEV_GPU_UTIL{exported_namespace!=""}',
    "resources": {"overrides": {"exported_namespace": {"resource": "namespace"}}},
    "name": {"as": "load_of_e2e"},
    "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}
"""A rule of no preset, which reads `prometheus.url`."""
OVER_TIME = "duty_cycle_over_time"
"""A metric whose query reads three minutes."""
_OBSERVE = """
import ssl, sys, time, urllib.error, urllib.request
end, headers = time.time() + float(sys.argv[1]), {"Authorization": f"Bearer {sys.argv[2]}"}
while time.time() < end:
    for path in sys.argv[3:]:
        request = urllib.request.Request(f"https://127.0.0.1:6443{path}", headers=headers)
        try:
            context = ssl._create_unverified_context()
            answer = urllib.request.urlopen(request, context=context, timeout=20)
        except urllib.error.HTTPError as error:
            answer = error
        except OSError:  # it does not listen yet
            continue
        print(path, answer.read().decode().strip())
    time.sleep(1)
"""
"""Program in a pod of the adapter that sends it requests for some seconds."""


@pytest.fixture
def adapter(cluster: Cluster) -> Iterator[Cluster]:
    """Cluster in which the test installs the chart."""
    yield cluster
    cluster.kubectl("delete", "--ignore-not-found", "deployment,hpa", OTHER)
    scale_prometheus(cluster, 1)
    cluster.set_load(LOAD_OF_ONE)
    cluster.uninstall()


def scale_prometheus(cluster: Cluster, replicas: int) -> None:
    """Let the Prometheus of the cluster run, or not."""
    cluster.kubectl("scale", f"deployment/{objects.PROMETHEUS}", f"--replicas={replicas}")
    cluster.wait(
        lambda: len(cluster.pods(f"app={objects.PROMETHEUS}")) == replicas,
        f"there are {replicas} pods of Prometheus",
    )
    cluster.rolled_out("deployment", objects.PROMETHEUS)


def scaled(cluster: Cluster, load: float, replicas: int) -> float:
    """Set a load; return the seconds until the HPA has the replicas for it."""
    cluster.set_load(load)
    return cluster.wait(
        lambda: cluster.hpa().current_replicas == replicas, f"there are {replicas} replicas"
    )


def sidecars(cluster: Cluster) -> list[int]:
    """Return the processes of the Prometheus in the pods, if they run on this machine."""
    uids = [each["metadata"]["uid"] for each in cluster.pods()]
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may have ended
            arguments = (each / "cmdline").read_text().split("\0")
            if "--web.listen-address=127.0.0.1:9090" in arguments:
                cgroups = (each / "cgroup").read_text()
                found += [int(each.name) for uid in uids if uid in cgroups]
    return found


def other_hpa(cluster: Cluster) -> hpa.Hpa:
    """Return the HPA on RULE."""
    return hpa.read(cluster.client, OTHER, NAMESPACE)


def add_other(cluster: Cluster) -> None:
    """Create the Deployment OTHER with its HPA."""
    idle = objects.idle("idle", image=installation.image())
    metric = documents.object_metric(RULE["name"]["as"], "v1", "Namespace", NAMESPACE, "60")
    cluster.apply(
        [
            documents.workload("Deployment", OTHER, {"containers": [idle]}, NAMESPACE),
            documents.hpa(OTHER, metric, namespace=NAMESPACE, maxReplicas=OTHER_REPLICAS),
        ]
    )


def replace_pod(cluster: Cluster) -> str:
    """Delete a pod of the adapter; return the name of its successor, which has been created."""
    before = {each["metadata"]["name"] for each in cluster.pods()}
    cluster.kubectl("delete", "pod", min(before), "--wait=false")

    def successors() -> set[str]:
        return {each["metadata"]["name"] for each in cluster.pods()} - before

    cluster.wait(successors, "the pod has a successor")
    (name,) = successors()
    return name


def observe(
    cluster: Cluster, pod: str, seconds: int
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Request METRIC and OVER_TIME of a pod of the adapter for some seconds, once it runs.

    Returns the different values of each in their order, "" for none, and the last message that
    says why it has no value.
    """
    paths = {PATH: METRIC, PATH.replace(METRIC, OVER_TIME): OVER_TIME}
    values: dict[str, list[str]] = {METRIC: [], OVER_TIME: []}
    messages: dict[str, str] = {}

    def running() -> bool:
        (found,) = (each for each in cluster.pods() if each["metadata"]["name"] == pod)
        return any(
            "running" in each["state"] for each in found["status"].get("containerStatuses", ())
        )

    cluster.wait(running, f"{pod} runs")
    token = cluster.kubectl("create", "token", installation.ACCOUNT).strip()
    command = ("exec", pod, "--", "python", "-c", _OBSERVE, f"{seconds}", token, *paths)
    for line in cluster.kubectl(*command).splitlines():
        path, _, text = line.partition(" ")
        document = json.loads(text)
        if document["kind"] == "Status":
            messages[paths[path]] = document["message"]
        of = values[paths[path]]
        found = ",".join(sorted({each["value"] for each in document.get("items", ())}))
        of += [found] if [found] != of[-1:] else []
    return values, messages


def read(cluster: Cluster, *, embedded: bool) -> bool:
    """Return whether ten requests, which reach both pods, read METRIC from the embedded one."""
    for _ in range(10):
        try:
            found = json.dumps(cluster.client.get(f"{PATH}&explain=true"))
        except RefusedError:  # on a busy machine, a review may take too long
            return False
        if (f'"source": "{sources.EMBEDDED}"' in found) is not embedded:
            return False
    return True


def test_as_the_only_one(adapter: Cluster, report) -> None:
    scale_prometheus(adapter, 0)
    started = time.monotonic()

    adapter.install({"prometheus": {"embedded": EMBEDDED}})
    adapter.wait(adapter.has_metric, "the HPA has its metric")
    seconds = time.monotonic() - started
    out = scaled(adapter, LOAD, REPLICAS)

    report(f"the HPA has its metric after {seconds:.1f} s, and {REPLICAS} replicas {out:.0f} s")
    assert adapter.get("deployment", objects.PROMETHEUS)["spec"]["replicas"] == 0


def test_one_of_two_away(adapter: Cluster, report) -> None:
    """HPAs on presets read the one that is there; a replica that starts meanwhile does, too."""
    values = {"prometheus": {"url": objects.url(NAMESPACE), "embedded": EMBEDDED}}
    adapter.install(values | {"rules": {"default": False, "custom": [RULE]}})
    add_other(adapter)
    adapter.settled()
    for name in metrics_apis.CUSTOM.apiservices:
        adapter.wait_available(name)
    taken = adapter.wait(lambda: read(adapter, embedded=True), "presets read the embedded one")
    adapter.wait(
        lambda: other_hpa(adapter).metrics != [hpa.UNKNOWN], "the other HPA has its metric"
    )

    scale_prometheus(adapter, 0)
    new_without_given, reasons = observe(adapter, replace_pod(adapter), 45)
    lost = adapter.lost_syncs()
    out = scaled(adapter, LOAD, REPLICAS)
    without_given = adapter.lost_syncs() - lost
    kept = other_hpa(adapter)
    scale_prometheus(adapter, 1)
    other_back = adapter.wait(
        lambda: other_hpa(adapter).current_replicas == OTHER_REPLICAS, "the other HPA scales"
    )
    if not (processes := sidecars(adapter)):
        pytest.skip("the pods run on another machine")
    for each in processes:
        os.kill(each, signal.SIGSTOP)
    try:
        left = adapter.wait(lambda: read(adapter, embedded=False), "presets read the given one")
        back = scaled(adapter, LOAD_OF_ONE, 1)
        successor = replace_pod(adapter)
        adapter.wait(lambda: {*sidecars(adapter)} - {*processes}, "its Prometheus starts")
        (started,) = {*sidecars(adapter)} - {*processes}
        os.kill(started, signal.SIGSTOP)
        processes.append(started)
        new_without_embedded, _ = observe(adapter, successor, 20)
    finally:
        for each in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
    again = adapter.wait(lambda: read(adapter, embedded=True), "presets read the embedded one")

    report(
        f"presets read the embedded one after {taken:.0f} s; without the given one, {REPLICAS} "
        f"replicas after {out:.0f} s, {without_given} syncs without a value; the other HPA scales "
        f"{other_back:.0f} s after its return; without the embedded ones, presets read the given "
        f"one after {left:.0f} s, 1 replica {back:.0f} s later, the embedded ones {again:.0f} s "
        f"after their return; values of new replicas: {new_without_given}, {new_without_embedded}"
    )
    report(f"without the given one: {kept.condition('ScalingActive').message}; {reasons}")
    assert without_given == 0
    assert kept.current_replicas == 1
    assert "Prometheus" in kept.condition("ScalingActive").message
    assert new_without_given == {METRIC: ["", f"{LOAD_OF_ONE}"], OVER_TIME: [""]}
    assert reasons.keys() == {METRIC, OVER_TIME}
    assert new_without_embedded[METRIC] == [f"{LOAD_OF_ONE}"]
