"""Load of HPA controllers on a server: an open loop at the pace of autoscalers, and a closed loop.

Numbers that depend on the machine are measured together with a bare aiohttp handler: in the open
loop at the same time, in the closed loop in alternating rounds.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tools.bench import api_server, client, processes, testbed
from tools.bench.client import JSON, PROTOBUF, ClosedJob, OpenJob
from tools.bench.testbed import Running, Server, Testbed

_START = 1.0
"""Seconds that the load generators get to start before the first request is due."""
_SEED = 13
_LOOPS = ("asyncio", "uvloop")
_LOOP_FLAG = "--event-loop"
_COUNTER_NAMES = ("_cache_hits_total", "_cache_misses_total")
_COUNTER_PREFIX = "gpu_metrics_adapter_evaluation"
"""Counters of the adapter that are reported if they exist."""
_STALL = "gpu_metrics_adapter_event_loop_stall_seconds"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pace:
    """Durations of the loads, in seconds."""

    period: float = 15.0
    """Time between two requests of an autoscaler; also the warm-up of the open loop."""
    measured: float = 45.0
    round: float = 2.0
    """Duration of one round of the closed loop."""
    rounds: int = 5
    connections: int = 25
    """Connections of the closed loop."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenResult:
    """Measurements of one server in the open loop; counts and times are those after the warm-up."""

    statuses: Mapping[str, int]
    """Requests by status; those without a response by client.LOST."""
    answered: int
    """Requests with a response, and at least 1, since others are divided by it."""
    bare_answered: int
    seconds: float
    p50: float
    p99: float
    bare_p50: float
    bare_p99: float
    cpu: float
    """CPU seconds of the server, as those of the next three."""
    bare_cpu: float
    prometheus_cpu: float
    kubernetes_cpu: float
    lists: int
    """LISTs of pods."""
    watches: int
    """Watches of pods that were begun."""
    open_watches: int
    """Watches of pods that are open at the end."""
    reviews: int
    queries: float
    """Instant queries of Prometheus."""
    relist_requests: float
    """Other requests of Prometheus' API."""
    rss: float
    """MiB at the end."""
    rss_before: float
    """MiB before the load."""
    stall: float
    """Seconds of the longest stall of the adapter's event loop; 0 for another server."""
    counters: Mapping[str, float]
    """Counters of the adapter's caches and evaluations, since its start."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedResult:
    """Measurements of one server in the closed loop: medians of the rounds."""

    name: str
    requests_per_second: float
    cpu: float
    """CPU seconds of the server per request."""
    utilisation: float
    """Share of one core that the server used."""
    client_utilisation: float
    p50: float
    p99: float
    statuses: Mapping[str, int]
    rate_ratio: float
    """Requests per second divided by those of the faster bare handler in the same round."""
    cpu_ratio: float
    """CPU per request, divided likewise."""


def run_open(bed: Testbed, server: Server, pace: Pace) -> OpenResult:
    """Run the open loop on a server and, at the same time, on the bare handler."""
    bed.write_series()
    with contextlib.ExitStack() as stack:
        running = stack.enter_context(bed.start(server))
        response = client.get(running.endpoint, bed.paths[-1])
        bare = stack.enter_context(bed.start_bare(response, _LOOPS[0]))
        bed.wait_until_quiet()
        rss_before = processes.mebibytes(running.pid, "VmRSS")
        begin = time.monotonic() + _START
        measure = begin + pace.period
        end = measure + pace.measured
        jobs = [
            OpenJob(
                endpoint=each.endpoint,
                paths=bed.paths,
                period=pace.period,
                begin=begin,
                measure=measure,
                end=end,
                seed=_SEED + number,
            )
            for number, each in enumerate((running, bare))
        ]
        clients = [stack.enter_context(bed.start_client(job)) for job in jobs]
        time.sleep(max(0.0, measure - time.monotonic()))
        before = _counts(bed, running, bare)
        time.sleep(max(0.0, end - time.monotonic()))
        after = _counts(bed, running, bare)
        result, bare_result = map(testbed.result, clients)
        gauges = _own_metrics(running)
        change = {name: value - before.get(name, 0) for name, value in after.items()}
        return OpenResult(
            statuses=result["statuses"],
            answered=max(1, len(result["latencies"])),
            bare_answered=max(1, len(bare_result["latencies"])),
            seconds=pace.measured,
            p50=_quantile(result["latencies"], 0.5),
            p99=_quantile(result["latencies"], 0.99),
            bare_p50=_quantile(bare_result["latencies"], 0.5),
            bare_p99=_quantile(bare_result["latencies"], 0.99),
            cpu=change["cpu"],
            bare_cpu=change["bare_cpu"],
            prometheus_cpu=change["prometheus_cpu"],
            kubernetes_cpu=change["kubernetes_cpu"],
            lists=int(change.get("list pods", 0)),
            watches=int(change.get("watch pods", 0)),
            open_watches=int(after.get(api_server.OPEN_WATCHES, 0)),
            reviews=int(change.get("create subjectaccessreviews", 0)),
            queries=change["queries"],
            relist_requests=change["others"],
            rss=processes.mebibytes(running.pid, "VmRSS"),
            rss_before=rss_before,
            stall=gauges.get(_STALL, 0.0),
            counters={
                name: value
                for name, value in gauges.items()
                if name.partition("{")[0].endswith(_COUNTER_NAMES)
                or name.startswith(_COUNTER_PREFIX)
            },
        )


def run_closed(bed: Testbed, servers: Sequence[Server], pace: Pace) -> list[ClosedResult]:
    """Run the closed loop on bare handlers and on the servers, round by round.

    Each server is requested in protobuf, as by the HPA controller, and once more in JSON.
    """
    bed.write_series()
    command = (sys.executable, "-m", "adapter", "serve", "--help")
    usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    loops = [loop for loop in _LOOPS if importlib.util.find_spec(loop)]
    with contextlib.ExitStack() as stack:
        started = {
            f"{server.name} {' '.join(flags)}".strip(): stack.enter_context(
                bed.start(server, *flags)
            )
            for server in servers
            for flags in variants(server, loops, usage)
        }
        response = client.get(next(iter(started.values())).endpoint, bed.paths[-1])
        bare = {
            f"bare {loop}": stack.enter_context(bed.start_bare(response, loop)) for loop in loops
        }
        loads = {name: (running, PROTOBUF) for name, running in (bare | started).items()}
        for server in servers:
            loads[in_json(server.name)] = (started[server.name], JSON)
        rounds: list[dict[str, dict[str, Any]]] = []
        for number in range(pace.rounds):
            processes.progress(f"closed loop, round {number + 1} of {pace.rounds}")
            rounds.append({name: _run_round(bed, *each, pace) for name, each in loads.items()})
    fastest = max(bare, key=lambda name: statistics.median(_rates(rounds, name)))
    return [_closed_result(name, rounds, fastest) for name in rounds[0]]


def variants(server: Server, loops: Sequence[str], usage: str) -> Iterator[tuple[str, ...]]:
    """Yield the flags to run a server with: none, and each event loop that the adapter offers.

    `usage` is the adapter's `--help`.
    """
    yield ()
    if server == testbed.ADAPTER and _LOOP_FLAG in usage:
        yield from ((f"{_LOOP_FLAG}={loop}",) for loop in loops)


def in_json(server: str) -> str:
    """Return the name of the closed loop on a server that requests JSON, not protobuf."""
    return f"{server}, JSON"


def _run_round(bed: Testbed, running: Running, accept: str, pace: Pace) -> dict[str, Any]:
    job = ClosedJob(
        endpoint=running.endpoint,
        path=bed.paths[-1],
        connections=pace.connections,
        warm_up=pace.round / 4,
        seconds=pace.round,
        pid=running.pid,
        accept=accept,
    )
    with bed.start_client(job) as process:
        return testbed.result(process)


def _closed_result(
    name: str, rounds: Sequence[Mapping[str, Mapping[str, Any]]], fastest: str
) -> ClosedResult:
    own = [each[name] for each in rounds]

    def median(values: Iterator[float]) -> float:
        return statistics.median(values)

    rates, bare_rates = _rates(rounds, name), _rates(rounds, fastest)
    cpus, bare_cpus = _cpus(rounds, name), _cpus(rounds, fastest)
    statuses = [each["statuses"] for each in own]
    return ClosedResult(
        name=name,
        requests_per_second=statistics.median(rates),
        cpu=statistics.median(cpus),
        utilisation=median(each["cpu"] / each["seconds"] for each in own),
        client_utilisation=median(each["client_cpu"] / each["seconds"] for each in own),
        p50=median(_quantile(each["latencies"], 0.5) for each in own),
        p99=median(_quantile(each["latencies"], 0.99) for each in own),
        statuses={
            status: sum(each.get(status, 0) for each in statuses)
            for status in sorted({status for each in statuses for status in each})
        },
        rate_ratio=median(a / b for a, b in zip(rates, bare_rates, strict=True)),
        cpu_ratio=median(a / b for a, b in zip(cpus, bare_cpus, strict=True)),
    )


def _rates(rounds: Sequence[Mapping[str, Mapping[str, Any]]], name: str) -> list[float]:
    return [len(each[name]["latencies"]) / each[name]["seconds"] for each in rounds]


def _cpus(rounds: Sequence[Mapping[str, Mapping[str, Any]]], name: str) -> list[float]:
    return [each[name]["cpu"] / max(1, len(each[name]["latencies"])) for each in rounds]


def _counts(bed: Testbed, running: Running, bare: Running) -> dict[str, float]:
    queries, others = bed.queries()
    return {
        **bed.counts(),
        "queries": queries,
        "others": others,
        "cpu": processes.cpu_seconds(running.pid),
        "bare_cpu": processes.cpu_seconds(bare.pid),
        "prometheus_cpu": processes.cpu_seconds(bed.prometheus.pid),
        "kubernetes_cpu": processes.cpu_seconds(bed.kubernetes.pid),
    }


def _own_metrics(running: Running) -> dict[str, float]:
    """Return the samples of the server's own metrics, by name and labels."""
    head, _, body = client.get(running.endpoint, "/metrics").partition(b"\r\n\r\n")
    text = gzip.decompress(body) if b"gzip" in head else body
    samples = {}
    for line in text.decode(errors="replace").splitlines():
        name, _, value = line.rpartition(" ")
        with contextlib.suppress(ValueError):
            samples[name] = float(value)
    return samples


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, in their unit; 0 of none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
