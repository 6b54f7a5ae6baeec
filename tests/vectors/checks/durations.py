"""Check of durations.json: nanoseconds of Go's and Prometheus' durations.

Nothing here formats durations. The original's own text of a duration must parse to the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules import quantity
from rules.errors import DurationError
from tests.vectors.expect import same

_PARSE = {"go": quantity.go_duration, "prometheus": quantity.prometheus_duration}


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    parse = _PARSE[case["kind"]]
    try:
        nanoseconds = parse(case["text"])
    except DurationError as error:
        same(str(error), case.get("error", f"{case.get('ns')} ns"), "error")
        return
    same(str(nanoseconds), case.get("ns", f"error: {case.get('error')}"), "ns")
    if "ms" in case:
        same(str(nanoseconds // 1_000_000), case["ms"], "ms")
    same(parse(case["string"]), nanoseconds, "string, parsed")
