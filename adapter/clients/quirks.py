"""Texts of backends with Prometheus' API that mean the same: one table for all of them."""

from __future__ import annotations

import enum
import functools
import re


class Meaning(enum.Enum):
    """What a text of a backend says."""

    OVER_LIMIT = "a query reaches a limit of series, samples, chunks or bytes"
    TOO_LONG = "the text of a query is too long"
    NO_TENANT = "the request lacks X-Scope-OrgID"
    ONLY_ADVICE = "a warning is about the query, and the response is whole"


_QUIRKS = (
    ("Prometheus", Meaning.OVER_LIMIT, "would load too many samples"),
    ("Mimir", Meaning.OVER_LIMIT, "err-mimir-max-|the query exceeded the maximum"),
    ("Cortex", Meaning.OVER_LIMIT, "the query hit the (max|aggregated)"),
    (
        "Thanos, Cortex",
        Meaning.OVER_LIMIT,
        r"exceeded (series|chunks|samples|bytes|\w+ size) limit",
    ),
    ("Thanos, Cortex", Meaning.OVER_LIMIT, r"limit \d+ violated"),
    ("VictoriaMetrics", Meaning.OVER_LIMIT, r"-search\.max"),
    ("VictoriaMetrics", Meaning.OVER_LIMIT, "(matching timeseries|time series found) exceed"),
    ("VictoriaMetrics", Meaning.TOO_LONG, "too long"),
    ("Mimir, Cortex, Loki", Meaning.NO_TENANT, "no org id"),
    ("Prometheus", Meaning.ONLY_ADVICE, "^PromQL (warning|info):"),
    # It sends ten warnings, and the number of the others.
    ("Prometheus", Meaning.ONLY_ADVICE, r"^\d+ more (warning|info) annotations omitted$"),
)
"""Backend, meaning, and a pattern that its texts with this meaning contain."""
_TOO_LONG = frozenset({413, 414, 431})
"""Statuses with which proxies refuse the length of a request."""


@functools.cache
def _pattern(meaning: Meaning) -> re.Pattern[str]:
    return re.compile("|".join(pattern for _, meant, pattern in _QUIRKS if meant is meaning))


def says(text: str, meaning: Meaning) -> bool:
    """Return whether a text of a backend has this meaning."""
    return bool(_pattern(meaning).search(text))


def is_too_long(status: int, text: str) -> bool:
    """Return whether a backend, or a proxy before it, refuses the length of a query."""
    return status in _TOO_LONG or says(text, Meaning.TOO_LONG)
