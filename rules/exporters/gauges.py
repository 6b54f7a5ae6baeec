"""Names of series that are gauges, and of which series a query computes a rate.

Only names that leave no doubt: those that presets read, those of well-known exporters, and usual
endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules import syntax
from rules.exporters import generations
from rules.syntax import Call, Expression, MatrixSelector

_COUNTERS = re.compile(r".*_(total|count|sum|bucket|created)|.*TOTAL_ENERGY.*")
_GAUGES = re.compile(
    r"""
      DCGM_FI_DEV_(\w*_UTIL|\w*_TEMP|\w*_CLOCK|FB_\w+|POWER_USAGE)
    | DCGM_FI_PROF_\w+_ACTIVE
    | dcgm_(gpu_utilization|mem_copy_utilization|fb_\w+|gpu_temp|power_usage)
    | nvidia_(gpu|smi)_(duty_cycle|memory_\w*bytes|temperature_\w+|power_usage_\w+|utilization_\w+)
    | nv_gpu_(utilization|memory_\w+_bytes|power_usage|power_limit)
    | (vllm|lmdeploy):(num_requests_\w+|\w+_cache_usage_perc)
    | sglang[:_](num_\w+_reqs|token_usage)
    | nv_trt_llm_\w+_metrics
    | kube_\w+
    | container_memory_(cache|rss|swap|usage_bytes|working_set_bytes)
    | rabbitmq_queue_messages(_\w+)?
    | aws_sqs_approximate_\w+
    | up
    | .*_(lag|depth|percent|percentage|ratio|celsius|utilization|temperature|queue_length|inflight)
    | .*_(duty_cycle|utilization)_(current|average)
    """,
    re.VERBOSE,
)

RATES = frozenset(("rate", "irate", "increase"))


def is_gauge(series: str) -> bool:
    """Return whether the name tells that the series is a gauge."""
    if _COUNTERS.fullmatch(series):
        return False
    return series in generations.GAUGES or bool(_GAUGES.fullmatch(series))


def rated(expression: Expression) -> Iterator[str]:
    """Yield the names of the series of which a query computes a rate; empty for no name."""
    return map(ranged, calls(expression, RATES))


def calls(expression: Expression, names: frozenset[str]) -> Iterator[Call]:
    """Yield the calls of functions with these names."""
    return (each for each in syntax.every(expression, Call) if each.function in names)


def ranged(call: Call) -> str:
    """Return the name of the series of which a function takes a range; empty if there is none."""
    for argument in call.arguments:
        if isinstance(argument, MatrixSelector):
            return argument.selector.name
    return ""


def warning(series: str) -> str:
    """Return the warning about a rate of a gauge."""
    return (
        f"computes a rate of {series}, which is a gauge: each decrease counts as a counter reset, "
        "and the result has no meaning. Use the value itself, avg_over_time() or deriv()"
    )
