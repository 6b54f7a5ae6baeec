"""The chart's defaults hold: Pod Security, probes, requests and limits, the disruption budget."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import urllib.parse
from pathlib import Path

import pytest

from tools.control_plane.client import RefusedError, is_true
from tools.e2e.installation import NAMESPACE, Cluster
from tools.workload import objects

_INSPECT = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/1/status").read().splitlines())
try:
    open("/opt/new", "w")
    root = "writable"
except OSError as error:
    root = os.strerror(error.errno)
open("/tmp/new", "w").close()
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "root": root,
    "capabilities": int(status["CapEff"], 16), "no_new_privileges": status["NoNewPrivs"],
    "seccomp": status["Seccomp"],
    "services": [each for each in os.environ if each.endswith("_SERVICE_HOST")],
    "peak_mib": int(status["VmHWM"].split()[0]) >> 10,
}))
"""
_THROTTLING = """
import pathlib
found = [*pathlib.Path("/sys/fs/cgroup").glob("cpu.stat")]
found += pathlib.Path("/sys/fs/cgroup").glob("cpu/cpu.stat")
print(*(line for line in found[0].read_text().splitlines() if "period" in line or "thrott" in line))
"""
AWAY = 30.0
"""Seconds without a server: longer than the probes need to fail, and than values are kept."""


def execute(cluster: Cluster, script: str, pod: str = "") -> str:
    """Run a script in the adapter's container of a pod, by default any; return what it prints."""
    return cluster.kubectl(
        *("exec", pod or cluster.pods()[0]["metadata"]["name"]),
        *("--container=prometheus-adapter", "--", "python", "-c", script),
    )


def inspect(cluster: Cluster, pod: str = "") -> dict[str, object]:
    """Return what a process in the adapter's container may do."""
    result: dict[str, object] = json.loads(execute(cluster, _INSPECT, pod))
    return result


def unready(cluster: Cluster, seconds: float) -> int:
    """Return in how many of the next seconds a pod of the adapter was not ready."""
    deadline, found = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        found += not all(is_true(each, "Ready") for each in cluster.pods())
        time.sleep(1)
    return found


def api_server(cluster: Cluster) -> int | None:
    """Return the process of the API server, if it runs on this machine."""
    port = f"--secure-port={urllib.parse.urlsplit(cluster.client.url).port}"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program, *arguments = (process / "cmdline").read_text().split("\0")
            if program.endswith("/kube-apiserver") and port in arguments:
                return int(process.name)
    return None


def restarts(cluster: Cluster) -> int:
    """Return how often containers of the adapter were started again."""
    return sum(
        each["restartCount"]
        for pod in cluster.pods()
        for kind in ("initContainerStatuses", "containerStatuses")
        for each in pod["status"].get(kind, ())
    )


def test_containers_are_restricted(installed: Cluster, report) -> None:
    found = inspect(installed)

    report(found)
    labels = installed.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert (found["uid"], found["gid"], found["capabilities"]) == (65532, 65532, 0)
    assert found["root"] == "Read-only file system"
    assert (found["seccomp"], found["no_new_privileges"]) == ("2", "1")
    assert found["services"] == ["KUBERNETES_SERVICE_HOST"]


def test_the_budget_keeps_a_pod(installed: Cluster, report) -> None:
    def evict(pod: str) -> int:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": NAMESPACE},
        }
        try:
            installed.client.call("POST", path, body)
        except RefusedError as error:
            return error.reply.status
        return 200

    # The budget's controller counts pods a moment after they are ready.
    installed.wait(
        lambda: installed.get("pdb", "prometheus-adapter")["status"]["disruptionsAllowed"] == 1,
        "one disruption is allowed",
    )
    found = [evict(pod["metadata"]["name"]) for pod in installed.pods()]

    report(f"evictions of both pods: {found}")
    assert found == [200, 429]
    installed.settled()


def test_prometheus_away(installed: Cluster, report) -> None:
    before, scale = restarts(installed), ("scale", f"deployment/{objects.PROMETHEUS}")
    installed.kubectl(*scale, "--replicas=0")
    seconds = unready(installed, AWAY)
    active = installed.hpa().condition("ScalingActive")
    replicas = installed.hpa().current_replicas

    installed.kubectl(*scale, "--replicas=1")
    installed.rolled_out("deployment", objects.PROMETHEUS)
    path_back = installed.wait(
        lambda: installed.hpa().condition("ScalingActive").status == "True", "the HPA is active"
    )

    report(
        f"{restarts(installed) - before} restarts, {seconds} s with an unready pod, HPA at "
        f"{replicas} replicas: {active.reason}; active {path_back:.0f} s after Prometheus is ready"
    )
    assert (restarts(installed) - before, seconds, replicas) == (0, 0, 1)


def test_api_server_away(installed: Cluster, report) -> None:
    process = api_server(installed)
    if process is None:
        pytest.skip("the API server runs on another machine")
    before = restarts(installed)
    os.kill(process, signal.SIGSTOP)
    try:
        time.sleep(AWAY)
    finally:
        os.kill(process, signal.SIGCONT)
    with installed.probing() as probe:
        seconds = unready(installed, 10)

    report(
        f"stopped for {AWAY:.0f} s: {restarts(installed) - before} restarts; in the 10 s after it "
        f"{seconds} s with an unready pod, {probe}"
    )
    assert (restarts(installed) - before, probe.failed) == (0, 0)


def test_priority_and_spread(installed: Cluster, report) -> None:
    """The chart spreads pods over nodes by default, and leaves the priority to its user."""
    installed.install({"priorityClassName": "system-cluster-critical"})
    installed.settled()

    specs = [pod["spec"] for pod in installed.pods()]
    nodes = {each["nodeName"] for each in specs}
    schedulable = [
        each for each in installed.get("nodes")["items"] if not each["spec"].get("taints")
    ]
    report(f"priority {specs[0]['priority']}, {len(specs)} pods on {len(nodes)} nodes")
    assert {each["priority"] for each in specs} == {2_000_000_000}
    assert len(nodes) == min(len(specs), len(schedulable))
    installed.install()
    installed.settled()


def test_slow_start(installed: Cluster, report) -> None:
    limits = {"resources": {"limits": {"cpu": "200m", "memory": "768Mi"}}}
    started = time.monotonic()

    installed.install(limits)
    installed.settled()

    report(
        f"rollout with a limit of 200m takes {time.monotonic() - started:.0f} s, "
        f"{restarts(installed)} restarts, {execute(installed, _THROTTLING).strip()}"
    )
    assert restarts(installed) == 0
    installed.install()
    installed.settled()


def test_starts_give_no_warning(installed: Cluster, report) -> None:
    """For about a second, the kubelet still probes a container that has ended: that is allowed."""
    installed.kubectl("delete", "events", "--all")
    installed.kubectl("rollout", "restart", "deployment/prometheus-adapter")
    installed.settled()

    started = {each["metadata"]["name"] for each in installed.pods()}
    events = installed.get("events", "--field-selector=type=Warning")["items"]
    warnings = [
        (each["involvedObject"]["name"], f"{each['reason']}: {each['message']}")
        for each in events
        if each["involvedObject"]["name"].startswith("prometheus-adapter")
    ]
    at_start = [text for name, text in warnings if name in started]
    at_end = [text for name, text in warnings if name not in started]
    report(f"{len(at_start)} Warning events of pods that start, {len(at_end)} of those that end")
    assert not at_start
    assert all(text.endswith("connect: connection refused") for text in at_end), at_end
