"""The chart's defaults hold: Pod Security, probes, requests and limits, the disruption budget."""

from __future__ import annotations

import json
import time

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
AWAY = 30.0
"""Seconds without Prometheus: longer than the probes need to fail, and than values are kept."""


def inspect(cluster: Cluster, pod: str) -> dict[str, object]:
    """Return what a process in the adapter's container may do."""
    found = cluster.kubectl(
        "exec", pod, "--container=prometheus-adapter", "--", "python", "-c", _INSPECT
    )
    result: dict[str, object] = json.loads(found)
    return result


def restarts(cluster: Cluster) -> int:
    """Return how often containers of the adapter were started again."""
    return sum(
        each["restartCount"]
        for pod in cluster.pods()
        for each in pod["status"].get("containerStatuses", ())
    )


def test_containers_are_restricted(installed: Cluster, report) -> None:
    pod, *_ = installed.pods()

    found = inspect(installed, pod["metadata"]["name"])

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
    deadline, unready = time.monotonic() + AWAY, 0
    while time.monotonic() < deadline:
        unready += not all(is_true(each, "Ready") for each in installed.pods())
        time.sleep(1)
    active = installed.hpa().condition("ScalingActive")
    replicas = installed.hpa().current_replicas

    installed.kubectl(*scale, "--replicas=1")
    installed.rolled_out("deployment", objects.PROMETHEUS)
    path_back = installed.wait(
        lambda: installed.hpa().condition("ScalingActive").status == "True", "the HPA is active"
    )

    report(
        f"{restarts(installed) - before} restarts, {unready} s with an unready pod, HPA at "
        f"{replicas} replicas: {active.reason}; active {path_back:.0f} s after Prometheus is ready"
    )
    assert (restarts(installed) - before, unready, replicas) == (0, 0, 1)


def test_slow_start(installed: Cluster, report) -> None:
    limits = {"resources": {"limits": {"cpu": "200m", "memory": "768Mi"}}}
    started = time.monotonic()

    installed.install(limits)
    installed.settled()

    report(
        f"rollout with a limit of 200m takes {time.monotonic() - started:.0f} s, "
        f"{restarts(installed)} restarts"
    )
    assert restarts(installed) == 0
    installed.install()
    installed.settled()


def test_starts_and_ends_give_no_warning(installed: Cluster, report) -> None:
    installed.kubectl("delete", "events", "--all")
    installed.kubectl("rollout", "restart", "deployment/prometheus-adapter")
    installed.settled()

    found = [
        f"{each['reason']}: {each['message']}"
        for each in installed.get("events", "--field-selector=type=Warning")["items"]
        if each["involvedObject"]["name"].startswith("prometheus-adapter")
    ]

    report(f"{len(found)} Warning events: {found}")
    assert not found
