"""The kustomize manifests: the base, and the base with the components for the other two APIs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml

from rules import metrics_apis
from tools.cluster.server import NAME
from tools.cluster.server import NAMESPACE as BASE
from tools.e2e import installation
from tools.e2e.installation import Cluster
from tools.workload import objects

MANIFESTS = Path(__file__).parents[2] / "manifests"
APIS = {
    "external-metrics": metrics_apis.EXTERNAL,
    "resource-metrics": metrics_apis.USAGE,
}
"""Component -> the API that it adds to the base."""


def write_overlay(folder: Path, components: tuple[str, ...]) -> Path:
    """Write the overlay of docs/install.md with these components, and return its folder."""
    manifests = os.path.relpath(MANIFESTS, folder)  # kustomize accepts no absolute path
    url = f"{objects.url(installation.NAMESPACE)}:{objects.PROMETHEUS_PORT}"
    repository, _, tag = installation.image().rpartition(":")
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{manifests}/base"],
        "components": [f"{manifests}/components/{each}" for each in components],
        "images": [{"name": "gpu-metrics-adapter", "newName": repository, "newTag": tag}],
        "configMapGenerator": [
            {
                "name": NAME,
                "namespace": BASE,
                "behavior": "merge",
                "literals": [f"PROMETHEUS_URL={url}"],
            }
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.parametrize("components", [(), ("external-metrics",), tuple(APIS)], ids=len)
def test_overlay(cluster: Cluster, components, tmp_path, report) -> None:
    overlay = write_overlay(tmp_path, components)
    apis = (metrics_apis.CUSTOM, *(APIS[each] for each in components))
    started = time.monotonic()
    try:
        cluster.kubectl("apply", "-k", overlay, namespace="")
        cluster.kubectl("rollout", "status", f"deployment/{NAME}", namespace=BASE)
        ready = time.monotonic() - started
        for name in (name for api in apis for name in api.apiservices):
            cluster.wait_available(name)
        cluster.wait(cluster.has_metric, "the HPA has its metric")
        report(f"ready after {ready:.0f} s, metric after {time.monotonic() - started:.0f} s")
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "-k", overlay, namespace="")
