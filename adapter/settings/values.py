"""Flags for the metrics: how often series are listed, how long values are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from adapter.settings.flag import SWITCH, FlagGroup, FlagType, duration, flag
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


def _freshness(text: str) -> float | None:
    return None if text == "auto" else duration().parse(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesSettings(FlagGroup):
    """How results of queries become values."""

    TITLE = "Values"

    query_freshness: float | None = flag(
        "query-freshness",
        FlagType(name="duration", parse=_freshness),
        "Time for which the result of a query answers later requests; the timestamp of a value "
        "tells its age. `auto` means 1s, stretched to fifty times the duration of the query, at "
        "most 5s, and at most the scrape interval of the Prometheus in the pod. With 0, each "
        "request is queried, as in the original. A rule may set its own `freshness`.",
        default="auto",
    )
    allow_partial_responses: bool = flag(
        "allow-partial-responses",
        SWITCH,
        "Serve values that lack what Prometheus says that its response lacks, as while a storage "
        "node is down. Without it, requests for them fail, except those for the metrics of all "
        "selected pods. A rule may set its own `allowPartialResponse`.",
    )
