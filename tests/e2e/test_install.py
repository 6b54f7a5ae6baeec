"""Installation as README says: the APIServices, doctor, kubectl top, and an HPA on real pods."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pytest

from rules import metrics_apis
from tools import helm
from tools.backends import programs
from tools.e2e.installation import LOAD_OF_ONE, NAMESPACE, RELEASE, Cluster
from tools.workload import objects

_BUILDER = """\
#!/bin/sh
[ "$1" = push ] || exit 0
archive=${3#docker-archive:}
: > "${archive%%:*}"
"""
"""buildah of a machine whose nodes have the image: it builds nothing."""
LOAD, REPLICAS = 150, 8
"""150 % of a GPU need eight replicas at 20 % each, within the tolerance of the HPA."""


def test_make_install(cluster: Cluster, tmp_path: Path, report) -> None:
    """README's command; the image is in the cluster, so it is neither built nor brought there."""
    builder = tmp_path / "buildah"
    builder.write_text(_BUILDER)
    builder.chmod(0o755)
    used = builder, cluster.kubectl_program, programs.ensure(helm.HELM)
    path = ":".join([*(str(each.parent) for each in used), os.environ["PATH"]])
    variables = {
        "PROMETHEUS": f"{objects.url(NAMESPACE)}:{objects.PROMETHEUS_PORT}",
        "IMPORT": "cat",
        "NAMESPACE": NAMESPACE,
        "RELEASE": RELEASE,
        "BUILDER": "buildah",
        "ARGS": "",  # not those of `make e2e`
    }
    started = time.monotonic()

    done = subprocess.run(
        ["make", "install", *(f"{name}={value}" for name, value in variables.items())],
        cwd=helm.CHART.parents[1],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    *_, summary = (each for each in done.stdout.splitlines() if " failures, " in each)
    report(f"{time.monotonic() - started:.0f} s; {summary}")
    assert "\n--- gpu-metrics-adapter doctor" in done.stderr
    cluster.uninstall()


def test_first_metric(cluster: Cluster, report) -> None:
    started = time.monotonic()

    cluster.install()
    returned = time.monotonic() - started
    for name in metrics_apis.CUSTOM.apiservices:
        cluster.wait_available(name)
    apis = time.monotonic() - started
    cluster.wait(cluster.has_metric, "the HPA has its metric")

    report(
        f"helm returns after {returned:.1f} s, both APIServices are Available after {apis:.1f} s, "
        f"the HPA has its metric after {time.monotonic() - started:.1f} s"
    )
    cluster.settled()


def test_doctor(installed: Cluster, report) -> None:
    """The address of Prometheus in the cluster is not reachable from here: that is no failure."""
    code, output = installed.program("doctor")

    report(output.splitlines()[-1])
    assert code == 0, output


def test_an_hpa_scales_real_pods(installed: Cluster, report) -> None:
    def scaled(load: float, replicas: int) -> float:
        installed.set_load(load)

        def met() -> bool:
            status = installed.get("deployment", objects.APP)["status"]
            return status.get("replicas") == status.get("readyReplicas") == replicas

        return installed.wait(met, f"{replicas} replicas are ready")

    out = scaled(LOAD, REPLICAS)
    back = scaled(LOAD_OF_ONE, 1)

    report(f"1 to {REPLICAS} ready pods within {out:.0f} s, back to 1 within {back:.0f} s")
    assert installed.hpa().condition("ScalingActive").reason == "ValidMetricFound"


def test_kubectl_top(installed: Cluster, report) -> None:
    for name in metrics_apis.USAGE.apiservices:
        with contextlib.suppress(RuntimeError):
            service = installed.get("apiservice", name)["spec"]["service"]
            pytest.skip(f"{name} belongs to {service['namespace']}/{service['name']}")
    installed.install({"resourceMetrics": {"enabled": True}})
    started = time.monotonic()

    def top(kind: str) -> list[str]:
        with contextlib.suppress(RuntimeError):
            return installed.kubectl("top", kind, "--no-headers").splitlines()
        return []

    installed.wait(lambda: top("nodes"), "`kubectl top nodes` prints a node")
    nodes = time.monotonic() - started
    installed.wait(
        lambda: any(each.startswith("prometheus-") for each in top("pods")),
        "`kubectl top pods` prints Prometheus",
    )

    report(
        f"nodes after {nodes:.0f} s, pods after {time.monotonic() - started:.0f} s: {top('pods')}"
    )
    installed.install()
    installed.settled()
