"""Memory that a connection keeps after its request is answered: the RSS of a server process."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ssl
from pathlib import Path

import pytest

from adapter.server.http import server
from adapter.server.tls import context as tls
from certs.issue import issue_temporary
from tools.bench import processes

CONNECTIONS = 40
MAX_KIB = 256
"""1 024 connections take 256 MiB then. With the 112 MiB that the adapter has under load, these are
368 MiB, less than half of the 768 MiB that the Deployment allows."""


def get(path, header=b""):
    return b"GET /" + path + b" HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n"


KINDS = {
    "long header": get(b"2", b"A: " + b"x" * 1_000_000 + b"\r\n"),
    "not ASCII": get(b"2", b"A: " + "😀".encode() + b"x" * 1_000_000 + b"\r\n"),
    "many headers": get(b"2", b"ab:\r\n" * 9_990),
    "large answer": get(b"250000"),
    "beginning of a head": get(b"2") + get(b"2", b"ab:\r\n" * 9_990)[:-2],
}


async def serve(request):
    """Answer with a body that has the size that the path names."""
    size = int(request.target[1:].partition("?")[0])
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)


async def main(folder):
    """Listen until the process ends."""
    bundle = issue_temporary(("127.0.0.1",), now=dt.datetime.now(dt.UTC))
    listener = server.Listener(serve, "127.0.0.1", 0, ssl_context=tls.context(bundle))
    listener.start()
    held = [bytes(4000) for _ in range(5000)]  # as in the adapter, the heap has no large hole
    processes.write_result(folder, "port", listener.port)
    await asyncio.Event().wait()
    held.clear()


async def hold(port, sent, stack):
    """Send a request, read its response, and return the connection, which `stack` closes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    stack.callback(_abort, writer)
    await answer(reader, writer, sent)
    return reader, writer


async def answer(reader, writer, sent):
    """Send a request and read its response."""
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.split(b"Length: ")[1].split()[0]))


def _abort(writer):
    writer.transport.abort()


@contextlib.contextmanager
def running(folder):
    """Yield the process id and the port of a server on the event loop of the test."""
    loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    start = f"import sys, asyncio, pathlib, uvloop; from {__name__} import main; "
    start += f"{loop}.run(main(pathlib.Path(sys.argv[1])))"
    with processes.start_python(folder, "-c", start, str(folder)) as pid:
        yield pid, processes.read_result(folder, "port")


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_kept_connection_keeps_little(kind, tmp_path):
    with running(tmp_path) as (pid, port), contextlib.ExitStack() as stack:
        for _ in range(3):
            await hold(port, KINDS[kind], stack)
        before = processes.mebibytes(pid, "VmRSS")
        for _ in range(CONNECTIONS):
            await hold(port, KINDS[kind], stack)
        kept = (processes.mebibytes(pid, "VmRSS") - before) * 1024 / CONNECTIONS

    assert kept < MAX_KIB


@pytest.mark.usefixtures("real_servers")
async def test_requests_reuse_the_memory_of_those_before(tmp_path):
    """Buffers that are returned to the system after each request cost page faults at the next."""
    with running(tmp_path) as (pid, port), contextlib.ExitStack() as stack:
        reader, writer = await hold(port, get(b"2"), stack)
        for count in (100, 1000):
            before = page_faults(pid)
            for _ in range(count):
                await answer(reader, writer, get(b"2"))
            faults = page_faults(pid) - before

    assert faults < count / 2


def page_faults(pid):
    """Return the minor page faults of a process so far."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[7])
