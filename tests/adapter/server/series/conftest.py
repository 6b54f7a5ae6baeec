"""Relists on the real Prometheus of a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from adapter.clients.prometheus import Prometheus
from adapter.server.series.relist import Relist
from rules.document.sources import DEFAULT
from rules.kinds import Kinds
from rules.ruleset import RuleSet


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def relist_on(session) -> Callable[..., Relist]:
    """Return a function that creates a relist of rules on the server at a URL."""

    def create(rules: RuleSet, url: str, **options) -> Relist:
        settings = {"kinds": Kinds.builtin, "interval": 600, "max_age": 600, **options}
        clients = {DEFAULT: Prometheus(session, url), **settings.pop("sources", {})}
        return Relist(rules, clients, settings.pop("kinds"), **settings)

    return create
