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
_KEPT_FOR = 300.0
"""Seconds after its last request after which the state of a query is not known any more."""


class UsageStatus:
    """State of the queries that requests needed. `clock` returns Unix seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._conditions: dict[CompiledRule, tuple[Condition, float]] = {}
        """With the time of the last request."""

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
        condition, _ = self._present().get(rule) or (Condition(self._clock), 0.0)
        condition.becomes(problem)
        self._conditions[rule] = condition, self._clock()

    def _present(self) -> dict[CompiledRule, tuple[Condition, float]]:
        """Return the conditions of the queries that were requested in the last minutes."""
        oldest = self._clock() - _KEPT_FOR
        return {rule: each for rule, each in self._conditions.items() if each[1] >= oldest}

    def check(self) -> Finding:
        """Return for /readyz what is known. The text does not quote Prometheus."""
        now, present = self._clock(), self._present()
        broken = [
            f"{rule.config.where.path}: {each.problem} since {utc(each.began)}"
            for rule, (each, _) in present.items()
            if each.problem == "fails" or (each.problem and now - each.began >= _EMPTY_FOR)
        ]
        if broken:
            return degraded(f"{'; '.join(sorted(broken))}; see the log")
        return passes("no query fails" if present else "not requested lately")
