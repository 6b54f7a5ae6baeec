"""The key `ahead` of a rule, which commands have as a flag: it imports no parser of YAML."""

from __future__ import annotations

from dataclasses import dataclass

from rules import quantity
from rules.errors import DurationError

_HOUR = 3600.0
_SHORTEST_SEASON, _LONGEST_SEASON = _HOUR, 35 * 24 * _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """`ahead`: how values follow the load of one season ago. Times are in seconds."""

    season: float
    """After which the load repeats."""
    horizon: float | None = None
    """How far ahead of the present the load is; None for the measured start of a pod."""


def parse(text: str) -> Ahead | None:
    """Return `7d:4m` or `7d`; None for empty text. Raises ValueError with what it must be."""
    if not text:
        return None
    try:
        parts = [quantity.prometheus_duration(each) / 1e9 for each in text.split(":")]
    except DurationError as error:
        raise ValueError(f"must be SEASON or SEASON:HORIZON, such as 7d:4m: {error}") from error
    if len(parts) > 2:
        raise ValueError("must be SEASON or SEASON:HORIZON, such as 7d:4m")
    season, horizon = parts[0], parts[1] if parts[1:] else None
    if wrong := problem(season, horizon):
        raise ValueError(f"the {' '.join(wrong)}")
    return Ahead(season=season, horizon=horizon)


def problem(season: float, horizon: float | None) -> tuple[str, str] | None:
    """Return which of the keys of `ahead` cannot be so, and what it must be; both in seconds."""
    if not _SHORTEST_SEASON <= season <= _LONGEST_SEASON:
        return "season", "must be from 1h to 35d, such as 1d or 7d"
    if horizon is not None and not 0 < horizon <= min(season / 2, _HOUR):
        return "horizon", (
            "must be at most 1h, and half of the season: write the time that "
            "a new pod takes to start, or remove it"
        )
    return None
