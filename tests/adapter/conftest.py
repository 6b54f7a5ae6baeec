"""Fixtures of fake servers and of clients; a module may override `cluster`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from adapter.clients.kubernetes import Kube
from tools.fakes import kubernetes, prometheus


@pytest.fixture(autouse=True)
def _patience_with_real_servers(request: pytest.FixtureRequest) -> None:
    if "real_servers" in request.fixturenames:
        request.getfixturevalue("patience")


@pytest.fixture
def cluster():
    return kubernetes.Cluster()


@pytest.fixture
async def api_server(cluster, aiohttp_server):
    return await aiohttp_server(cluster.app())


@pytest.fixture
async def kube_of(tmp_path):
    """Connect to a server, without a rate limit; the clients are closed at the end."""
    async with contextlib.AsyncExitStack() as clients:

        async def connect(server, *, qps=1e6, burst=10**6, timeout=30.0, **user):
            path = kubernetes.kubeconfig(tmp_path, server, **user)
            client = await Kube.connect(path, qps=qps, burst=burst, timeout=timeout)
            clients.push_async_callback(client.close)
            return client

        yield connect


@pytest.fixture
async def api(kube_of, api_server):
    """Client of the fake API server."""
    return await kube_of(api_server)


@pytest.fixture
async def skip(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that lets the time of the event loop jump forward by some seconds."""
    loop, ahead = asyncio.get_running_loop(), 0.0
    real_time = loop.time

    def jump(seconds: float) -> None:
        nonlocal ahead
        ahead += seconds

    monkeypatch.setattr(loop, "time", lambda: real_time() + ahead)
    return jump


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
def serve(aiohttp_server) -> Callable[[prometheus.Behaviour], Awaitable[prometheus.Prometheus]]:
    """Start a fake Prometheus that behaves as told, and has its `url`."""

    async def start(behave: prometheus.Behaviour) -> prometheus.Prometheus:
        fake = prometheus.Prometheus(behave)
        fake.url = str((await aiohttp_server(fake.app())).make_url("/"))
        return fake

    return start
