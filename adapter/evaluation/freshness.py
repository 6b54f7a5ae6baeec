"""Freshness: how long one evaluation may answer later requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rules.query.catalog import Step

_SHORTEST = 1.0
_LONGEST = 5.0
_STRETCH = 50.0
"""An evaluation that takes a whole core for its duration then costs at most a fiftieth of one."""


class Freshness:
    """Freshness of the evaluations of a server.

    `seconds` is for the rules that do not set their own: 0 shares nothing in time, and None is
    automatic: 1 s, stretched to fifty times the duration of the last evaluation, at most 5 s.
    """

    def __init__(self, seconds: float | None = None) -> None:
        self._seconds = seconds

    def of(self, steps: Sequence[Step], took: float = 0.0) -> float:
        """Return the seconds for which an evaluation of `steps` is shared, if it took `took` s.

        Of several rules that set a freshness, the shortest counts.
        """
        own = [each for step in steps if (each := step.rule.config.freshness) is not None]
        if own:
            return min(own)
        if self._seconds is not None:
            return self._seconds
        return min(max(_SHORTEST, _STRETCH * took), _LONGEST)
