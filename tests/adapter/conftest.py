"""Fixtures of a fake API server and a client of it; a module may override `cluster`."""

from __future__ import annotations

import pytest

from adapter.clients.kubernetes import Kube
from tests.fakes import kubernetes


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
