"""Evaluations that end with their test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.server.evaluation.evaluation import Evaluation
from rules.document.sources import DEFAULT


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
async def evaluate() -> AsyncIterator[Callable[..., Evaluation]]:
    """Return a function that creates an evaluation on a client; each request is queried."""
    created = []

    def create(client, registry: CollectorRegistry | None = None, **options) -> Evaluation:
        metrics = telemetry.EvaluationMetrics(registry or CollectorRegistry())
        created.append(
            Evaluation({DEFAULT: client}, metrics=metrics, **{"freshness": 0.0, **options})
        )
        return created[-1]

    yield create
    for each in created:
        await each.close()
