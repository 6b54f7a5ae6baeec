"""CPU time per request of the adapter's connections, beside that of aiohttp's `RequestHandler`.

    python -m tools.bench.connections

Both serve one constant response over TLS on uvloop, under the same limits of request heads, to 25
connections that repeat one request. Rounds alternate, because the machine is never quiet. aiohttp's
class has no time limit for heads and for clients that do not read; that is in its favour.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
import statistics
import sys
import tempfile
from pathlib import Path

import uvloop
from aiohttp import web

from adapter.server.http import connection, server
from adapter.server.http.request import Request
from adapter.server.tls import context as tls
from certs.issue import issue_temporary
from tools.bench import client, processes, testbed

ROUNDS = 7
SECONDS = 1.5
CONNECTIONS = 25
BODY = b"x" * 2000
HEADERS = {
    "Audit-Id": "00000000-0000-4000-8000-000000000000",
    "Cache-Control": "no-cache, private",
    "Content-Type": "application/vnd.kubernetes.protobuf",
}
NAMES = ("adapter", "aiohttp")


async def serve(folder: Path, name: str) -> None:
    """Serve until the process ends; write the port into the folder."""
    bundle = issue_temporary(("127.0.0.1",), now=dt.datetime.now(dt.UTC))
    (folder / f"{name}.crt").write_bytes(bundle.chain_pem)
    listen = _listen if name == "adapter" else _listen_by_aiohttp
    context = tls.context(bundle)
    processes.write_result(folder, name, await listen(context))
    await asyncio.Event().wait()


async def _listen(context: ssl.SSLContext) -> int:
    lines = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    head = f"HTTP/1.1 200 OK\r\n{lines}Content-Length: {len(BODY)}\r\n\r\n".encode()

    async def respond(_: Request) -> bytes:
        return head + BODY

    listener = server.Listener(respond, "127.0.0.1", 0, ssl_context=context)
    listener.start()
    return listener.port


async def _listen_by_aiohttp(context: ssl.SSLContext) -> int:
    async def respond(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=BODY, headers=HEADERS)

    handlers = web.Server(
        respond,
        handler_cancellation=True,
        access_log=None,
        keepalive_timeout=connection.KEEPALIVE,
        max_line_size=connection.HEAD_BYTES,
        max_field_size=connection.HEAD_BYTES,
    )
    listening = await asyncio.get_running_loop().create_server(
        handlers, "127.0.0.1", 0, ssl=context
    )
    return int(listening.sockets[0].getsockname()[1])


def main() -> int:
    """Print the medians, and the ratio of each round."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        proxy = processes.certificates(folder)
        (folder / "proxy.crt").write_bytes(proxy.pem)
        (folder / "proxy.key").write_bytes(proxy.bundle.key_pem)
        pids = {}
        for name in NAMES:
            command = ("-m", __spec__.name, str(folder), name)
            pids[name] = stack.enter_context(processes.start_python(folder, *command))
        rounds = [
            {name: _cpu_per_request(folder, name, pid) for name, pid in pids.items()}
            for _ in range(ROUNDS)
        ]
    for name in NAMES:
        median = statistics.median(each[name] for each in rounds)
        print(f"{name:<10}{median * 1e6:8.1f} µs of CPU per request")
    ratios = sorted(each["adapter"] / each["aiohttp"] for each in rounds)
    print("adapter / aiohttp:", " ".join(f"{ratio:.2f}" for ratio in ratios))
    return 0


def _cpu_per_request(folder: Path, name: str, pid: int) -> float:
    endpoint = client.Endpoint(
        port=processes.read_result(folder, name),
        ca=str(folder / f"{name}.crt"),
        certificate=str(folder / "proxy.crt"),
        key=str(folder / "proxy.key"),
    )
    job = client.ClosedJob(
        endpoint=endpoint,
        path="/",
        connections=CONNECTIONS,
        warm_up=SECONDS / 5,
        seconds=SECONDS,
        pid=pid,
    )
    with testbed.start_client(folder / "job.json", job) as process:
        result = testbed.result(process)
    return float(result["cpu"] / len(result["latencies"]))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        uvloop.run(serve(Path(sys.argv[1]), sys.argv[2]))
    sys.exit(main())
