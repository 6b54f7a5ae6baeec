"""Flags for the values of metrics: how long they are kept, and whether they may be partial."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.settings.flag import FlagGroup, FlagType, flag
from adapter.settings.flag_types import SWITCH, duration


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
        "most 5s. With 0, each request is queried, as in the original. A rule may set its own "
        "`freshness`.",
        default="auto",
    )
    allow_partial_responses: bool = flag(
        "allow-partial-responses",
        SWITCH,
        "Serve values that lack what Prometheus says that its response lacks, as while a storage "
        "node is down. Without it, requests for them fail, except those for the metrics of all "
        "selected pods. A rule may set its own `allowPartialResponse`.",
        default="false",
    )
