"""A fake API server, and the adapter's connection to it; a module may say whose `cluster` it is."""

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
    """Asks as fast as it is told to."""
    path = kubernetes.kubeconfig(tmp_path, api_server)
    connected = await Kube.connect(path, qps=1e6, burst=10**6)
    yield connected
    await connected.close()
