"""Flags for the relist, which finds out which metrics exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import duration
from rules.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RelistSettings(FlagGroup):
    """How often series are listed, and which ones."""

    TITLE = "Relist"

    interval: float = flag(
        "metrics-relist-interval",
        duration(positive=True),
        "Time between two relists of the series in Prometheus.",
        default="10m",
    )
    max_age: float = flag(
        "metrics-max-age",
        duration(),
        "A relist covers series that had a sample within this time. Must not be shorter than "
        "--metrics-relist-interval; 0 means the same.",
        default="0s",
    )

    def problems(self) -> Iterator[Finding]:
        """Yield a problem if series would be lost between two relists."""
        if 0 < self.max_age < self.interval:
            yield Finding(
                subject=f"--metrics-max-age={self.max_age:g}s",
                fact=f"is shorter than --metrics-relist-interval={self.interval:g}s; series would "
                "be lost between two relists",
            )
