"""Series of GPU exporters and model servers, and their text in the format of Prometheus.

`series.csv` lists them: what each reports is an attribute of the reading of a GPU, or of the engine
of a server, times a factor. Names and labels are those of the exporters' and servers' sources; the
buckets of histograms are fewer.
"""

from __future__ import annotations

import csv
import importlib.resources
import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from adapter.cli.demo.engine import BOUNDS, Engine, Histogram
from adapter.cli.demo.fleet import GpuReading

MIG_INSTANCE = "GPU_I_ID"
"""Label that only MIG instances have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSeries:
    """One series, or one histogram."""

    name: str
    help: str
    type: str
    labels: Mapping[str, str]
    """Labels that only this series has."""
    attribute: str
    """Of GpuReading or Engine."""
    factor: float
    whole: bool
    """Whether MIG instances lack this series."""

    def lines(self, source: GpuReading | Engine, labels: Mapping[str, str]) -> Iterator[str]:
        """Yield the samples; `labels` are those that all series of the source have."""
        value = operator.attrgetter(self.attribute)(source)
        every = {**labels, **self.labels}
        if not isinstance(value, Histogram):
            yield f"{self.name}{label_set(every)} {value * self.factor:.10g}"
            return
        counted = 0
        for bound, count in zip((*map(str, BOUNDS), "+Inf"), value.counts, strict=True):
            counted += count
            yield f"{self.name}_bucket{label_set({**every, 'le': bound})} {counted}"
        yield f"{self.name}_count{label_set(every)} {counted}"
        yield f"{self.name}_sum{label_set(every)} {value.total:.10g}"


def of(*exporters: str) -> tuple[DemoSeries, ...]:
    """Return the series of some exporters or of a server, in the order of the file."""
    text = importlib.resources.files(__package__).joinpath("series.csv").read_text(encoding="utf-8")
    return tuple(
        DemoSeries(
            name=row["series"],
            help=row["help"],
            type=row["type"],
            labels=dict(pair.split("=") for pair in row["labels"].split()),
            attribute=row["reading"],
            factor=float(row["factor"]),
            whole=bool(row["not_mig"]),
        )
        for row in csv.DictReader(text.splitlines())
        if row["exporter"] in exporters
    )


def render(
    series: Iterable[DemoSeries], sources: Iterable[tuple[GpuReading | Engine, Mapping[str, str]]]
) -> str:
    """Return the exposition of some sources, given with their labels.

    https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format
    """
    found = tuple(sources)
    lines: list[str] = []
    described = ""
    for each in series:
        if each.name != described:
            described = each.name
            lines += (f"# HELP {each.name} {each.help}", f"# TYPE {each.name} {each.type}")
        for source, labels in found:
            if not (each.whole and MIG_INSTANCE in labels):
                lines.extend(each.lines(source, labels))
    return "\n".join(lines) + "\n"


def label_set(labels: Mapping[str, str]) -> str:
    """Return the labels of a sample, in braces."""
    pairs: list[str] = []
    for name, value in labels.items():
        escaped = value.replace("\\", r"\\").replace('"', r"\"")
        pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}"
