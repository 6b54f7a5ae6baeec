"""The metrics of each preset, and which of them the expositions in tests/fixtures have.

The first line of an exposition is its title. `# presets:` in the second line names those whose
values the tests compare.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rules import presets, ruleset
from rules.exporters import generations

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
EXPORTERS = FIXTURES / "exporters"
GOLDEN: Mapping[str, Any] = json.loads((FIXTURES / "golden.json").read_text())
ACCELERATED = FIXTURES / "accelerators"
ACCELERATORS: Mapping[str, Mapping[str, Any]] = {
    case["variant"]: case for case in json.loads((FIXTURES / "accelerators.json").read_text())
}
"""Exporter of other accelerators than NVIDIA's -> its preset, and the values of pods and nodes.

With `scheme`, nodes have values only if the scrape adds the label `node`.
"""
SCHEMES = ("exported", "honored", "bare")
"""A ServiceMonitor without and with honorLabels, and a static config that adds `node`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One API name."""

    unit: str
    golden: str
    """Key of the expected value in golden.json."""
    meaning: str


METRICS: Mapping[str, Metric] = {
    "duty_cycle_current": Metric(
        unit="%",
        golden="duty_cycle_current",
        meaning="average share of time in which the GPU was busy",
    ),
    "memory_used_bytes_current": Metric(
        unit="bytes", golden="memory_used_bytes_current", meaning="sum of used memory"
    ),
    "memory_utilization_current": Metric(
        unit="%",
        golden="memory_utilization_percent",
        meaning="used memory as a share of usable memory",
    ),
    "memory_total_bytes_current": Metric(
        unit="bytes", golden="memory_total_bytes_current", meaning="sum of total memory"
    ),
    "temperature_celsius_current": Metric(
        unit="°C", golden="temperature_celsius_current", meaning="maximum"
    ),
    "power_usage_milliwatts_current": Metric(
        unit="mW", golden="power_usage_milliwatts_current", meaning="sum over boards"
    ),
    "gr_engine_active_current": Metric(
        unit="%",
        golden="gr_engine_active_percent",
        meaning="average activity of the graphics and compute engines",
    ),
    "sm_active_current": Metric(
        unit="%", golden="sm_active_percent", meaning="average activity of the multiprocessors"
    ),
    "tensor_active_current": Metric(
        unit="%", golden="tensor_active_percent", meaning="average activity of the tensor pipes"
    ),
    "dram_active_current": Metric(
        unit="%", golden="dram_active_percent", meaning="average activity of the memory interface"
    ),
}

DEVICES = ("gpu-", "accelerator-")
"""How the names of the presets for exporters of devices begin."""
PRESETS: Mapping[str, tuple[str, ...]] = {
    name: tuple(metric for metric in METRICS if f"as: {metric}" in presets.text(name))
    for name in presets.names()
    if name.startswith(DEVICES)
}
"""Names with `_current`; each except memory_utilization also exists with `_over_time`."""

SERVER_METRICS: Mapping[str, tuple[str, str]] = {
    "requests_waiting_current": ("requests", "sum of the requests that wait"),
    "requests_running_current": ("requests", "sum of the requests in the running batches"),
    "requests_active_current": ("requests", "sum of both"),
    "kv_cache_utilization_current": ("%", "used KV cache of the fullest engine"),
    "prompt_tokens_per_second_over_time": ("tokens/s", "sum, mean of two minutes"),
    "generation_tokens_per_second_over_time": ("tokens/s", "sum, mean of two minutes"),
    "requests_per_second_over_time": ("requests/s", "sum, mean of two minutes"),
    "time_to_first_token_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "inter_token_latency_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "request_latency_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "queue_time_p95_milliseconds_over_time": ("ms", "95th percentile of five minutes"),
    "queue_time_average_milliseconds_over_time": ("ms", "mean of five minutes"),
}
"""API names of the presets for model servers -> unit, and value for an object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The exposition of an exporter or a model server."""

    title: str
    presets: tuple[str, ...]
    """Presets that read it; empty if the tests compare no values with them."""
    metrics: frozenset[str]
    """API names that `presets` provide of it."""
    schemes: tuple[str, ...]
    """Schemes in which `duty_cycle_current` exists for nodes."""


@cache  # several recordings name the same presets
def _rules(chosen: tuple[str, ...]) -> Sequence[ruleset.CompiledRule]:
    return ruleset.load([(preset, presets.text(preset)) for preset in chosen]).rules


def _recorded(file: Path) -> Recording:
    text = file.read_text()
    title, second, *_ = text.splitlines()
    names = frozenset(re.findall(r"^[\w:]+", text, re.MULTILINE))
    chosen = tuple(second.removeprefix("# presets:").split()) if "# presets:" in second else ()
    metrics = frozenset(
        rule.config.name.as_ for rule in _rules(chosen) if rule.pinned_series in names
    )
    labels = generations.node_labels(chosen[0]) if chosen else ()
    nodes = "|".join(GOLDEN["nodes"])
    own = any(re.search(f'[{{,]{label}="({nodes})"', text) for label in labels)
    return Recording(
        title=title.removeprefix("# "),
        presets=chosen,
        metrics=metrics,
        schemes=tuple(
            scheme
            for scheme in SCHEMES
            if "duty_cycle_current" in metrics and (own or (scheme == "bare" and "node" in labels))
        ),
    )


def _all_recorded(files: Mapping[str, Path]) -> Mapping[str, Recording]:
    recorded = {name: _recorded(file) for name, file in files.items()}
    return dict(sorted(recorded.items(), key=lambda each: (each[1].presets[:1], each[0])))


EVERY_VARIANT = _all_recorded({each.name: min(each.glob("*.prom")) for each in EXPORTERS.iterdir()})
"""Exporter variant -> its exposition, that of the first node."""
VARIANTS = {name: each for name, each in EVERY_VARIANT.items() if each.presets}
TITLES = {name: each.title for name, each in EVERY_VARIANT.items()} | {
    each.stem: each.read_text().partition("\n")[0].removeprefix("# ")
    for each in ACCELERATED.iterdir()
}
"""Exporter variant -> its title."""
SERVERS = {
    name: each
    for name, each in _all_recorded(
        {each.stem: each for each in (FIXTURES / "servers").iterdir()}
    ).items()
    if each.presets
}
"""Model server and release -> its exposition in tests/fixtures/servers."""
