"""CPU and memory of the Prometheus in the pod, and of the adapter beside it, with pods of vLLM.

    python -m tools.bench.sidecar [PODSxSECONDS ...]

SECONDS is the scrape interval. Prometheus runs the configuration and the flags of the manifests:
it discovers the pods at the stand-in for kube-apiserver, and scrapes the recorded page of each. The
adapter has no other Prometheus; one HPA of ten pods requests a value each 15 s. Each row is
measured for 30 s, once two pages of each pod have been read. A row that needs more cores than the
machine has is left out. `cores` are those of Prometheus, `MiB` its peak; `adapter's` and
`exporters'` are cores, too; `lost` are requests without a value.

Fails if Prometheus needs more memory than the limit in the manifests with 1 000 pods each 5 s.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools import embedded, quantity
from tools.backends import programs
from tools.bench import exporters, processes, testbed
from tools.bench.client import OpenJob
from tools.bench.exporters import Exporters
from tools.bench.workload import Size
from tools.real import prometheus as real

CELLS = ("100x5", "1000x5", "5000x5", "100x1", "1000x1", "5000x1", "5000x15")
CLAIMED = "1000x5"
"""Row whose memory has a limit."""

_PODS_PER_AUTOSCALER = 10
_PERIOD = 15.0
_MEASURED = 30.0
_PAGES_PER_CORE = 500
"""Pages per second that a core can scrape, with what else runs beside Prometheus."""
_SCRAPED = 300.0
"""Seconds in which all pods must be scraped twice."""
_COLUMNS = (
    *("pods", "every s", "% up", "pages/s", "MB/s", "series", "cores", "MiB"),
    *("adapter's", "its MiB", "exporters'", "lost"),
)


def main(argv: Sequence[str]) -> int:
    """Run the benchmark and print its results; return 1 if the limit is exceeded."""
    _, problems = run(argv or CELLS)
    return 1 if problems else 0


def run(cells: Sequence[str] = CELLS) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all rows, print them, and return them and which exceed the limit."""
    program = programs.ensure(programs.PROMETHEUS_3)
    limit = float(quantity.parse(embedded.sidecar()["resources"]["limits"]["memory"])) / 2**20
    print("".join(f"{column:>10}" for column in _COLUMNS), flush=True)
    rows, problems = [], []
    for cell in cells:
        pods, seconds = cell.split("x")
        cores = math.ceil(int(pods) / float(seconds) / _PAGES_PER_CORE)
        if cores > (here := os.cpu_count() or 1):
            print(f"{pods:>10}{seconds:>10}{f'left out: it needs {cores} cores of {here}':>42}")
            continue
        row = _measure(int(pods), float(seconds), program)
        print("".join(f"{value:>10.4g}" for value in row.values()), flush=True)
        rows.append(row)
        if cell == CLAIMED and row["MiB"] > limit:
            problems.append(f"{cell}: {row['MiB']:.0f} MiB of Prometheus, limit {limit:.0f}")
    return rows, problems


def _measure(pods: int, seconds: float, program: Path) -> dict[str, float]:
    autoscalers = pods // _PODS_PER_AUTOSCALER
    size = Size(autoscalers=autoscalers, pods=pods, namespaces=min(autoscalers, 20))
    servers = Exporters()
    servers.show(1)

    def prometheus(folder: Path) -> contextlib.AbstractContextManager[real.Prometheus]:
        config = embedded.local(folder / "kubeconfig", interval=seconds)
        return real.run(folder, config, program=program, flags=embedded.flags())

    processes.progress(f"{pods} pods, scraped every {seconds:g} s")
    with (
        servers.serving(),
        testbed.running(
            size, prometheus=prometheus, metric=exporters.METRIC, port=servers.port
        ) as bed,
    ):
        real.wait_for(lambda: servers.read >= 2 * pods, "pods are scraped twice", seconds=_SCRAPED)
        flags = (
            f"--preset={exporters.PRESET}",
            f"--embedded-prometheus-url={bed.prometheus.url}",
            f"--embedded-prometheus-interval={seconds:g}s",
        )
        with bed.start(testbed.ADAPTER, *flags) as running:
            pids = bed.prometheus.pid, running.pid, os.getpid()
            begin = time.monotonic() + 1
            measure = begin + _PERIOD
            job = OpenJob(
                endpoint=running.endpoint,
                paths=bed.paths,
                period=_PERIOD,
                begin=begin,
                measure=measure,
                end=measure + _MEASURED,
                seed=pods,
            )
            with bed.start_client(job) as load:
                time.sleep(max(0.0, measure - time.monotonic()))
                cpu, read = [*map(processes.cpu_seconds, pids)], servers.read
                time.sleep(max(0.0, job.end - time.monotonic()))
                pages = (servers.read - read) / _MEASURED
                cores = [
                    (processes.cpu_seconds(pid) - before) / _MEASURED
                    for pid, before in zip(pids, cpu, strict=True)
                ]
                result = testbed.result(load)
            up, series = (
                float(bed.prometheus.query(f"sum({name})")[0]["value"][1])
                for name in ("up", "scrape_samples_post_metric_relabeling")
            )
            values = (
                *(pods, seconds, 100 * up / pods, pages, pages * servers.sent_bytes / 1e6, series),
                *(cores[0], processes.mebibytes(pids[0], "VmHWM")),
                *(cores[1], processes.mebibytes(pids[1], "VmRSS"), cores[2]),
                sum(result["statuses"].values()) - result["statuses"].get("200", 0),
            )
            return dict(zip(_COLUMNS, values, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
