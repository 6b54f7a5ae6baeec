"""Model servers of a benchmark: the recorded page of vLLM, on an address for each pod.

The addresses are in the loopback range. One socket and one thread serve them all, and each page
is sent as it is, so that the pages cost little beside those who read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import uvloop

from adapter.cli.local_prometheus.process import free_ports
from tools.http_server import METRICS

PRESET = "inference-vllm"
METRIC = "requests_waiting_current"
"""Metric of the preset whose value a benchmark sets."""
IMAGE = "docker.io/vllm/vllm-openai:v0.18.0"
"""Image by which the scrape configuration finds the pods."""

_PAGE = Path(__file__).parents[2] / "tests" / "fixtures" / "recorded" / "vllm-0.18-loaded.prom"
_WAITING = re.compile(r"^(vllm:num_requests_waiting\{.*\}) \S+$", re.MULTILINE)
_HEAD_END = b"\r\n\r\n"
_PER_NETWORK = 250
_BACKLOG = 4096
"""Connections that may wait: Prometheus makes one to each pod within an interval."""


def address(number: int) -> str:
    """Return the address of a pod, of up to 15 million."""
    rest, host = divmod(number, _PER_NETWORK)
    high, low = divmod(rest, _PER_NETWORK)
    return f"127.{77 + high}.{low}.{host + 1}"


def attach(pod: dict[str, Any], number: int, port: int) -> None:
    """Give a pod its address, and what a scrape configuration finds its server by."""
    pod["metadata"].setdefault("annotations", {})["gpu-metrics-adapter/port"] = str(port)
    pod["spec"]["containers"][0]["image"] = IMAGE
    ip = address(number)
    pod.setdefault("status", {}).update(podIP=ip, podIPs=[{"ip": ip}])


class Exporters:
    """Pages of all pods, which are the same, and how many were read."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.read = 0
        """Pages that were read so far."""
        self.connections: set[asyncio.Transport] = set()
        self.sent_bytes = 0
        """Size of a response. vLLM does not compress its page."""
        self._response = b""

    def show(self, waiting: float) -> None:
        """Let each page say that so many requests wait."""
        page, count = _WAITING.subn(rf"\g<1> {waiting}", _PAGE.read_text())
        assert count == 1, f"{_PAGE} has {count} series vllm:num_requests_waiting"
        body = page.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {METRICS}\r\nContent-Length: {len(body)}"
        self._response = head.encode() + _HEAD_END + body
        self.sent_bytes = len(self._response)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve the page on the addresses of all pods until the context ends."""
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            # On all addresses, which include each of the loopback range.
            started = loop.create_server(
                lambda: _Connection(self), "0.0.0.0", self.port, backlog=_BACKLOG
            )
            server = asyncio.run_coroutine_threadsafe(started, loop).result()
            yield
            asyncio.run_coroutine_threadsafe(self._close(server), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _close(self, server: asyncio.AbstractServer) -> None:
        server.close()
        for each in self.connections:
            each.abort()
        await asyncio.sleep(0)

    def respond(self) -> bytes:
        """Return the response to a request, and count it."""
        self.read += 1
        return self._response


class _Connection(asyncio.Protocol):
    """Connection that is kept, on which one request follows another."""

    def __init__(self, exporters: Exporters) -> None:
        self._exporters = exporters
        self._transport: asyncio.Transport
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._exporters.connections.add(self._transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._exporters.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(_HEAD_END)
        for _ in requests:
            self._transport.write(self._exporters.respond())
