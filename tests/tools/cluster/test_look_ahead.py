"""An HPA whose rule looks ahead, on a real control plane, with two weeks of load in Prometheus.

The load rises each day at the same time, a few minutes after the test begins. The pod that had it
in the past had another name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import program
from tests.tools.cluster import workload
from tools import documents
from tools.cluster.server import Server
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus
from tools.real.prometheus import Prometheus, wait_for

DAY, STEP = 86_400, 60
WAY = 540
"""Seconds until the load rises."""
PODS = ("web-bbbbb", "web-ccccc")
RULE = """
- seriesQuery: load
  name: {{as: {name}}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
"""
RULES = (
    "rules:"
    + RULE.format(name="load_now")
    + RULE.format(name="load_ahead")
    + "  ahead: {season: 7d, horizon: 10m}\n"
)
VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*"
SELECTED = "labelSelector=app%3Dweb"


def fill(running: Prometheus) -> None:
    """Write 16 days of load, 100 in all, and 200 for eight hours of each day."""
    now = int(time.time()) // STEP * STEP
    rise = now + WAY
    replaced = now - 20 * STEP

    def series(pod: str, begin: int, end: int, part: float) -> Any:
        loads = {
            at: 200.0 if (at - rise) % DAY < DAY // 3 else 100.0 for at in range(begin, end, STEP)
        }
        labels = {"__name__": "load", "namespace": "default", "pod": pod}
        return labels, [(at * 1000, part * load) for at, load in loads.items()]

    running.put_series([series("web-x8k2p", now - 16 * DAY, replaced, 1.0)])
    running.end('load{namespace="default",pod="web-x8k2p"} 1', at=replaced)
    running.put_series([series(pod, replaced, rise, 0.5) for pod in PODS])


@pytest.fixture
def adapter(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Server]:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    metric = documents.pods_metric("load_ahead", "50")
    with prometheus.run(tmp_path) as running:
        fill(running)
        flags = (f"--config={rules}", f"--prometheus-url={running.url}")
        with workload.running(control_plane, tmp_path, flags, PODS, metric) as started:
            yield started


@pytest.mark.usefixtures("adapter")
def test_replicas_are_there_before_the_load_of_last_week_comes(
    control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = control_plane.admin

    def values(metric: str) -> list[str]:
        items = admin.get(f"{VALUES}/{metric}?{SELECTED}")["items"]
        return [each["value"] for each in items]

    wait_for(lambda: values("load_ahead") == ["100", "100"], "a forecast is served")
    assert values("load_now") == ["50", "50"]

    def desired() -> int:
        path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
        found: int = (admin.get(path).get("status") or {}).get("desiredReplicas", 0)
        return found

    wait_for(lambda: desired() == 4, "the HPA wants pods for the load that is expected")

    explained: dict[str, Any] = {}

    def is_explained() -> bool:
        explained.update(admin.get(f"{VALUES}/load_ahead?{SELECTED}&explain=true"))
        return bool(explained.get("ahead") and explained["ahead"]["served"])

    wait_for(is_explained, "the forecast is explained")
    assert (explained["ahead"]["now"], explained["ahead"]["expected"]) == (100, 200)
    assert [each["value"] for each in explained["values"]["items"]] == ["100", "100"]
    assert [each["value"] for each in explained["ahead"]["valuesNow"]["items"]] == ["50", "50"]
    assert "has the forecast values 100 for web-bbbbb" in explained["verdict"]

    told = "ahead: the forecast is served: a total of 200 instead of the present 100"
    explain = ["explain", "hpa", "default/web", f"--kubeconfig={control_plane.kubeconfig}"]

    def is_told() -> bool:
        program.main(explain)
        return told in capsys.readouterr().out

    wait_for(is_told, "the command tells of the forecast")
