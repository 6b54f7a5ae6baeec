"""Reloads under load, and the check of their measurements.

`RELOADS=1000 AUTOSCALERS=300 PERIOD=15 pytest -s tests/tools/bench/test_reloads.py` prints the
figures of the benchmarks.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tools.bench import reloads
from tools.bench.reloads import Result

RELOADS = int(os.environ.get("RELOADS", "60"))
AUTOSCALERS = int(os.environ.get("AUTOSCALERS", "20"))
PERIOD = float(os.environ.get("PERIOD", "0.5"))
"""Seconds between two requests of an autoscaler."""


@pytest.mark.usefixtures("real_servers")
def test_reloads_fail_no_request_mix_no_rules_and_query_no_unchanged_rule() -> None:
    result = reloads.measure(RELOADS, AUTOSCALERS, PERIOD)

    print(result)
    assert [*result.problems()] == []
    assert (result.reloads, result.bad) == (RELOADS, RELOADS // 2)


@pytest.mark.parametrize(
    ("measured", "problem"),
    [
        ({}, ""),
        ({"failed": Counter({"503": 1})}, "requests failed: {'503': 1}"),
        ({"answers": 0}, "nothing was requested"),
        ({"wrong": ["[2, 3]", "[3, 2]"]}, "2 answers are wrong, the first: [2, 3]"),
        ({"queries": 1}, "1 queries for the unchanged rule"),
        ({"rss": [50, 100, 111]}, "RSS grew from 100 MiB to 111 MiB in the second half"),
    ],
)
def test_broken_claims_are_problems(measured, problem) -> None:
    result = Result(**{"answers": 1, "rss": [50, 100, 109], **measured})

    assert "".join(result.problems()) == problem
