"""What a real H200 reported, second by second, while it served BERT at a changing request rate.

The recording is `h200-bert-serving.csv` beside this file: nvidia-smi's own columns, a row a second.
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
    """Per cent of the second in which at least one kernel ran."""
    memory_utilization: float
    """Per cent of the second in which the memory controller was busy."""
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
    """The recording, in order."""
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
