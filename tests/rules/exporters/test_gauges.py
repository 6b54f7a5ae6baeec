"""Gauges by name, compared with the types in the expositions of model servers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules import presets, ruleset
from rules.exporters import metric_types

SERVERS = sorted((Path(__file__).parents[2] / "fixtures/servers").glob("*.prom"))
READ = {
    rule.pinned_series
    for name in presets.names()
    if name.startswith("inference-")
    for rule in ruleset.load([(name, presets.text(name))]).rules
}
DOUBTFUL = {
    *("num_requests_waiting", "num_requests_running", "gpu_cache_usage_perc"),  # NIM 1.x
    "nv_inference_pending_request_count",  # named like a counter
}


@pytest.mark.parametrize("file", SERVERS, ids=lambda file: file.stem)
def test_gauges_of_model_servers_that_presets_read_are_known(file: Path) -> None:
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", file.read_text(), re.MULTILINE))

    known = {name for name in types if metric_types.is_gauge(name)}

    assert known <= {name for name, kind in types.items() if kind == "gauge"}
    read = {name for name, kind in types.items() if kind == "gauge"} & READ
    assert read - DOUBTFUL <= known
