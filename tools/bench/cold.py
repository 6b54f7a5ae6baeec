"""Cost of a question that no present evaluation covers: latency beyond that of Prometheus.

    python -m tools.bench.cold

The adapter runs with --query-freshness=0s, so that every request is a query of its own. One client
requests the metric of one application after the other. What the adapter measured for its queries,
until their responses were read, is subtracted from the latency.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import statistics
import sys
from collections.abc import Iterator

from tools.bench import client, testbed
from tools.bench.client import Endpoint
from tools.bench.workload import Size

SIZES = (
    Size(autoscalers=100, pods=1000, namespaces=10),
    Size(autoscalers=10, pods=1000, namespaces=2),
)
"""10 and 100 pods for each question."""
MAX_OVERHEAD = 1.0
"""Limit of the time beyond the query, compared with the query's own."""
_SECONDS = 5.0
_DURATION = (
    r'^gpu_metrics_adapter_prometheus_request_duration_seconds_(sum|count)\{.*query".*\} (\S+)$'
)


def main() -> int:
    """Print a line for each size; return 1 if the limit is exceeded."""
    print(
        f"{'pods':>6} {'in':>9} {'query ms':>9} {'request ms':>11} {'beyond ms':>10} {'x query':>8}"
        f" {'CPU ms':>7}"
    )
    ratios = []
    for size in SIZES:
        for encoding, query, request, cpu in _measure(size):
            beyond = request - query
            ratios.append(beyond / query)
            print(
                f"{size.pods_per_app:>6} {encoding:>9} {query * 1e3:>9.2f} {request * 1e3:>11.2f}"
                f" {beyond * 1e3:>10.2f} {ratios[-1]:>8.2f} {cpu * 1e3:>7.2f}"
            )
    return int(max(ratios) > MAX_OVERHEAD)


def _measure(size: Size) -> Iterator[tuple[str, float, float, float]]:
    """Yield the mean duration of a query and the median latency and CPU time of a request.

    In seconds, once for each encoding, whose name comes first.
    """
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(testbed.running(size))
        bed.write_series()
        adapter = stack.enter_context(bed.start(testbed.ADAPTER, "--query-freshness=0s"))
        bed.wait_until_quiet()
        for encoding, accept in (("JSON", client.JSON), ("protobuf", client.PROTOBUF)):
            job = client.ClosedJob(
                endpoint=adapter.endpoint,
                path=bed.paths[0],
                connections=1,
                warm_up=1.0,
                seconds=_SECONDS,
                pid=adapter.pid,
                accept=accept,
            )
            spent, count = _queries(adapter.endpoint)
            result = testbed.result(bed.start_client(job))
            spent_after, count_after = _queries(adapter.endpoint)
            query = (spent_after - spent) / (count_after - count)
            latencies = result["latencies"]
            yield encoding, query, statistics.median(latencies), result["cpu"] / len(latencies)


def _queries(endpoint: Endpoint) -> tuple[float, float]:
    """Return the duration of all queries so far, in seconds, and their number."""
    head, _, body = client.get(endpoint, "/metrics").partition(b"\r\n\r\n")
    text = (gzip.decompress(body) if b"gzip" in head else body).decode()
    found = re.findall(_DURATION, text, re.MULTILINE)
    totals = {kind: sum(float(value) for each, value in found if each == kind) for kind, _ in found}
    return totals["sum"], totals["count"]


if __name__ == "__main__":
    sys.exit(main())
