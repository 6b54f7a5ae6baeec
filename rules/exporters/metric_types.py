"""Names of series that are gauges or counters, and what queries must not do with them.

Only names that leave no doubt: those that presets read, those of well-known exporters, and usual
endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rules import syntax
from rules.exporters import generations

_NO_GAUGES = re.compile(r".*_(total|count|sum|bucket|created)|.*TOTAL_ENERGY.*")
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
    if _NO_GAUGES.fullmatch(series):
        return False
    return series in generations.GAUGES or bool(_GAUGES.fullmatch(series))


def rated(expression: syntax.Expression) -> Iterator[str]:
    """Yield the names of the series of which a query computes a rate; empty for no name."""
    return map(ranged, calls(expression, RATES))


def calls(expression: syntax.Expression, names: frozenset[str]) -> Iterator[syntax.Call]:
    """Yield the calls of functions with these names."""
    return (each for each in syntax.every(expression, syntax.Call) if each.function in names)


def ranged(call: syntax.Call) -> str:
    """Return the name of the series of which a function takes a range; empty if there is none."""
    for argument in call.arguments:
        if isinstance(argument, syntax.MatrixSelector):
            return argument.selector.name
    return ""


def warning(series: str) -> str:
    """Return the warning about a rate of a gauge."""
    return (
        f"computes a rate of {series}, which is a gauge: each decrease counts as a counter reset, "
        "and the result has no meaning. Use the value itself, avg_over_time() or deriv()"
    )


_COUNTERS = re.compile(
    r".*(?<!memory)_(total|bucket)"
    r" | .*_(seconds|milliseconds|ms|us|bytes|length|tokens)_(count|sum)"
    r" | nv_inference_(request_(success|failure)|count|exec_count|\w+_duration_us)",
    re.VERBOSE,
)
_TIMES = re.compile(
    r".*(duration|latency|_time)(_\w+)?_(?P<unit>us|ms|milliseconds|seconds)(_sum|_total)?"
)
_IN_A_SECOND = {"us": "1,000,000 times ", "ms": "1,000 times ", "milliseconds": "1,000 times "}
"""Unit of a time -> how much larger its rate is than that in seconds."""
_DIFFERENCES = frozenset(("delta", "idelta"))
_OVER_COUNTERS = frozenset(("absent", "timestamp", "changes", "resets"))
"""Functions of counters that mean something."""
_COUNTING = frozenset(("count", "group"))
"""Aggregations that ignore the value."""


def is_counter(series: str) -> bool:
    """Return whether the name tells that the series is a counter."""
    return series not in generations.GAUGES and bool(_COUNTERS.fullmatch(series))


def problems(expression: syntax.Expression) -> Iterator[str]:
    """Yield a warning for each use of a counter in a query that has no meaning."""
    for name in filter(is_counter, raw(expression)):
        yield of_raw(name)
    for call in calls(expression, _DIFFERENCES):
        if (name := ranged(call)) and is_counter(name):
            yield (
                f"computes {call.function}() of {name}, which is a counter: negative after each "
                "restart. Use increase() or rate()"
            )
    for name, times in _undivided(expression):
        yield (
            f"computes a rate of {name}, a time that adds up: that is {times}the mean number of "
            "requests at once, not the time of one. Divide it by the rate of the requests"
        )


def of_raw(name: str) -> str:
    """Return the warning about a counter whose value is used as it is."""
    return (
        f"takes the value of {name}, by its name or type a counter, which only grows and falls to "
        f"0 at a restart. Use rate({name}[2m]), or increase()"
    )


def raw(expression: syntax.Expression) -> Iterator[str]:
    """Yield the names of the series whose value is used as it is."""
    nodes = syntax.walk(expression, _used_as_they_are)
    return (node.name for node in nodes if isinstance(node, syntax.VectorSelector))


def _used_as_they_are(node: syntax.Expression) -> tuple[syntax.Expression, ...]:
    """Return the operands of which the result shows the values."""
    match node:
        case syntax.MatrixSelector() | syntax.Subquery():
            return ()  # `rate` or `increase` of it
        case syntax.Binary(operator="-"):
            return ()  # a difference, such as that with an offset
        case syntax.Binary(operator="and" | "unless"):
            return (node.left,)
        case syntax.Aggregation():
            return () if node.operator in _COUNTING else (node.expression,)
        case syntax.Call() if node.function in _OVER_COUNTERS:
            return ()
        case _:
            return syntax.children(node)


def _undivided(expression: syntax.Expression) -> Iterator[tuple[str, str]]:
    """Yield the summed times whose rate is not divided by another rate, as `_IN_A_SECOND`."""
    with_rate: set[int] = set()
    """id of each expression that is a rate, or has one below."""
    for node in reversed(list(syntax.walk(expression))):
        of_rate = isinstance(node, syntax.Call) and node.function in RATES
        if of_rate or any(id(each) in with_rate for each in syntax.children(node)):
            with_rate.add(id(node))

    def below(node: syntax.Expression) -> tuple[syntax.Expression, ...]:
        match node:
            case syntax.Binary(operator="/") if id(node.right) in with_rate:
                return ()
            case syntax.Subquery():
                return ()
            case syntax.Call() if node.function in RATES:
                return ()
            case syntax.Aggregation():
                return (node.expression,)
            case _:
                return syntax.children(node)

    for node in syntax.walk(expression, below):
        if isinstance(node, syntax.Call) and node.function in RATES:
            name = ranged(node)
            if is_counter(name) and (time := _TIMES.fullmatch(name)):
                yield name, _IN_A_SECOND.get(time["unit"], "")
