"""Replacement of the real prometheus-adapter 0.12.0 by a Helm upgrade, and back by a rollback."""

from __future__ import annotations

import os
import time

import yaml

from tools import helm
from tools.e2e import installation
from tools.e2e.installation import NAMESPACE, RELEASE, Cluster
from tools.workload import objects

IMAGE = os.environ.get(
    "E2E_ORIGINAL", "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
)
RULE = {
    "seriesQuery": 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}',
    "resources": {
        "overrides": {
            "exported_namespace": {"resource": "namespace"},
            "exported_pod": {"resource": "pod"},
        }
    },
    "name": {"as": installation.METRIC},
    "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
}
INTERVAL = 0.3
"""Seconds between two requests.

The original lists pods for each one, and client-go lets it send five requests a second. At 20 a
second, requests queue in it for 20 s, and those that wait when it ends fail.
"""
VALUES = {"presets": [], "rules": {"default": False, "custom": [RULE]}}


def original() -> list[helm.Document]:
    """Return the objects of the original's chart with RULE, in NAMESPACE and without other APIs."""
    text = yaml.safe_dump_all(helm.original()).replace(helm.NAMESPACE, NAMESPACE)
    documents: list[helm.Document] = [
        each
        for each in yaml.safe_load_all(text)
        if each["kind"] != "APIService" or "custom" in each["metadata"]["name"]
    ]
    for each in documents:
        if each["kind"] == "ConfigMap":
            each["data"]["config.yaml"] = yaml.safe_dump({"rules": [RULE]})
        elif each["kind"] == "Deployment":
            (container,) = each["spec"]["template"]["spec"]["containers"]
            container["image"] = IMAGE
            url = f"{objects.url(NAMESPACE)}:{objects.PROMETHEUS_PORT}"
            container["args"] += [f"--prometheus-url={url}", "--metrics-relist-interval=10s"]
    return documents


def test_replacement(cluster: Cluster, tmp_path, report) -> None:
    cluster.helm("install", helm.write_original(tmp_path / "original", original()))
    cluster.rolled_out()
    cluster.wait(cluster.has_metric, "the HPA has its metric")
    try:
        for step, change in {
            "upgrade": lambda: cluster.install(VALUES),
            "the same upgrade again": lambda: cluster.install(VALUES),
            "rollback": lambda: cluster.helm("rollback", "1"),
        }.items():
            with cluster.probing(INTERVAL) as probe:
                time.sleep(3)
                change()
                cluster.settled()
                time.sleep(3)
            report(f"{step}: {probe}")
            assert probe.lost_syncs == 0, step
            assert probe.failed <= 2, step
        (container,) = cluster.get("deployment", RELEASE)["spec"]["template"]["spec"]["containers"]
        assert container["image"] == IMAGE
    finally:
        cluster.uninstall()
