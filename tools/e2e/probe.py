"""Client that requests a metric at a fixed pace while something happens to its servers."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field

from tools.control_plane.client import Client, RefusedError

INTERVAL = 0.05
"""Seconds between two requests."""
_WORKERS = 100
"""Requests that may wait at a time: the pace holds for five seconds without any answer."""


@dataclass(kw_only=True)
class Probe:
    """Requests of one block, and what the HPA controller missed meanwhile."""

    count: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    """What requests got instead of a value, and how many."""
    slowest: float = 0.0
    """Seconds of the slowest request that got a value."""
    outage: float = 0.0
    """Seconds from the start of the first failed request until the last one ended."""
    lost_syncs: int = 0
    """Syncs of the HPA without a metric."""

    @property
    def failed(self) -> int:
        """Number of requests without a value."""
        return sum(self.failures.values())

    def __str__(self) -> str:
        text = f"{self.failed} of {self.count} requests failed, slowest {self.slowest:.2f} s"
        if self.failures:
            kinds = ", ".join(f"{count} x {what}" for what, count in self.failures.items())
            text += f", failures within {self.outage:.1f} s: {kinds}"
        return f"{text}; {self.lost_syncs} syncs of the HPA without a metric"


@contextlib.contextmanager
def probing(
    client: Client, path: str, lost_syncs: Callable[[], int], interval: float = INTERVAL
) -> Iterator[Probe]:
    """Request `path` every `interval` until the block ends; a response without items is a failure.

    A slow response delays no other request. `lost_syncs` returns how many there were until now.
    Every request has ended when the context has.
    """
    probe, over, lock = Probe(), threading.Event(), threading.Lock()
    before = lost_syncs()
    times: list[float] = []

    def request() -> None:
        started = time.monotonic()
        problem = _problem(client, path)
        ended = time.monotonic()
        with lock:
            probe.count += 1
            if problem:
                probe.failures[problem] = probe.failures.get(problem, 0) + 1
                times.extend((started, ended))
            else:
                probe.slowest = max(probe.slowest, ended - started)

    def pace(pool: futures.Executor) -> None:
        due = time.monotonic()
        while not over.wait(max(0.0, due - time.monotonic())):
            pool.submit(request)
            due += interval

    with futures.ThreadPoolExecutor(_WORKERS) as pool:
        thread = threading.Thread(target=pace, args=(pool,), daemon=True)
        thread.start()
        try:
            yield probe
        finally:
            over.set()
            thread.join()
    probe.outage = max(times) - min(times) if times else 0.0
    probe.lost_syncs = lost_syncs() - before


def _problem(client: Client, path: str) -> str:
    """Return what a request got instead of a value, or nothing."""
    try:
        reply = client.request("GET", path)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    if reply.status != 200:
        return str(RefusedError("GET", reply))
    return "" if reply.document["items"] else "no items"
