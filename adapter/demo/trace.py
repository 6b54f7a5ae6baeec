"""Recording of a real H200 that served BERT at a varying request rate.

`h200-bert-serving.csv` has the columns of nvidia-smi, and one row per second.
"""

from __future__ import annotations

import csv
import importlib.resources
from dataclasses import dataclass

FILE = "h200-bert-serving.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One second of the recording."""

    utilization: float
    """Percentage of the second in which a kernel ran."""
    memory_utilization: float
    """Percentage of the second in which the memory controller was busy."""
    memory_used: float
    """MiB."""
    temperature: float
    """Degrees Celsius."""
    power: float
    """Watts."""
    sm_clock: float
    """MHz."""
    memory_clock: float
    """MHz."""


def load() -> tuple[Moment, ...]:
    """Return the recording in chronological order."""
    text = importlib.resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    return tuple(
        Moment(
            utilization=float(row["utilization.gpu"]),
            memory_utilization=float(row["utilization.memory"]),
            memory_used=float(row["memory.used"]),
            temperature=float(row["temperature.gpu"]),
            power=float(row["power.draw"]),
            sm_clock=float(row["clocks.sm"]),
            memory_clock=float(row["clocks.mem"]),
        )
        for row in csv.DictReader(text.splitlines())
    )
