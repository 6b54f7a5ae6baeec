"""Check of expand.json: the metric that `name.matches` and `name.as` give a series."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules import naming
from rules.errors import PatternError
from tests.vectors.expect import same


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    try:
        namer = naming.compile(case["matches"], case["as"])
    except PatternError as error:
        if "error" not in case:
            same(f"refused: {error}", case.get("metric"), "metric")
        return
    metric = namer.metric(case["series"])
    same(metric, case.get("metric", case.get("error")), "metric")
    same(metric is not None, case["matched"], "matched")
