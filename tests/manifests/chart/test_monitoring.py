"""Alerts and dashboard of the chart: Prometheus parses each query, and each metric exists."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
import yaml

from adapter.cli.local_prometheus import binary
from tools import docs, helm
from tools.helm import CHART

FILES = CHART / "files"
SUFFIX = "_(?:bucket|count|sum)$"
FOREIGN = {
    "aggregator_unavailable_apiservice",  # kube-apiserver
    "kube_horizontalpodautoscaler_status_condition",  # kube-state-metrics
    "kube_horizontalpodautoscaler_status_desired_replicas",
}
OWN = "gpu_metrics_adapter"
REQUESTS = f"{OWN}_prometheus_request_duration_seconds_count"
HPA = 'namespace="a",horizontalpodautoscaler="b"'
CONDITION = f'{HPA},condition="ScalingActive",status="false"'
FIRING = {
    "PrometheusFailing": (
        {
            f'{REQUESTS}{{outcome="ok"}}': "0+9x60",
            f'{REQUESTS}{{outcome="Unreachable"}}': "0+9x30 270x30",
        },
        (20, 45),
    ),
    "Unavailable": (
        {'aggregator_unavailable_apiservice{name="v1beta2.custom.metrics.k8s.io"}': "1x20 0x20"},
        (10, 25),
    ),
    "HpaWithoutMetric": (
        {
            f"kube_horizontalpodautoscaler_status_condition{{{CONDITION}}}": "1x60",
            f"kube_horizontalpodautoscaler_status_desired_replicas{{{HPA}}}": "1x30 0x30",
        },
        (20, 40),
    ),
    "MetricUnresolvable": (
        {f'{OWN}_hpa_metric_resolvable{{hpa="b",metric="c",reason="d"}}': "0x30 1x30"},
        (20, 40),
    ),
    "Stalls": ({f"{OWN}_event_loop_stall_seconds": "0x5 2x25 0.1x30"}, (20, 40)),
    "PartialResponses": ({f'{REQUESTS}{{outcome="Partial"}}': "0x5 0+1x5 5x30"}, (10, 25)),
    "Degraded": (
        {f'{OWN}_health_check_state{{check="prometheus",state="degraded"}}': "1x20 stale"},
        (15, 25),
    ),
    "RelistStale": (
        {f'{OWN}_relist_last_success_timestamp_seconds{{rule="a"}}': "0x40 2400x20"},
        (35, 45),
    ),
    "RuleWithoutSeries": ({f'{OWN}_relist_series_names{{rule="a"}}': "0x70 3x20"}, (65, 75)),
    "WatchBroken": (
        {f'{OWN}_watch_cache_last_response_timestamp_seconds{{resource="pods"}}': "0x10 660x9"},
        (8, 12),
    ),
    "CertificateExpires": (
        {f"{OWN}_serving_certificate_expiry_timestamp_seconds": "86400x20 604800x9"},
        (5, 25),
    ),
    "CertificateNotReconciled": (
        {f'{OWN}_serving_certificate_reconciles_total{{outcome="failed"}}': "0+1x40 40x60"},
        (30, 80),
    ),
    "Unauthorized": (
        {'authentication_attempts{result="error",job="gpu-metrics-adapter"}': "0+60x30 1800x30"},
        (20, 45),
    ),
}
"""Alert -> series, a sample a minute, and the minutes at which the alert fires and has ended."""


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
    metrics = {re.sub(SUFFIX, "", each) for each in named} - {"histogram_quantile", "request_kind"}

    assert len(metrics) > 12
    assert metrics - FOREIGN <= own()


def test_every_metric_of_the_adapter_but_these_is_in_the_dashboard_or_an_alert():
    text = "\n".join((*dashboard(), *alerts().values()))

    assert {each for each in own() if each not in text} == {
        "gpu_metrics_adapter_autoscaler_proposed_replicas",
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
def test_every_alert_fires_and_ends(tmp_path):
    """promtool evaluates the alerts as Prometheus does, in the time of the series."""
    assert {f"GpuMetricsAdapter{name}" for name in FIRING} == set(alerts())
    tests = []
    for name, (series, (fires, ended)) in FIRING.items():
        firing = f'ALERTS{{alertname="GpuMetricsAdapter{name}",alertstate="firing"}}'
        expected = [(0, 0), (fires, 1), (ended, 0)]
        tests.append(
            {
                "name": name,
                "interval": "1m",
                "input_series": [
                    {"series": each, "values": values} for each, values in series.items()
                ],
                "promql_expr_test": [
                    {
                        "expr": f"count({firing}) or vector(0)",
                        "eval_time": f"{minute}m",
                        "exp_samples": [{"labels": "{}", "value": number}],
                    }
                    for minute, number in expected
                ],
            }
        )
    document = {"rule_files": [str(FILES / "alerts.yaml")], "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(document))
    promtool = binary.find().with_name("promtool")

    done = subprocess.run(
        [promtool, "test", "rules", tmp_path / "tests.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


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
