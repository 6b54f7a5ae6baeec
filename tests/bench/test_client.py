from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.bench import client, processes

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
PERIOD = 0.2


@pytest.mark.parametrize(
    ("response", "complete"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    ],
)
def test_end_of_a_response_is_recognized(response, complete) -> None:
    assert client._is_complete(response) is complete


async def test_open_loop_counts_responses_by_status(tmp_path) -> None:
    async with serving(tmp_path, ANSWER) as endpoint:
        result = await asyncio.to_thread(client.run_open, open_job(endpoint, paths=("/a", "/b")))

    assert result["statuses"] == {"200": len(result["latencies"])}
    assert len(result["latencies"]) >= 2


async def test_request_without_response_is_lost(tmp_path) -> None:
    async with serving(tmp_path, b"") as endpoint:
        result = await asyncio.to_thread(client.run_open, open_job(endpoint, paths=("/a",)))

    assert set(result["statuses"]) == {client.LOST}
    assert result["latencies"] == []


async def test_open_loop_connects_again_after_the_server_closed(tmp_path) -> None:
    async with serving(tmp_path, ANSWER, keep_alive=False) as endpoint:
        result = await asyncio.to_thread(client.run_open, open_job(endpoint, paths=("/a",)))

    assert set(result["statuses"]) == {"200"}


async def test_closed_loop_measures_the_process(tmp_path) -> None:
    async with serving(tmp_path, ANSWER) as endpoint:
        job = client.ClosedJob(
            endpoint=endpoint, path="/", connections=2, warm_up=0.0, seconds=0.1, pid=os.getpid()
        )
        result = await asyncio.to_thread(client.run_closed, job)

    assert result["statuses"] == {"200": len(result["latencies"])}
    assert result["cpu"] > 0


@contextlib.asynccontextmanager
async def serving(
    folder: Path, answer: bytes, *, keep_alive: bool = True
) -> AsyncIterator[client.Endpoint]:
    """Send `answer` to each request; close the connection after it, or if it is empty."""
    proxy = processes.certificates(folder)
    (folder / "proxy.crt").write_bytes(proxy.pem)
    (folder / "proxy.key").write_bytes(proxy.bundle.key_pem)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
                if not keep_alive or not answer:
                    break
        writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await writer.wait_closed()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        yield client.Endpoint(
            port=server.sockets[0].getsockname()[1],
            ca=str(folder / "tls.crt"),
            certificate=str(folder / "proxy.crt"),
            key=str(folder / "proxy.key"),
        )


def open_job(endpoint: client.Endpoint, *, paths: tuple[str, ...]) -> client.OpenJob:
    begin = time.monotonic()
    return client.OpenJob(
        endpoint=endpoint,
        paths=paths,
        period=PERIOD,
        begin=begin,
        measure=begin,
        end=begin + 4 * PERIOD,
        seed=1,
    )
