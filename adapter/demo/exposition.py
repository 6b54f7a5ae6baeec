"""Renders readings of GPUs in the text format of Prometheus, as an exporter would."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from adapter.demo.fleet import Gpu, Reading
from adapter.demo.generations import Generation


def render(readings: Iterable[tuple[Gpu, Reading]], generation: Generation) -> str:
    """Return the exposition of one node's exporter.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    gpus = tuple(readings)
    lines: list[str] = []
    for series in generation.series:
        lines.append(f"# HELP {series.name} {series.help}")
        lines.append(f"# TYPE {series.name} gauge")
        for gpu, reading in gpus:
            if series.whole and gpu.instance is not None:
                continue
            if gpu.pod is None and not generation.idle:
                continue
            labels = label_set(generation.labels(gpu))
            lines.append(f"{series.name}{labels} {series.value(reading):.10g}")
    return "\n".join(lines) + "\n"


def label_set(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample, in braces."""
    pairs: list[str] = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace('"', r"\"")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"
