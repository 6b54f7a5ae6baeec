"""Load generator: `python -m tools.bench.client JOB` runs the job in a JSON file, prints a result.

It has to be much cheaper than what it measures: one thread with non-blocking sockets, requests that
are prepared, and responses of which only the status and the length are parsed. Requests are those
that kube-apiserver forwards for the HPA controller, on kept-alive connections with the certificate
of the front proxy.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import itertools
import json
import random
import re
import selectors
import socket
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench import processes

MAX_CONNECTIONS = 200
"""Connections of an open loop; further requests wait, and the wait counts as latency."""
TIMEOUT = 30.0
"""Seconds to connect, and for the response of `get`."""
GRACE = 5.0
"""Seconds after the end of an open loop until responses that are still missing count as lost."""
LOST = "none"
"""Status of a request without a response."""

PROTOBUF = "application/vnd.kubernetes.protobuf, */*"
"""The Accept header of the HPA controller."""
JSON = "application/json, */*"
"""The Accept header of other clients."""

_REQUEST = """\
GET {path} HTTP/1.1\r
Host: localhost:443\r
User-Agent: kube-controller-manager/v1.36.3 (linux/amd64) kubernetes/$Format/system:serviceaccount\
:kube-system:horizontal-pod-autoscaler\r
Accept: {accept}\r
X-Forwarded-For: 127.0.0.1\r
X-Forwarded-Host: localhost:443\r
X-Forwarded-Proto: https\r
X-Forwarded-Uri: {uri}\r
X-Remote-Extra-Authentication.kubernetes.io%2fcredential-Id: JTI=29291bfc-ee5b-454e-a799-77a8\r
X-Remote-Group: system:serviceaccounts\r
X-Remote-Group: system:serviceaccounts:kube-system\r
X-Remote-Group: system:authenticated\r
X-Remote-Uid: c9c5ae5a-2164-4493-9666-f7cceef86d80\r
X-Remote-User: system:serviceaccount:kube-system:horizontal-pod-autoscaler\r
Accept-Encoding: gzip\r
Audit-Id: """
"""Beginning of a request as kube-apiserver 1.36 forwards it; Audit-Id differs in each request."""
_LENGTH = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\nTransfer-Encoding: *chunked", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_NUMBERS = itertools.count()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a server listens, and the files with its CA and the client's certificate and key."""

    port: int
    ca: str
    certificate: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of the client."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenJob:
    """Request each path first at a random phase of its own, and again `period` after the response.

    Like the HPA controller, so that an autoscaler has at most one request in flight. The times are
    those of time.monotonic, which all processes share. No request is due after `end`. Only
    responses after `measure` are reported; the latency counts from when the request was due.

    The phases are drawn again at `measure`: all that wait for the first evaluation of a server get
    their responses together, and would stay together. A controller has five requests in flight.
    """

    endpoint: Endpoint
    paths: Sequence[str]
    period: float
    begin: float
    measure: float
    end: float
    seed: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClosedJob:
    """Request one path on `connections` connections that are never idle, for `seconds`."""

    endpoint: Endpoint
    path: str
    connections: int
    warm_up: float
    seconds: float
    pid: int
    """Process whose CPU time is measured."""
    accept: str = PROTOBUF


class Connection:
    """Kept-alive connection with at most one request in flight."""

    def __init__(self, endpoint: Endpoint, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", endpoint.port), timeout=TIMEOUT)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._socket.setblocking(False)
        self._received = b""

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, start: bytes) -> None:
        """Send the request that begins with `start`."""
        self._socket.send(b"%b%08x-0000-4000-8000-000000000000\r\n\r\n" % (start, next(_NUMBERS)))

    def receive(self) -> bytes | None:
        """Return the response when it is complete, else None. Raises OSError at its end."""
        try:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            self._received += data
            while self._socket.pending():
                self._received += self._socket.recv(1 << 16)
        except ssl.SSLWantReadError:
            return None
        response = self._received
        if not _is_complete(response):
            return None
        self._received = b""
        return response


def request(path: str, accept: str = PROTOBUF) -> bytes:
    """Return the beginning of a request, as `Connection.send` takes it."""
    return _REQUEST.format(path=path, uri=path.partition("?")[0], accept=accept).encode()


def status(response: bytes) -> str:
    """Return the status code of a response."""
    return response[9:12].decode()


def _is_complete(response: bytes) -> bool:
    end = response.find(b"\r\n\r\n")
    if end < 0:
        return False
    if match := _LENGTH.search(response, 0, end):
        return len(response) - end - 4 >= int(match[1])
    if _CHUNKED.search(response, 0, end):
        return response.endswith(_LAST_CHUNK)
    return True


def get(endpoint: Endpoint, path: str) -> bytes:
    """Return the response to one request. Raises OSError."""
    connection = Connection(endpoint, endpoint.context())
    deadline = time.monotonic() + TIMEOUT
    with selectors.DefaultSelector() as selector:
        try:
            selector.register(connection, selectors.EVENT_READ)
            connection.send(request(path))
            while time.monotonic() < deadline:
                if selector.select(1) and (response := connection.receive()) is not None:
                    return response
        finally:
            connection.close()
    raise TimeoutError(f"GET {path}: no response within {TIMEOUT} s")


def run_open(job: OpenJob) -> dict[str, Any]:
    """Run an open loop; return the sorted latencies in seconds, and the responses by status.

    A request whose response is missing at the end has a status, LOST, but no latency.
    """
    phases = random.Random(job.seed)
    due_paths = [(job.begin + phases.uniform(0, job.period), path) for path in job.paths]
    heapq.heapify(due_paths)
    starts = {path: request(path) for path in job.paths}
    context = job.endpoint.context()
    latencies: list[float] = []
    statuses: collections.Counter[str] = collections.Counter()
    idle: list[Connection] = []
    busy: dict[Connection, tuple[float, str]] = {}
    selector = selectors.DefaultSelector()

    def finish(connection: Connection, outcome: str) -> None:
        now = time.monotonic()
        due, path = busy.pop(connection)
        again = now + job.period
        if due < job.measure:
            again = max(now, job.measure + phases.uniform(0, job.period))
        if again < job.end:
            heapq.heappush(due_paths, (again, path))
        if now >= job.measure:
            statuses[outcome] += 1
            if outcome != LOST:
                latencies.append(now - due)

    while (due_paths or busy) and time.monotonic() < job.end + GRACE:
        while due_paths and due_paths[0][0] <= time.monotonic() and len(busy) < MAX_CONNECTIONS:
            due, path = heapq.heappop(due_paths)
            if idle:
                connection = idle.pop()
            else:
                connection = Connection(job.endpoint, context)
                selector.register(connection, selectors.EVENT_READ, connection)
            busy[connection] = due, path
            connection.send(starts[path])
        wait = due_paths[0][0] - time.monotonic() if due_paths else 1.0
        # With all connections busy, only a response makes the next request possible.
        wait = 1.0 if len(busy) >= MAX_CONNECTIONS else min(max(wait, 0.0), 1.0)
        for key, _ in selector.select(wait):
            connection = key.data
            try:
                response = connection.receive()
            except OSError:
                selector.unregister(connection)
                connection.close()
                if connection in busy:
                    finish(connection, LOST)
                else:
                    idle.remove(connection)
            else:
                if response is not None:
                    finish(connection, status(response))
                    idle.append(connection)
    for connection in (*idle, *busy):
        connection.close()
    selector.close()
    statuses[LOST] += len(busy) + len(due_paths)
    return {"latencies": sorted(latencies), "statuses": +statuses}


def run_closed(job: ClosedJob) -> dict[str, Any]:
    """Run a closed loop; return the requests, seconds, CPU seconds, latencies and statuses."""
    context, start = job.endpoint.context(), request(job.path, job.accept)
    connections = [Connection(job.endpoint, context) for _ in range(job.connections)]
    latencies: list[float] = []
    statuses: collections.Counter[str] = collections.Counter()
    sent: dict[Connection, float] = {}
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ, connection)
            sent[connection] = time.monotonic()
            connection.send(start)

        def run_until(deadline: float) -> None:
            while time.monotonic() < deadline:
                for key, _ in selector.select(1):
                    connection = key.data
                    if (response := connection.receive()) is not None:
                        now = time.monotonic()
                        latencies.append(now - sent[connection])
                        statuses[status(response)] += 1
                        sent[connection] = now
                        connection.send(start)

        run_until(time.monotonic() + job.warm_up)
        latencies.clear()
        statuses.clear()
        started, cpu, own = time.monotonic(), processes.cpu_seconds(job.pid), time.process_time()
        run_until(started + job.seconds)
        result = {
            "seconds": time.monotonic() - started,
            "cpu": processes.cpu_seconds(job.pid) - cpu,
            "client_cpu": time.process_time() - own,
        }
    for connection in connections:
        connection.close()
    return {**result, "latencies": sorted(latencies), "statuses": statuses}


def main(file: Path) -> None:
    """Run the job in a file and print the result."""
    job = json.loads(file.read_text())
    endpoint = Endpoint(**job.pop("endpoint"))
    if "path" in job:
        result = run_closed(ClosedJob(endpoint=endpoint, **job))
    else:
        result = run_open(OpenJob(endpoint=endpoint, **job))
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
