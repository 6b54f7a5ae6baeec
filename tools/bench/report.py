"""Table and claims of the load benchmark. Pure.

Each row is a ratio within one run, with the absolute value in parentheses.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from tools.bench.load import ClosedResult, OpenResult, in_json
from tools.bench.workload import Size

MAX_FAILED = 0.01
"""Limit of the requests without status 200, as a share of all."""
MAX_LISTS = 0.01
"""Limit of LISTs per request."""
MAX_CPU_RATIO = 12.0
"""Limit of the CPU time of the server per request in the open loop, compared with the bare
handler's. Latencies have no limit: they depend on what else the machine does."""
MIN_RATE_RATIO = 0.3
"""Limit of requests per second in the closed loop, compared with the bare handler's."""
MIN_PROTOBUF_RATIO = 0.9
"""Limit of requests per second in protobuf, compared with JSON. Encoded answers are remembered, so
they are equal but for noise."""
MAX_RSS_RATIO = 2.0
"""Limit of the resident memory after the open loop, compared with that before it."""

MAX_REGRESSION = 1.1
"""Limit of the CPU time per request, and of the memory, compared with another version."""

Column = tuple[str, Size, OpenResult]
"""Server, size and measurements."""


def _ratio(value: float, unit: float) -> float:
    """Return a quotient; NaN of 0, such as of CPU time that is shorter than a tick."""
    return value / unit if unit else math.nan


def failed(result: OpenResult) -> float:
    """Return the share of requests without status 200."""
    return 1 - result.statuses.get("200", 0) / sum(result.statuses.values())


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"


def _cpu(seconds: float, unit: float, result: OpenResult) -> str:
    """Render CPU seconds per request, compared with `unit`, which is per request, too."""
    per_request = seconds / result.answered
    return f"{_ratio(per_request, unit):.3g} ({_duration(per_request)})"


def _per_request(count: float, result: OpenResult) -> str:
    return f"{count / result.answered:.3g} ({count:.0f})"


_ROWS: tuple[tuple[str, Callable[[OpenResult], str]], ...] = (
    ("not 200, per request", lambda r: f"{failed(r):.3g}"),
    ("p50, x bare", lambda r: f"{_ratio(r.p50, r.bare_p50):.3g} ({_duration(r.p50)})"),
    ("p99, x bare", lambda r: f"{_ratio(r.p99, r.bare_p99):.3g} ({_duration(r.p99)})"),
    ("CPU of the server, x bare", lambda r: _cpu(r.cpu, r.bare_cpu / r.bare_answered, r)),
    ("CPU of Prometheus, x server", lambda r: _cpu(r.prometheus_cpu, r.cpu / r.answered, r)),
    ("CPU of the API server, x server", lambda r: _cpu(r.kubernetes_cpu, r.cpu / r.answered, r)),
    ("LISTs, per request", lambda r: _per_request(r.lists, r)),
    ("watches of pods (begun)", lambda r: f"{r.open_watches} ({r.watches})"),
    ("reviews, per request", lambda r: _per_request(r.reviews, r)),
    (
        "queries, per request",
        lambda r: f"{r.queries / r.answered:.3g} ({r.queries / r.seconds * 60:.0f}/min)",
    ),
    ("relist, per request", lambda r: _per_request(r.relist_requests, r)),
    ("longest stall of the loop", lambda r: _duration(r.stall)),
    ("RSS, x before", lambda r: f"{r.rss / r.rss_before:.2f} ({r.rss:.0f} MiB)"),
)


def open_table(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the lines of the table of the open loop."""
    names = [name for name, _, _ in columns]
    sizes = [f"{size.autoscalers} x {size.pods}" for _, size, _ in columns]
    requests = [str(sum(result.statuses.values())) for _, _, result in columns]
    for title, cells in (("", names), ("autoscalers x pods", sizes), ("requests", requests)):
        yield _line(title, cells)
    for title, render in _ROWS:
        yield _line(title, [render(result) for _, _, result in columns])


_CPU, _MEMORY = "CPU per request, x bare", "RSS"
_COMPARED: Mapping[str, Callable[[OpenResult], float]] = {
    "p50, x bare": lambda r: _ratio(r.p50, r.bare_p50),
    "p99, x bare": lambda r: _ratio(r.p99, r.bare_p99),
    _CPU: lambda r: _ratio(r.cpu / r.answered, r.bare_cpu / r.bare_answered),
    "queries, per request": lambda r: r.queries / r.answered,
    _MEMORY: lambda r: r.rss,
}


def comparison(
    columns: Sequence[Column], closed: Sequence[ClosedResult], name: str, other: str
) -> Iterator[str]:
    """Yield the medians of the server `name`, divided by those of the server `other`."""
    own, others = (_medians(columns, server) for server in (name, other))
    yield _line("open loop", [f"{size.autoscalers} x {size.pods}" for size in own])
    for title in _COMPARED:
        yield _line(title, [f"{_ratio(own[size][title], others[size][title]):.3f}" for size in own])
    found = {each.name: each for each in closed}
    pairs = [(found[a], found[b]) for a, b in ((name, other), (in_json(name), in_json(other)))]
    yield _line("closed loop", ["protobuf", "JSON"])
    yield _line("requests/s", [f"{_ratio(a.rate_ratio, b.rate_ratio):.3f}" for a, b in pairs])
    yield _line("CPU per request", [f"{_ratio(a.cpu_ratio, b.cpu_ratio):.3f}" for a, b in pairs])


def regressions(columns: Sequence[Column], name: str, other: str) -> Iterator[str]:
    """Yield what costs the server `name` more than a tenth more than the server `other`."""
    others = _medians(columns, other)
    for size, medians in _medians(columns, name).items():
        for title in (_CPU, _MEMORY):
            ratio = _ratio(medians[title], others[size][title])
            if ratio > MAX_REGRESSION:
                yield f"{size}: {title}: {ratio:.3f} times that of the {other} version"


def _medians(columns: Sequence[Column], server: str) -> Mapping[Size, Mapping[str, float]]:
    """Return the medians of a server's open loops, by size and title."""
    runs: dict[Size, list[OpenResult]] = {}
    for each, size, result in columns:
        if each == server:
            runs.setdefault(size, []).append(result)
    return {
        size: {title: statistics.median(map(value, own)) for title, value in _COMPARED.items()}
        for size, own in runs.items()
    }


def _line(title: str, cells: Sequence[str]) -> str:
    return f"{title:<32}" + "".join(f"{cell:>22}" for cell in cells)


def details(columns: Sequence[Column]) -> Iterator[str]:
    """Yield the statuses other than 200, and the counters of caches and evaluations."""
    for name, size, result in columns:
        others = {key: count for key, count in result.statuses.items() if key != "200"}
        if others:
            yield f"{name} {size}: responses by status: {others}"
        for counter, value in result.counters.items():
            yield f"{name} {size}: {counter} {value:.10g}"


def closed_table(results: Sequence[ClosedResult]) -> Iterator[str]:
    """Yield the lines of the table of the closed loop."""
    columns = (
        *("x bare", "CPU x bare", "requests/s", "CPU ms", "p50 ms", "p99 ms"),
        *("core used", "client's"),
    )
    yield f"{'':<32}" + "".join(f"{column:>11}" for column in columns)
    for each in results:
        yield (
            f"{each.name:<32}{each.rate_ratio:>11.3f}{each.cpu_ratio:>11.2f}"
            f"{each.requests_per_second:>11.0f}{each.cpu * 1000:>11.3f}{each.p50 * 1000:>11.1f}"
            f"{each.p99 * 1000:>11.1f}{each.utilisation:>11.0%}{each.client_utilisation:>11.0%}"
        )


def problems(name: str, columns: Sequence[Column], closed: Sequence[ClosedResult]) -> Iterator[str]:
    """Yield which claims the server called `name` breaks."""
    for server, size, result in columns:
        if server != name:
            continue
        ratios = (
            ("requests without status 200", failed(result), MAX_FAILED),
            ("LISTs per request", result.lists / result.answered, MAX_LISTS),
            (
                "CPU of the server, x bare",
                _ratio(result.cpu / result.answered, result.bare_cpu / result.bare_answered),
                MAX_CPU_RATIO,
            ),
            ("RSS, x before", result.rss / result.rss_before, MAX_RSS_RATIO),
        )
        for what, ratio, limit in ratios:
            if ratio > limit:
                yield f"{size}: {what}: {ratio:.3g}, must be at most {limit:g}"
    rates = {each.name: each.rate_ratio for each in closed}
    if name in rates and rates[name] < MIN_RATE_RATIO:
        yield (
            f"closed loop: requests/s, x bare: {rates[name]:.3f},"
            f" must be at least {MIN_RATE_RATIO:g}"
        )
    if name in rates and (ratio := rates[name] / rates[in_json(name)]) < MIN_PROTOBUF_RATIO:
        yield (
            f"closed loop: requests/s in protobuf, x JSON: {ratio:.3f},"
            f" must be at least {MIN_PROTOBUF_RATIO:g}"
        )
