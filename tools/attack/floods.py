"""Floods of hostile input, each on its own: `python -m tools.attack.floods NAME FOLDER PORT`.

Each flood ends by itself after SECONDS at the latest, and prints how often it got which status as a
JSON object; `closed` counts connections that ended without a response.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gzip
import inspect
import itertools
import json
import socket
import ssl
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import yaml

from tools.attack import hostile
from tools.attack.backends import AUTOSCALER, CROWD, MANY, NAMESPACE, OBJECTS, TENANT, TENANTS_PODS

SECONDS = 3.0
_GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
_METRICS = f"{_GROUP}/namespaces/{NAMESPACE}/pods/*"
_STRANGER = (f"X-Remote-User: system:serviceaccount:{NAMESPACE}:stranger",)
_AUTOSCALER = (f"X-Remote-User: {AUTOSCALER}",)
_MB = 1_000_000
_PAUSE = 0.003
"""Seconds between two new clients: a TLS handshake takes so long, in which nothing else runs."""
_RETRY = 0.2
"""Seconds until a client that got 429 sends its next request; `Retry-After` says 1."""
_PAUSE_OF_HPAS = 0.5
"""Seconds between two requests for a metric of hostile objects; the HPA controller waits for 15."""
_MANY = 420
"""Clients at once: more than the in-flight limit of 400."""


Act = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[object]]


class Flooder:
    """Sends requests over TLS and counts the statuses of the responses."""

    def __init__(self, folder: Path, port: int) -> None:
        self.port = port
        self.numbers = itertools.count()
        """For what is new in each request."""
        self.counts: dict[str, float] = collections.defaultdict(int)
        ca = (folder / "tls.crt").read_text()
        self._contexts = {proxy: ssl.create_default_context(cadata=ca) for proxy in (False, True)}
        self._contexts[True].load_cert_chain(folder / "proxy.pem")
        self._folder = folder

    @contextlib.asynccontextmanager
    async def connection(
        self, *, proxy: bool = False, source: str = "127.0.0.1"
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Connect: as the front proxy, or without a client certificate."""
        context = self._contexts[proxy]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=context, local_addr=(source, 0)
        )
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    async def connect(self, act: Act, *, proxy: bool = False, source: str = "127.0.0.1") -> None:
        """Run `act` on a connection, and count that it ended."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with self.connection(proxy=proxy, source=source) as streams:
                await act(*streams)
        self.counts["closed"] += 1

    async def send(
        self,
        target: str,
        headers: Iterable[str] = (),
        *,
        method: str = "GET",
        body: bytes = b"",
        proxy: bool = False,
    ) -> None:
        """Send one request on a connection of its own and read its response."""
        status = "closed"
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, ValueError):
            async with self.connection(proxy=proxy) as (reader, writer):
                writer.write(request(target, headers, method=method, body=body))
                line = await reader.readline()
                status = line.split()[1].decode() if line else "closed"
                await reader.read()
        self.counts[status] += 1

    async def keep_sending(
        self, requests: Callable[[], bytes], *, proxy: bool = False, pause: float = 0.0
    ) -> None:
        """Send one request after the other on a connection, as long as the server keeps it."""

        async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while True:
                writer.write(requests())
                limited = await self._receive(reader) == "429"
                await asyncio.sleep(_RETRY if limited else pause)

        await self.connect(send, proxy=proxy)

    async def keep(
        self,
        requested: bytes,
        clients: int,
        *,
        proxy: bool = False,
        sources: Iterable[str] = ("127.0.0.1",),
    ) -> None:
        """Open connections, 16 at a time, send one request on each, and keep all for a while.

        They come from `sources` in turn.
        """

        async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(requested)
            await self._receive(reader)
            answered.release()
            await reader.read()

        async def once(source: str) -> None:
            await self.connect(ask, proxy=proxy, source=source)
            answered.release()

        answered = asyncio.Semaphore(16)
        async with asyncio.TaskGroup() as group:
            kept = []
            for source in itertools.islice(itertools.cycle(sources), clients):
                await answered.acquire()
                kept.append(group.create_task(once(source)))
            await asyncio.sleep(SECONDS)
            for task in kept:
                task.cancel()

    async def _receive(self, reader: asyncio.StreamReader) -> str:
        """Read and count a response; return its status."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        lengths = [line for line in head if line.startswith("Content-Length: ")]
        await reader.readexactly(int(lengths[0].split()[1]))
        status = head[0].split()[1]
        self.counts[status] += 1
        return status

    async def change_cluster(self, method: str, path: str) -> None:
        """Send a request to the fake API server."""
        await asyncio.to_thread(change_cluster, self._folder, method, path)

    async def repeat(self, clients: int, send: Callable[[], Awaitable[None]]) -> None:
        """Call `send` again and again from several clients, until cancelled."""

        async def client() -> None:
            while True:
                await send()

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())
                await asyncio.sleep(_PAUSE)


def change_cluster(folder: Path, method: str, path: str) -> None:
    """Send a request to the fake API server."""
    kubeconfig = yaml.safe_load((folder / "kubeconfig").read_text())
    server = kubeconfig["clusters"][0]["cluster"]["server"].rstrip("/")
    urllib.request.urlopen(urllib.request.Request(server + path, method=method)).close()


def request(
    target: str,
    headers: Iterable[str] = (),
    *,
    method: str = "GET",
    body: bytes = b"",
    close: bool = True,
) -> bytes:
    """Return a request; `close` makes the server close the connection after its response."""
    fields = [f"{method} {target} HTTP/1.1", "Host: x", *headers]
    if close:
        fields.append("Connection: close")
    if body:
        fields.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*fields, "", ""]).encode() + body


async def nothing(flooder: Flooder) -> None:
    """Nothing, for comparison"""
    await asyncio.sleep(SECONDS)


async def header_names(flooder: Flooder) -> None:
    """900 kB of new header names in each request, without rights"""

    async def send() -> None:
        number = next(flooder.numbers)
        names = (f"X-Remote-Extra-{number}-{index}-{'x' * 850}: 1" for index in range(1000))
        await flooder.send(f"{_METRICS}/x", [*_STRANGER, *names], proxy=True)

    await flooder.repeat(4, send)


async def silent_connections(flooder: Flooder) -> None:
    """3 000 TCP connections that send nothing"""
    await _silent(flooder, b"")


async def stalled_handshakes(flooder: Flooder) -> None:
    """3 000 TCP connections that stop within the TLS handshake"""
    await _silent(flooder, b"\x16\x03\x01\x02\x00\x01")


async def _silent(flooder: Flooder, beginning: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(3000):
            try:
                each = socket.create_connection(("127.0.0.1", flooder.port), timeout=1)
                stack.enter_context(each)
                each.send(beginning)
            except OSError:
                flooder.counts["closed"] += 1
            await asyncio.sleep(0)
        await asyncio.sleep(SECONDS)


async def idle_sessions(flooder: Flooder) -> None:
    """1 500 TLS connections that send no request"""
    await flooder.repeat(1500, lambda: flooder.connect(lambda reader, _: reader.read()))


async def http_2(flooder: Flooder) -> None:
    """The first line of HTTP/2, from 1 100 anonymous clients"""

    async def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"PRI * HTTP/2.0\r\n\r\n")
        await reader.read()

    await flooder.repeat(1100, lambda: flooder.connect(begin))


async def kept_connections(flooder: Flooder) -> None:
    """1 100 connections that were used once for /livez, and kept"""
    await flooder.keep(request("/livez", close=False), 1100)


async def kept_addresses(flooder: Flooder) -> None:
    """1 100 connections, each of an address of its own, that were used once for /livez, and kept"""
    sources = (f"127.0.{number >> 8}.{number & 255}" for number in range(2, 1102))
    await flooder.keep(request("/livez", close=False), 1100, sources=sources)


async def kept_heads(flooder: Flooder) -> None:
    """1 MB of a header for /livez, answers read, on 500 connections that are kept"""
    await flooder.keep(request("/livez", ["A: " + "x" * _MB], close=False), 500)


async def kept_headers(flooder: Flooder) -> None:
    """9 900 empty headers for /livez, answers read, on 500 connections that are kept"""
    await flooder.keep(request("/livez", ["ab:"] * 9_900, close=False), 500)


async def kept_answers(flooder: Flooder) -> None:
    """Answers of 250 kB to a client with rights, on 1 100 connections that are kept"""
    target = f"{_GROUP}/namespaces/{MANY}/pods/*/duty_cycle_current"
    asked = request(target, _AUTOSCALER, close=False)
    await flooder.keep(asked, 1100, proxy=True)


async def unread_answers(flooder: Flooder) -> None:
    """1 MB of `<` as path on 32 connections, answers not read"""
    async with asyncio.TaskGroup() as group:

        async def send() -> None:
            async with flooder.connection() as (_, writer):
                writer.transport.pause_reading()  # type: ignore[attr-defined]  # of the subclass
                writer.write(request(f"{_GROUP}/{'<' * _MB}"))
                await asyncio.sleep(SECONDS)

        for _ in range(32):
            group.create_task(send())


async def pipelined(flooder: Flooder) -> None:
    """Endless heads while a request is under way, on 8 connections"""
    head = request(f"{_METRICS}/y", ["A: " + "x" * 100_000], close=False)
    await _endless(flooder, b"", head, clients=8)


async def pipelined_requests(flooder: Flooder) -> None:
    """Small requests without a pause, answers not read, on 8 connections"""
    heads = request("/livez", close=False) * 1000

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not reader.at_eof():
            writer.write(heads)
            await writer.drain()
            await reader.read(_MB)

    await flooder.repeat(8, lambda: flooder.connect(send))


async def many_headers(flooder: Flooder) -> None:
    """Requests with 2 000 empty headers each, never the same, on 4 connections"""

    def new_request() -> bytes:
        return request(f"{_METRICS}/{next(flooder.numbers)}", ["ab:"] * 2000, close=False)

    await flooder.repeat(4, lambda: flooder.keep_sending(new_request))


async def trailers(flooder: Flooder) -> None:
    """Endless trailers of a chunked body, on 16 connections"""
    head = request(_METRICS, ["Transfer-Encoding: chunked"], method="POST", close=False)
    await _endless(flooder, head + b"0\r\n", b"X: " + b"x" * 900_000 + b"\r\n", clients=16)


async def incomplete_heads(flooder: Flooder) -> None:
    """900 kB of a head that never ends, on 500 connections"""
    await _endless(flooder, b"GET / HTTP/1.1\r\nA: ", b"x" * 900_000, clients=500, most=1)


async def _endless(
    flooder: Flooder, beginning: bytes, part: bytes, *, clients: int, most: int = 1000
) -> None:
    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(beginning)
        for _ in range(most):
            writer.write(part)
            flooder.counts["MB sent"] += len(part) / _MB
            await writer.drain()
            await asyncio.sleep(0)  # drain alone does not let a lost connection be noticed
        await reader.read()

    await flooder.repeat(clients, lambda: flooder.connect(send))


async def large_answers(flooder: Flooder) -> None:
    """Answers of 57 MiB by Prometheus, to 3 clients with rights"""
    target = f"{_METRICS}/duty_cycle_current?metricLabelSelector=gpu!%3D"
    await flooder.repeat(
        3, lambda: flooder.send(f"{target}{next(flooder.numbers)}", _AUTOSCALER, proxy=True)
    )


async def tenant_labels(flooder: Flooder) -> None:
    """300 pods of one namespace with 900 kB of labels each, and their metric with a selector"""
    await flooder.change_cluster("POST", TENANTS_PODS)
    target = f"{_GROUP}/namespaces/{TENANT}/pods/*/duty_cycle_current?labelSelector=app%3Dx"
    try:
        await flooder.repeat(2, lambda: flooder.send(target, _AUTOSCALER, proxy=True))
    finally:
        await flooder.change_cluster("DELETE", TENANTS_PODS)


async def yaml_answers(flooder: Flooder) -> None:
    """YAML of 50 pods, each request with a query string of its own, from 64 clients with rights"""
    headers = [*_AUTOSCALER, "Accept: application/yaml"]

    def new_request() -> bytes:
        number = next(flooder.numbers)
        query = f"labelSelector=x!%3D{number}" if number % 2 else f"n={number}"
        target = f"{_GROUP}/namespaces/{CROWD}/pods/*/duty_cycle_current?{query}"
        return request(target, headers, close=False)

    await flooder.repeat(64, lambda: flooder.keep_sending(new_request, proxy=True))


async def label_names(flooder: Flooder) -> None:
    """100 000 label names on one metric, listed every second for a rule with a template"""
    await asyncio.sleep(SECONDS)


async def selectors(flooder: Flooder) -> None:
    """1 MB of labelSelector from 4 anonymous clients"""
    selector = ",".join(f"k{number}%3Dv" for number in range(110_000))
    target = f"{_GROUP}/namespaces/{NAMESPACE}/pods?labelSelector={selector[:990_000]}"
    await flooder.repeat(4, lambda: flooder.send(target))


async def accept(flooder: Flooder) -> None:
    """960 kB of Accept from 4 anonymous clients"""
    header = "Accept: " + ",".join(["application/x;q=0.1"] * 48_000)
    await flooder.repeat(4, lambda: flooder.send("/apis", [header]))


async def compressed_bodies(flooder: Flooder) -> None:
    """2 MB of gzip with 2 GB in it, from 4 anonymous clients"""
    body = gzip.compress(bytes(100 * _MB)) * 20
    headers = ["Content-Encoding: gzip", "Content-Type: application/json"]
    await flooder.repeat(4, lambda: flooder.send("/apis", headers, method="POST", body=body))


async def timeouts(flooder: Flooder) -> None:
    """1 MB of ?timeout=1h1h… from 4 anonymous clients"""
    await flooder.repeat(4, lambda: flooder.send(f"/apis?timeout={'1h' * 495_000}"))


async def extras(flooder: Flooder) -> None:
    """10 000 equal Impersonate-Extra headers from 4 clients without rights"""
    headers = [*_STRANGER, "Impersonate-User: x", *["Impersonate-Extra-A: 1"] * 9_900]
    await flooder.repeat(4, lambda: flooder.send("/apis", headers, proxy=True))


async def users_alike(flooder: Flooder) -> None:
    """Users that differ in their extra values alone, from 8 clients"""

    async def send() -> None:
        headers = [*_STRANGER, f"X-Remote-Extra-A: {next(flooder.numbers)}"]
        await flooder.send("/apis", headers, proxy=True)

    await flooder.repeat(8, send)


async def anonymous_reviews(flooder: Flooder) -> None:
    """420 anonymous clients, each request with a path of its own"""
    await _new_paths(flooder, [], proxy=False)


async def reviews_of_strangers(flooder: Flooder) -> None:
    """420 clients without rights, each request with a path of its own"""
    await _new_paths(flooder, _STRANGER, proxy=True)


async def _new_paths(flooder: Flooder, headers: Iterable[str], *, proxy: bool) -> None:
    def new_request() -> bytes:
        return request(f"/apis/{next(flooder.numbers)}", headers, close=False)

    await flooder.repeat(_MANY, lambda: flooder.keep_sending(new_request, proxy=proxy))


async def tokens(flooder: Flooder) -> None:
    """420 clients, each request with a bearer token of its own"""

    def new_request() -> bytes:
        token = f"Authorization: Bearer {next(flooder.numbers)}"
        return request("/apis", [token], close=False)

    await flooder.repeat(_MANY, lambda: flooder.keep_sending(new_request))


async def forged_log(flooder: Flooder) -> None:
    """Paths and tokens that end lines of the log, from 8 anonymous clients"""
    target = f"/apis/x%0AERROR%20forged%1b[2J{'x' * 300_000}"
    await flooder.repeat(8, lambda: flooder.send(target, ["Authorization: Bearer x"]))


def _objects(name: str) -> Callable[[Flooder], Awaitable[None]]:
    """Return the flood that creates the objects of a case, and requests their metrics."""
    case = hostile.CASES[name]

    async def flood(flooder: Flooder) -> None:
        await flooder.change_cluster("POST", f"{OBJECTS}{name}")
        if not case.requested:
            await asyncio.sleep(case.seconds)
            return
        paths = hostile.paths(case)

        def new_request() -> bytes:
            return request(next(paths), _AUTOSCALER, close=False)

        await flooder.repeat(
            case.clients,
            lambda: flooder.keep_sending(new_request, proxy=True, pause=_PAUSE_OF_HPAS),
        )

    flood.__doc__ = case.what
    return flood


FLOODS: dict[str, Callable[[Flooder], Awaitable[None]]] = {
    name: each
    for name, each in [*globals().items()]
    if inspect.iscoroutinefunction(each) and not name.startswith("_")
} | {name: _objects(name) for name in hostile.CASES}
"""The public functions above, in their order, and the cases of hostile objects."""

_LONGER = {name: 18 for name in FLOODS if name.startswith("kept_")}
_LONGER |= {each.__name__: 5 for each in (tenant_labels, http_2)}
"""Floods that last so many times as long: pods are listed first; 1 024 connections are to be open.
`kept_` ends when all are open."""


async def _main(name: str, folder: Path, port: int) -> None:
    """Run one flood and print its counts."""
    flooder = Flooder(folder, port)
    case = hostile.CASES.get(name)
    seconds = case.seconds if case is not None else SECONDS * _LONGER.get(name, 1)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await FLOODS[name](flooder)
    print(json.dumps({name: round(count) for name, count in flooder.counts.items()}))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
