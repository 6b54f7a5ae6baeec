"""API server that stores Secrets and APIServices; `api` is its client."""

from __future__ import annotations

import pytest

from tests.store import Store


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def cluster(store):
    return store
