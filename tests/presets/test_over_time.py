"""`_over_time` of every GPU preset after a restart of the exporter, by a real Prometheus.

Both exporters of a GPU count for the time in which they ran: 100 for half of three minutes and 16
for the other half is 58.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from adapter.cli import program
from rules import presets, promql
from tools.presets.table import DEVICES

NAMES = [each for each in presets.names() if each.startswith(DEVICES)]
COMBINED = {
    "duty": 39,
    "memory": 78,
    "temperature": 58,
    "power": 78,
    "gr": 39,
    "sm": 39,
    "tensor": 39,
    "dram": 39,
}
"""First word of a metric -> its value for a GPU with the mean 58 and one with 20."""


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("preset", NAMES)
def test_a_restart_of_the_exporter_does_not_change_the_mean(preset, tmp_path, capsys):
    rules = yaml.safe_load(presets.text(preset))["rules"]
    chosen = [
        rule
        for rule in rules
        if rule["name"]["as"].endswith("_over_time") and " * on (" not in rule["metricsQuery"]
    ]
    series, requests = [], []
    for number, rule in enumerate(chosen):
        target = f"object-{number}"
        series += _series(rule, target)
        requests.append(_request(rule, target))
    file = tmp_path / "tests.yaml"
    test = {
        "name": preset,
        "interval": "15s",
        "input_series": series,
        "custom_metric_test": requests,
    }
    file.write_text(json.dumps({"presets": [preset], "tests": [test]}))

    code = program.main(["test", str(file)])

    assert code == 0, capsys.readouterr().out


def _series(rule: dict[str, Any], target: str) -> Iterator[dict[str, str]]:
    """Yield the series of a GPU whose exporter is restarted after 90 s, and of another GPU."""
    query = rule["metricsQuery"]
    selected = {
        each.label: "any" if each.operator == "!=" else each.value.partition("|")[0]
        for each in promql.selector(rule["seriesQuery"])
    }
    name = selected.pop("__name__")
    labels = {key: target if kind != "namespace" else "ml" for kind, key in _labels(rule).items()}
    unit = 0.01 if "<= 1)" in query else 1000 if "0.001 * " in query else 1
    for gpu, exporter, values in (
        ("0", "old", f"{100 * unit:g}x5 stale"),
        ("0", "new", f"_x6 {16 * unit:g}x5"),
        ("1", "old", f"{20 * unit:g}x11"),
    ):
        identity = re.findall(r"max by \(<<.GroupBy>>,([\w,]+)\)", query)
        gpu_labels = dict.fromkeys(",".join(identity).split(","), gpu)
        every = {**selected, **labels, **gpu_labels, "exporter": exporter}
        text = ",".join(f'{key}="{value}"' for key, value in every.items())
        yield {"series": f"{name}{{{text}}}", "values": values}


def _labels(rule: dict[str, Any]) -> dict[str, str]:
    """Return kind -> the last label that the rule maps to it; nodes only if there are no pods."""
    overrides = rule["resources"]["overrides"]
    labels = {each["resource"]: label for label, each in overrides.items()}
    if "pod" in labels:
        labels.pop("node", None)
    return labels


def _request(rule: dict[str, Any], target: str) -> dict[str, Any]:
    metric, query = rule["name"]["as"], rule["metricsQuery"]
    factor = 1048576 if "1048576 *" in query else 1000 if "(1000 *" in query else 1
    request = {
        "eval_time": "165s",
        "metric": metric,
        "exp_values": {target: COMBINED[metric.partition("_")[0]] * factor},
    }
    if "pod" in _labels(rule):
        return {**request, "namespace": "ml"}
    return {**request, "resource": "nodes"}
