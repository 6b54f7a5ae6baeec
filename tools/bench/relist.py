"""Cost of one relist at 1 000, 10 000 and 100 000 series of the same fifty names.

    python -m tools.bench.relist [--series=1000000]

Four operations are measured against a real Prometheus, each in its own process:

* `first`: the first relist (label index, exact names, and which of the competing labels are live);
* `later`: a relist that does not query the exact names;
* `refresh`: the queries between two relists, for live labels;
* `series`: a request to /api/v1/series, as in the original.

Fails if the bytes of `first`, `later` or `refresh` more than double while the series grow a
hundredfold. Bytes are those on the wire, compressed. The memory is the peak that Python allocates,
in one more run. `stall` is the longest time for which the event loop did nothing else.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import prometheus_client

from adapter import telemetry
from adapter.background import watch_stalls
from adapter.clients.lister import Lister
from adapter.clients.prometheus import Prometheus
from adapter.server.series.relist import Relist
from adapter.server.series.series_index import SeriesIndex
from rules import ruleset
from rules.document.sources import DEFAULT
from rules.kinds import Kinds
from tools.bench import processes
from tools.real import prometheus as real

SIZES = (1_000, 10_000, 100_000)
OPERATIONS = ("first", "later", "refresh", "series")
REPETITIONS = 5
"""Runs per measurement."""

_MAX_SERIES = 200_000
"""Number of series of which the adapter accepts a list."""
_OF_ONE_ROW = 3
_NAMES = 50
_BATCH = 20_000
_SELECTOR = '{__name__=~"bench_.*"}'
_RULES = f"""
rules:
- seriesQuery: '{_SELECTOR}'
  resources:
    overrides:
      namespace: {{resource: namespace}}
      exported_pod: {{resource: pod}}
      pod: {{resource: pod}}
      node: {{resource: node}}
  metricsQuery: 'avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""


def main(argv: list[str]) -> int:
    """Run the benchmark and print its results; return 1 if a limit is exceeded.

    `--series=N` measures at 1 000 and at N series. With the arguments OPERATION URL PID, measure
    one operation and print its row as JSON.
    """
    if len(argv) == _OF_ONE_ROW:
        operation, url, pid = argv
        print(json.dumps(asyncio.run(_measure(operation, url, int(pid)))))
        return 0
    sizes = [SIZES[0], *(int(each.removeprefix("--series=")) for each in argv)]
    _, problems = run(sizes if argv else SIZES)
    return 1 if problems else 0


def run(sizes: Sequence[int] = SIZES) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all rows, print them, and return them and which exceed the limit."""
    rows = {(size, operation): row for size in sizes for operation, row in _rows(size)}
    print(
        f"{'series':>8} {'operation':>9} {'bytes':>10} {'Prometheus CPU s':>16}"
        f" {'adapter CPU s':>13} {'MiB':>7} {'stall ms':>9}"
    )
    for (size, operation), row in rows.items():
        print(
            f"{size:>8} {operation:>9} {row['bytes']:>10.0f} {row['prometheus_cpu']:>16.3f}"
            f" {row['adapter_cpu']:>13.3f} {row['peak']:>7.1f} {row['stall'] * 1000:>9.1f}"
        )
    smallest, largest = sizes[0], sizes[-1]
    problems = [
        f"{operation}: {rows[largest, operation]['bytes']:.0f} bytes at {largest} series,"
        f" more than twice the {rows[smallest, operation]['bytes']:.0f} at {smallest}"
        for operation in OPERATIONS[:-1]
        if rows[largest, operation]["bytes"] > 2 * rows[smallest, operation]["bytes"]
    ]
    print("\n".join(problems) or "the bytes of a relist do not grow with the number of series")
    listed = [
        {"series": size, "operation": operation, **row} for (size, operation), row in rows.items()
    ]
    return listed, problems


def _rows(size: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the row of each operation, with a Prometheus that has only `size` series."""
    with tempfile.TemporaryDirectory() as folder, real.run(Path(folder)) as running:
        for begin in range(0, size, _BATCH):
            running.write(_series(begin, min(begin + _BATCH, size)))
        for operation in OPERATIONS if size <= _MAX_SERIES else OPERATIONS[:-1]:
            module = (sys.executable, "-m", "tools.bench.relist")
            command = (*module, operation, running.url, str(running.pid))
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            yield operation, json.loads(done.stdout)


def _series(begin: int, end: int) -> Iterator[tuple[dict[str, str], float]]:
    for number in range(begin, end):
        yield (
            {
                "__name__": f"bench_{number % _NAMES}",
                "namespace": f"namespace-{number % 97}",
                "exported_pod": f"workload-{number}-5c9f7b6d4c-x7k2m",
                "pod": f"exporter-{number % 499}",
                "node": f"node-{number % 499}",
                "uuid": f"GPU-a1002f3a-6c1d-4e5b-9f00-{number:012x}",
            },
            float(number),
        )


async def _measure(operation: str, url: str, pid: int) -> dict[str, float]:
    registry = prometheus_client.CollectorRegistry()
    compiled = ruleset.load([("bench.yaml", _RULES)])
    kinds = Kinds.builtin()
    async with aiohttp.ClientSession() as session:
        prometheus = Prometheus(session, url, requests=telemetry.PrometheusRequestMetrics(registry))

        def relist() -> Relist:
            return Relist(compiled, {DEFAULT: prometheus}, lambda: kinds, interval=600, max_age=600)

        previous = relist()
        await previous.once()
        (rule,), lister = compiled.rules, Lister(prometheus, max_age=600)
        index = SeriesIndex(_SELECTOR, (rule,), lister, clock=time.time, monotonic=time.monotonic)
        await index.relist(kinds)

        async def run_operation() -> None:
            if operation == "series":
                now = time.time()
                series = await prometheus.series(_SELECTOR, now - 600, now)
                assert len(series.content) == _NAMES
            elif operation == "refresh":
                await index.refresh_live_labels(kinds)
            else:
                current = previous if operation == "later" else relist()
                await current.once()
                assert len(current.generation.listings[0].series) == _NAMES

        stalls: list[float] = []
        watch = asyncio.create_task(watch_stalls(stalls.append, probe=0.05))
        bytes_before, adapter_before = _received_bytes(registry), time.process_time()
        prometheus_before = processes.cpu_seconds(pid)
        for _ in range(REPETITIONS):
            await run_operation()
        row = {
            "adapter_cpu": (time.process_time() - adapter_before) / REPETITIONS,
            "prometheus_cpu": (processes.cpu_seconds(pid) - prometheus_before) / REPETITIONS,
            "bytes": (_received_bytes(registry) - bytes_before) / REPETITIONS,
            "stall": max(stalls, default=0.0),
        }
        watch.cancel()
        tracemalloc.start()
        await run_operation()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return {**row, "peak": peak / (1 << 20)}


def _received_bytes(registry: prometheus_client.CollectorRegistry) -> float:
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "gpu_metrics_adapter_prometheus_response_bytes_total"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
