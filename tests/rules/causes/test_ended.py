"""Series that ended; tests/adapter/api/test_causes.py has real ones."""

from __future__ import annotations

from rules import ruleset
from rules.causes import ended


def test_a_rule_whose_series_did_not_end_has_no_cause():
    (rule,) = ruleset.load([("rules.yaml", "rules: [{seriesQuery: a, metricsQuery: m}]")]).rules

    assert ended.of_rule(rule, {"last": ()}, 10_000.0) is None
