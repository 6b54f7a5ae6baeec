"""Fixtures of fake servers and of clients; a module may override `cluster`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest

from adapter.clients.kubernetes import Kube
from tools.fakes import kubernetes, prometheus


@pytest.fixture
def cluster():
    return kubernetes.Cluster()


@pytest.fixture
async def api_server(cluster, aiohttp_server):
    return await aiohttp_server(cluster.app())


@pytest.fixture
async def api(api_server, tmp_path):
    """Client without a rate limit."""
    path = kubernetes.kubeconfig(tmp_path, api_server)
    client = await Kube.connect(path, qps=1e6, burst=10**6)
    yield client
    await client.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as opened:
        yield opened


@pytest.fixture
def serve(
    aiohttp_server,
) -> Callable[[prometheus.Behaviour], Awaitable[prometheus.Prometheus]]:
    """Start a fake Prometheus that behaves as told, and has its `url`."""

    async def start(behave: prometheus.Behaviour) -> prometheus.Prometheus:
        fake = prometheus.Prometheus(behave)
        fake.url = str((await aiohttp_server(fake.app())).make_url("/"))
        return fake

    return start
