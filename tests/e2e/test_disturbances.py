"""Requests every 50 ms through the aggregator, and those of the HPA, while pods come and go."""

from __future__ import annotations

import time
from concurrent import futures

import pytest

from tools.e2e.installation import PODS, RELEASE, Cluster

SETTLE = 3.0
"""Seconds of requests before a disturbance and after it."""
_KILL = "import resource; resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))"
"""Makes the kernel send SIGKILL to the server, as when memory is short: a process of its container
cannot send it, because the server is process 1 there."""
_RULE = {
    "seriesQuery": 'DCGM_FI_DEV_GPU_TEMP{exported_pod!=""}',
    "resources": {
        "overrides": {
            "exported_namespace": {"resource": "namespace"},
            "exported_pod": {"resource": "pod"},
        }
    },
    "name": {"as": "temperature_of_e2e"},
    "metricsQuery": "max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}


def restart(cluster: Cluster) -> None:
    cluster.kubectl("rollout", "restart", "deployment/prometheus-adapter")


def delete_pod(cluster: Cluster) -> None:
    cluster.kubectl("delete", "pod", cluster.pods()[0]["metadata"]["name"], "--wait=false")


def drain(cluster: Cluster) -> None:
    """Drain the node of a pod with kubectl, until the budget refuses or no pod is left there.

    The node is schedulable again after the first eviction: if it is the only one, the successor
    waits for that, and the budget keeps the other pod until the successor is ready.
    """
    pods = {each["metadata"]["name"] for each in cluster.pods()}
    node = cluster.pods()[0]["spec"]["nodeName"]
    options = f"--pod-selector={PODS}", "--ignore-daemonsets", "--delete-emptydir-data"
    with futures.ThreadPoolExecutor(1) as pool:
        drained = pool.submit(cluster.kubectl, "drain", node, *options, "--timeout=120s")
        try:
            cluster.wait(
                lambda: pods - {each["metadata"]["name"] for each in cluster.pods()},
                "a pod is evicted",
            )
        finally:
            cluster.kubectl("uncordon", node)
        drained.result()


def new_rules(cluster: Cluster) -> None:
    cluster.install({"rules": {"default": False, "custom": [_RULE]}})


def kill(cluster: Cluster) -> None:
    cluster.kubectl("exec", cluster.pods()[0]["metadata"]["name"], "--", "python", "-c", _KILL)


def new_ca(cluster: Cluster) -> None:
    """Replace the CA as docs/security.md says, and restart the pods at once, too."""
    cluster.kubectl("delete", "secret", f"{RELEASE}-tls")
    cluster.install()
    restart(cluster)


DISTURBANCES = {
    "rollout restart": restart,
    "deletion of a pod": delete_pod,
    "kubectl drain": drain,
    "helm upgrade with new rules": new_rules,
    "new certificate authority": new_ca,
}


def disturb(cluster: Cluster, disturbance):
    """Return the probe of a disturbance, from before it until all pods are ready again."""
    with cluster.probing() as probe:
        time.sleep(SETTLE)
        started = time.monotonic()
        disturbance(cluster)
        cluster.settled()
        seconds = time.monotonic() - started
        time.sleep(SETTLE)
    return probe, f"{probe}; settled after {seconds:.0f} s"


@pytest.mark.parametrize("disturbance", DISTURBANCES.values(), ids=DISTURBANCES)
def test_no_request_fails(installed: Cluster, disturbance, report) -> None:
    probe, text = disturb(installed, disturbance)

    report(text)
    assert (probe.failed, probe.lost_syncs) == (0, 0)


def test_sigkill_of_a_replica(installed: Cluster, report) -> None:
    """Requests that the replica had accepted, and those until kube-proxy knows, may be lost."""
    restarts = lambda: sum(  # noqa: E731
        each["restartCount"]
        for pod in installed.pods()
        for each in pod["status"]["containerStatuses"]
    )
    before = restarts()

    def kill_and_wait(cluster: Cluster) -> None:
        kill(cluster)
        cluster.wait(lambda: restarts() > before, "the container was started again")

    probe, text = disturb(installed, kill_and_wait)

    report(text)
    assert probe.failed <= probe.count / 50
    assert probe.lost_syncs <= 1


@pytest.mark.parametrize(
    "disturbance", [restart, delete_pod, kill], ids=["restart", "deletion", "sigkill"]
)
def test_one_replica(installed: Cluster, disturbance, report) -> None:
    """A rollout starts the new pod first; otherwise values are back once a pod is ready."""
    installed.install({"replicas": 1})
    installed.settled()

    probe, text = disturb(installed, disturbance)

    report(text)
    if disturbance is restart:
        assert probe.failed == 0
    assert probe.outage < 30
    installed.install()
    installed.settled()


def test_deletion_of_all_pods(installed: Cluster, report) -> None:
    def delete_all(cluster: Cluster) -> None:
        cluster.kubectl("delete", "pods", f"--selector={PODS}", "--wait=false")

    probe, text = disturb(installed, delete_all)

    report(text)
    assert probe.outage < 30
