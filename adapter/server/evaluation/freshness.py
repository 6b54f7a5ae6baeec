"""Freshness: how long one evaluation may answer later requests. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rules.query.catalog import Step

_SHORTEST = 1.0
_LONGEST = 5.0
_STRETCH = 50.0
"""An evaluation that takes a whole core for its duration then costs at most a fiftieth of one."""


def freshness(steps: Sequence[Step], default: float | None, took: float = 0.0) -> float:
    """Return the seconds for which an evaluation of `steps` is shared, if it took `took` seconds.

    Of several rules that set a freshness, the shortest counts. `default` is for rules that set
    none: 0 shares nothing in time, and None is automatic: 1 s, stretched to fifty times the
    duration of the last evaluation, at most 5 s.
    """
    own = [each for step in steps if (each := step.rule.config.freshness) is not None]
    if own:
        return min(own)
    return min(max(_SHORTEST, _STRETCH * took), _LONGEST) if default is None else default
