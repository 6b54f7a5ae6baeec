"""Alerts and dashboard of the chart: Prometheus parses each query, and each metric exists."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from adapter.local_prometheus import binary
from tests import docs
from tests.manifests.chart import helm
from tests.manifests.chart.helm import CHART

FILES = CHART / "files"
SUFFIX = "_(?:bucket|count|sum)$"


def own():
    """Return the metrics that the adapter exposes."""
    return set(re.findall(r"^\| `(\w+)`", docs.own_metrics(), re.MULTILINE))


def panels():
    return json.loads((FILES / "dashboard.json").read_text())["panels"]


def dashboard():
    """Return the queries of the dashboard, as Grafana sends them."""
    queries = [each["expr"] for panel in panels() for each in panel["targets"]]
    assert len(queries) > 15
    return [each.replace("$__rate_interval", "1m").replace("$job", ".*") for each in queries]


def alerts():
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    return {each["alert"]: each["expr"] for each in group["rules"]}


def test_every_metric_that_is_queried_exists():
    named = re.findall(r"\b[a-z]+_\w+", "\n".join((*dashboard(), *alerts().values())))
    metrics = {re.sub(SUFFIX, "", each) for each in named} - {"histogram_quantile"}

    assert len(metrics) > 12
    assert metrics <= own()


def test_every_metric_of_the_adapter_but_these_is_in_the_dashboard_or_an_alert():
    text = "\n".join((*dashboard(), *alerts().values()))

    assert {each for each in own() if each not in text} == {
        "gpu_metrics_adapter_prometheus_response_bytes_total",
        "gpu_metrics_adapter_watch_cache_objects",
        "gpu_metrics_adapter_watch_cache_state",
    }


def test_panels_have_distinct_places_and_titles():
    assert len({(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels()}) == len(panels())
    assert len({each["title"] for each in panels()}) == len(panels())


@pytest.mark.usefixtures("real_servers")
def test_prometheus_parses_the_alerts_and_every_query_of_the_dashboard(tmp_path):
    records = [{"record": f"q{at}", "expr": each} for at, each in enumerate(dashboard())]
    queries = tmp_path / "queries.yaml"
    queries.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": records}]}))
    promtool = binary.find().with_name("promtool")

    done = subprocess.run(
        [promtool, "check", "rules", FILES / "alerts.yaml", queries],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(alerts())} rules found" in done.stdout
    assert f"SUCCESS: {len(records)} rules found" in done.stdout


@pytest.mark.usefixtures("real_servers")
def test_the_chart_embeds_them():
    values = {"prometheusRule": {"enabled": True}, "dashboard": {"enabled": True}}
    documents = helm.template({**values, "nameOverride": "gpu"})
    (rule,) = (each for each in documents if each["kind"] == "PrometheusRule")
    (board,) = (each for each in documents if each["metadata"]["name"].endswith("-dashboard"))

    text = json.dumps(rule["spec"]).replace('job=\\"gpu\\"', 'job=\\"gpu-metrics-adapter\\"')
    assert json.loads(text) == yaml.safe_load((FILES / "alerts.yaml").read_text())
    assert json.loads(board["data"]["gpu-metrics-adapter.json"])["panels"] == panels()
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
