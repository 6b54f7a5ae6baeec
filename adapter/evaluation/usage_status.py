"""Outcome of the latest evaluation of each query of `resourceRules`, for /readyz.

`evaluation` evaluates them. Requests for metrics.k8s.io give 200 or 404 also if every query fails.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from adapter import errors
from adapter.evaluation.snapshot import Snapshot
from rules.query.plan import Plan

_EMPTY_FOR = 60.0
"""Seconds without usage of any object after which a query counts as broken: new pods have none."""


class UsageStatus:
    """State of the queries that requests needed. `clock` returns Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._problems: dict[str, tuple[str, float]] = {}
        """Path of a query in the rules -> what is wrong, if anything, and since when."""

    def succeeded(self, plan: Plan, snapshot: Snapshot) -> None:
        """Note the result of the only step of `plan`."""
        self._note(plan, "" if any(snapshot.samples[0].values()) else "no usage")

    def failed(self, plan: Plan) -> None:
        """Note that the query of `plan` failed."""
        self._note(plan, "fails")

    def _note(self, plan: Plan, problem: str) -> None:
        path = plan.steps[0].rule.config.where.path
        if path not in self._problems or self._problems[path][0] != problem:
            self._problems[path] = problem, self._clock()

    def check(self) -> str:
        """Return for /readyz what is known. The text does not quote Prometheus."""
        now = self._clock()
        broken = [
            f"{path}: {problem} since {_utc(since)}"
            for path, (problem, since) in sorted(self._problems.items())
            if problem == "fails" or (problem and now - since >= _EMPTY_FOR)
        ]
        if broken:
            return errors.Degradation(f"{'; '.join(broken)}; see the log")
        return "no query fails" if self._problems else "not requested yet"


def _utc(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat(timespec="seconds")
