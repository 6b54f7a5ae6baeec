"""The documented installation on a real API server: what `doctor` says, and how it ends."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from adapter.cli.console import server as server_of_console
from adapter.cli.console.reader import ShownCluster
from adapter.cli.local_prometheus.process import free_ports
from adapter.settings.kubectl import KubectlSettings
from rules.metrics_apis import CUSTOM
from tools import docs, helm
from tools.cluster import kubelet, server
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane
from tools.presets.table import EXPORTERS
from tools.real import prometheus as real
from tools.waiting import until

RELEASE, NAMESPACE = "gpu", "scaling"
NAME = f"{RELEASE}-prometheus-adapter"
VIEWERS = server.OVERLAY.parents[1] / "components" / "viewers" / "rbac.yaml"
AUTOSCALER = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 3
  metrics:
  - type: Pods
    pods: {metric: {name: duty_cycle_current}, target: {type: AverageValue, averageValue: 40}}
"""
CHECKED = "ok      autoscalers: 1 autoscaler uses 1 metric\n"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{NAME}"


@pytest.fixture(scope="module")
def adapter(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[real.Prometheus]:
    """Install the chart, run a process in place of its pods, and return its Prometheus."""
    tmp_path = tmp_path_factory.mktemp("adapter")
    kubeconfig = control_plane.kubeconfig
    flags = (f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}")
    with real.run(tmp_path) as prometheus:
        files = sorted((EXPORTERS / "c4-4.8.2-default").glob("*.prom"))
        lines = [line for each in files for line in each.read_text().splitlines()]
        now = time.time()
        for minute in range(15):
            prometheus.put(*lines, at=now + 60 * minute)
        url = {"url": "http://127.0.0.1", "port": prometheus.port}
        values = {"presets": ["auto"], "rules": {"default": False}, "prometheus": url}
        helm.run(
            "upgrade", "--install", RELEASE, helm.CHART, "--create-namespace", *flags, values=values
        )
        control_plane.local_service(NAME, NAMESPACE)
        (port,) = free_ports(1)
        for name in CUSTOM.apiservices:
            path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
            spec = {"service": {"port": port}}
            control_plane.admin.call("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)
        command = [
            *(sys.executable, "-m", "adapter", f"--secure-port={port}", "--preset=auto"),
            f"--lister-kubeconfig={control_plane.account_kubeconfig(NAME, NAMESPACE)}",
            *(f"--service-name={NAME}", f"--service-namespace={NAMESPACE}"),
            f"--prometheus-url={prometheus.url}",
        ]
        log = tmp_path / "adapter.log"
        daemon = Daemon("adapter", command, log, lambda: "serving on" in log.read_text())
        try:
            daemon.start()
            for name in CUSTOM.apiservices:
                control_plane.wait_available(name)
            yield prometheus
        finally:
            daemon.kill()
            helm.run("uninstall", RELEASE, *flags)


@pytest.mark.usefixtures("adapter")
def test_a_release_of_its_own_name_has_no_failure_for_an_administrator_and_for_its_account(
    control_plane, cli
):
    account = control_plane.account_kubeconfig(NAME, NAMESPACE)

    for kubeconfig in (control_plane.kubeconfig, account):
        code, report, _ = cli("doctor", f"--kubeconfig={kubeconfig}")

        assert code == 0
        assert f"is Available, served by {NAMESPACE}/{NAME}\n" in report, report
        assert f"rights: {ACCOUNT} has the " in report


@pytest.fixture
def team(control_plane: ControlPlane, adapter: real.Prometheus) -> Iterator[str]:
    """A namespace with an HPA whose metric has a value; return its name."""
    control_plane.kubectl("create", "namespace", "team")
    try:
        control_plane.kubectl("apply", "-n", "team", "-f", "-", text=AUTOSCALER)
        pods = "/api/v1/namespaces/team/pods"
        real.wait_for(lambda: control_plane.admin.get(pods)["items"], "a pod exists")
        (found,) = control_plane.admin.get(pods)["items"]
        pod = found["metadata"]["name"]
        status = {"status": kubelet.running_status(found)}
        path = f"{pods}/{pod}/status"
        control_plane.admin.call("PATCH", path, status, content_type=MERGE_PATCH)
        labels = f'gpu="0",UUID="u",Hostname="n",container="c",namespace="team",pod="{pod}"'
        now = time.time()
        for minute in range(15):
            adapter.put(f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} 20", at=now + 60 * minute)
        yield "team"
    finally:
        control_plane.kubectl("delete", "namespace", "team", "--timeout=90s")


@pytest.fixture
def viewer(control_plane: ControlPlane, team: str) -> Path:
    """Kubeconfig of a user who has the role `view` in the namespace of the context only."""
    control_plane.kubectl(
        "create", "rolebinding", "ann", f"--namespace={team}", "--clusterrole=view", "--user=ann"
    )
    path = control_plane.user("ann").write_kubeconfig(control_plane.folder / "ann.kubeconfig")
    config = yaml.safe_load(path.read_text())
    config["contexts"][0]["context"]["namespace"] = team
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_commands_that_are_printed_let_a_viewer_read_the_metrics_of_a_namespace(
    control_plane, team, viewer, cli
):
    def run(*arguments: str) -> tuple[int, str]:
        return cli(*arguments, f"--namespace={team}", f"--kubeconfig={viewer}")[:2]

    explained, doctor = run("explain", "hpa", "web"), run("doctor")

    assert (explained[0], doctor[0]) == (2, 2), (explained, doctor)
    (cures,) = {each[1].splitlines()[-1].partition(" or run: ")[2] for each in (explained, doctor)}
    for command in cures.split(" && "):
        control_plane.kubectl(*shlex.split(command)[1:])

    # The adapter may keep the answer from before the sample for a moment.
    real.wait_for(lambda: run("explain", "hpa", "web")[0] == 0, "the metric has a value")
    code, report = run("doctor")
    assert (code, CHECKED in report) == (0, True), report


async def test_the_role_view_reads_metrics_with_the_component_viewers(
    control_plane, team, viewer, cli
):
    """As with `rbac.aggregateToView` of the chart, which has the same objects."""
    reports = []

    def passes() -> bool:
        code, report, _ = cli("doctor", f"--kubeconfig={viewer}")
        reports.append(report)
        return code == 0

    cluster = ShownCluster(kubeconfig=KubectlSettings(kubeconfig=str(viewer)), prometheus=None)
    async with server_of_console.running(cluster, port=0, prefix="") as address:
        assert address.startswith("http://127.0.0.1:")
    control_plane.kubectl("apply", "-f", VIEWERS)
    try:
        await until(lambda: asyncio.to_thread(passes))
    finally:
        control_plane.kubectl("delete", "-f", VIEWERS)
    assert "skipped autoscalers of all namespaces: " in reports[-1]
    assert CHECKED in reports[-1]


def test_the_documented_command_deletes_what_kustomize_installed(control_plane):
    assert "\nkubectl delete -k mycluster " in (docs.ROOT / "docs" / "install.md").read_text()
    server.install(control_plane)

    # It would fail for an object that does not exist any more.
    control_plane.kubectl("delete", "--timeout=90s", "-k", server.OVERLAY)

    found = control_plane.kubectl("get", "apiservices", "--output=name")
    assert "metrics.k8s.io" not in found
