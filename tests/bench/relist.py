"""What one relist costs at 1 000, 10 000 and 100 000 series of the same fifty names.

    python -m tests.bench.relist

Four ways are measured against a real Prometheus, each in a process of its own: `first`, the first
relist whole (index, exact question, and which of the competing labels are live), `later`, one for
which the exact question is not due, `look`, what is asked between two relists, and `series`,
/api/v1/series as the original asks it. Fails unless the bytes of the others stay what they are
while the series grow a hundredfold. Bytes are counted as they come over the wire, compressed; the
memory is what Python allocated at most, of one time more.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import prometheus_client

from adapter import telemetry
from adapter.clients.prometheus import Prometheus
from adapter.metrics.relist import Relist
from rules import ruleset
from rules.kinds import Kinds
from tests.real import prometheus as real

SIZES = (1_000, 10_000, 100_000)
WAYS = ("first", "later", "look", "series")
TIMES = 5
"""Of each measurement: /proc counts CPU in hundredths of a second."""

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
    if argv:
        way, url, pid = argv
        print(json.dumps(asyncio.run(_measure(way, url, int(pid)))))
        return 0
    found = {(size, way): row for size in SIZES for way, row in _at(size)}
    print(
        f"{'series':>8} {'way':>7} {'bytes':>10} {'their CPU s':>12} {'our CPU s':>10} {'MiB':>7}"
    )
    for (size, way), row in found.items():
        print(
            f"{size:>8} {way:>7} {row['bytes']:>10.0f} {row['theirs']:>12.3f}"
            f" {row['ours']:>10.3f} {row['peak']:>7.1f}"
        )
    problems = [
        f"{way}: {found[SIZES[-1], way]['bytes']:.0f} bytes at {SIZES[-1]} series,"
        f" more than twice the {found[SIZES[0], way]['bytes']:.0f} at {SIZES[0]}"
        for way in WAYS[:-1]
        if found[SIZES[-1], way]["bytes"] > 2 * found[SIZES[0], way]["bytes"]
    ]
    print("\n".join(problems) or "bytes by names do not grow with the series")
    return 1 if problems else 0


def _at(size: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Each way's row at so many series, in a Prometheus that has nothing else."""
    with tempfile.TemporaryDirectory() as folder, real.run(Path(folder)) as running:
        for begin in range(0, size, _BATCH):
            running.write(_series(begin, min(begin + _BATCH, size)))
        for way in WAYS:
            module = (sys.executable, "-m", "tests.bench.relist")
            command = (*module, way, running.url, str(running.pid))
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
            yield way, json.loads(done.stdout)


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


def _cpu_seconds(pid: int) -> float:
    """User and system time of a process: fields 14 and 15 of /proc/PID/stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _measure(way: str, url: str, pid: int) -> dict[str, float]:
    registry = prometheus_client.CollectorRegistry()
    compiled = ruleset.load([("bench.yaml", _RULES)])
    kinds = Kinds.builtin()
    async with aiohttp.ClientSession() as session:
        asking = Prometheus(session, url, requests=telemetry.PrometheusRequestMetrics(registry))

        def relist() -> Relist:
            return Relist(compiled, asking, lambda: kinds, interval=600, max_age=600)

        standing = relist()
        await standing.once()

        async def once() -> None:
            if way == "series":
                now = time.time()
                assert len(await asking.series(_SELECTOR, now - 600, now)) == _NAMES
            elif way == "look":
                await standing.refresh_live_labels()
            else:
                one = standing if way == "later" else relist()
                await one.once()
                assert one.states[0].names == _NAMES

        received, ours, theirs = _received(registry), time.process_time(), _cpu_seconds(pid)
        for _ in range(TIMES):
            await once()
        row = {
            "ours": (time.process_time() - ours) / TIMES,
            "theirs": (_cpu_seconds(pid) - theirs) / TIMES,
            "bytes": (_received(registry) - received) / TIMES,
        }
        tracemalloc.start()
        await once()
        return {**row, "peak": tracemalloc.get_traced_memory()[1] / (1 << 20)}


def _received(registry: prometheus_client.CollectorRegistry) -> float:
    return sum(
        sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "gpu_metrics_adapter_prometheus_response_bytes_total"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
