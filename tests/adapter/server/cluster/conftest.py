"""A fake API server with pods, a Deployment and namespaces, and watch caches that run."""

from __future__ import annotations

import pytest

from tests.adapter.server.cluster.bed import Bed
from tools.fakes import kubernetes
from tools.waiting import running


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.add("pods", "team-a", "web-2", labels={"app": "web"}, phase="Running")
    cluster.add("pods", "team-a", "web-1", labels={"app": "web"}, phase="Pending")
    cluster.add("pods", "team-a", "web-0", labels={"app": "web"}, phase="Succeeded")
    cluster.add("pods", "team-a", "db-1", labels={"app": "db"}, phase="Running")
    cluster.add("pods", "team-a-b", "web-9", labels={"app": "web"}, phase="Running")
    cluster.add("deployments", "team-a", "web", labels={"app": "web"})
    cluster.add("namespaces", "", "team-a", labels={"tier": "gold"})
    cluster.add("namespaces", "", "team-b")
    return cluster


@pytest.fixture
def max_objects():
    return 10


@pytest.fixture
async def bed(api, max_objects):
    bed = Bed(api, max_objects)
    async with running(bed.caches.run()):
        yield bed
