"""Outcome of the latest evaluation of each query of `resourceRules`, for /readyz.

`evaluation` evaluates them. Requests for metrics.k8s.io give 200 or 404 also if every query fails.
"""

from __future__ import annotations

from collections.abc import Callable, Container

from adapter.background import Condition, utc
from adapter.server.evaluation.snapshot import Snapshot
from rules.findings import Finding, degraded, passes
from rules.query.plan import Plan
from rules.ruleset import CompiledRule

_EMPTY_FOR = 60.0
"""Seconds without usage of any object after which a query counts as broken: new pods have none."""


class UsageStatus:
    """State of the queries that requests needed. `clock` returns Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._conditions: dict[CompiledRule, Condition] = {}

    def retain(self, rules: Container[CompiledRule]) -> None:
        """Forget all other queries."""
        kept = {rule: each for rule, each in self._conditions.items() if rule in rules}
        self._conditions = kept

    def succeeded(self, plan: Plan, snapshot: Snapshot) -> None:
        """Note the result of the only step of `plan`."""
        self._note(plan, "" if any(snapshot.samples[0].values()) else "no usage")

    def failed(self, plan: Plan) -> None:
        """Note that the query of `plan` failed."""
        self._note(plan, "fails")

    def _note(self, plan: Plan, problem: str) -> None:
        rule = plan.steps[0].rule
        self._conditions.setdefault(rule, Condition(self._clock)).becomes(problem)

    def check(self) -> Finding:
        """Return for /readyz what is known. The text does not quote Prometheus."""
        now = self._clock()
        broken = [
            f"{rule.config.where.path}: {each.problem} since {utc(each.began)}"
            for rule, each in self._conditions.items()
            if each.problem == "fails" or (each.problem and now - each.began >= _EMPTY_FOR)
        ]
        if broken:
            return degraded(f"{'; '.join(sorted(broken))}; see the log")
        return passes("no query fails" if self._conditions else "not requested yet")
