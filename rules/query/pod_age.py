"""How long pods have been Ready, for `minPodAge` of rules, and when they had first samples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class FirstSamples(NamedTuple):
    """Times of the first samples of pods within the last hour, in Unix seconds."""

    since: float
    """Since when Prometheus has series of the rule, of any pod: a pod created earlier may have had
    samples before."""
    pods: Mapping[str, float]
    """By name of the pod."""


def too_young(
    ready: Mapping[str, float], names: Iterable[str], *, now: float, seconds: float
) -> Mapping[str, float]:
    """Return those of `names` that have been Ready for less than `seconds`, and for how long.

    `ready` has the Unix seconds since which pods are Ready; it is 0 for pods that are not in it.
    """
    latest = now - seconds
    young = {}
    for name in names:
        since = ready.get(name)
        if since is None:
            young[name] = 0.0
        elif since > latest:
            young[name] = max(0.0, now - since)
    return young
