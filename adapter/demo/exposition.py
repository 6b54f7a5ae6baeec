"""The fleet in Prometheus' text exposition format, as each exporter generation writes it."""

from __future__ import annotations

from collections.abc import Mapping

from adapter.demo.fleet import Fleet
from adapter.demo.generations import Generation


def render(fleet: Fleet, generation: Generation, node: str, seconds: float) -> str:
    """What the exporter on `node` answers `seconds` after the start.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    readings = tuple(fleet.readings(node, seconds))
    lines: list[str] = []
    for series in generation.series:
        lines.append(f"# HELP {series.name} {series.help}")
        lines.append(f"# TYPE {series.name} gauge")
        for gpu, reading in readings:
            if (series.whole and gpu.instance is not None) or (
                gpu.pod is None and not generation.idle
            ):
                continue
            lines.append(
                f"{series.name}{_labels(generation.labels(gpu))} {series.value(reading):.10g}"
            )
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    escaped = (
        f'{name}="{value.replace(chr(92), chr(92) * 2).replace(chr(34), chr(92) + chr(34))}"'
        for name, value in labels.items()
    )
    return "{" + ",".join(escaped) + "}"
