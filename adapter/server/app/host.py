"""What the parts of the server have in common: settings, tasks, health checks, rights and caches.

A part registers here what the server must know of it. `server` lists the parts.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Self, TypeVar

from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.background import Background
from adapter.clients.limits import Held
from adapter.clients.rights import Rights
from adapter.server.api import health
from adapter.server.api.health import Check
from adapter.settings import Settings

T = TypeVar("T")


class Host:
    """The server that is being built, as its parts see it."""

    def __init__(
        self,
        settings: Settings,
        connections: contextlib.AsyncExitStack,
        background: Background,
        serving: contextlib.AsyncExitStack,
    ) -> None:
        self.settings = settings
        self.registry = CollectorRegistry()
        """Metrics of our own."""
        self.background = background
        self.rights = Rights()
        self.lookups = telemetry.CacheMetrics(self.registry)
        """Lookups of the caches that parts add."""
        self.checks: list[Check] = []
        """Of /readyz, in the order of the parts."""
        self.requests = telemetry.PrometheusRequestMetrics(self.registry)
        self.held = Held()
        """Shared by all clients of Prometheus, as are `requests`."""
        self.connections = connections
        """What tasks use; it is left after they have ended."""
        self.serving = serving
        """What is left before the tasks end, in the reverse order."""
        self.start = background.start
        """Runs a task until the server stops."""

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, settings: Settings) -> AsyncIterator[Self]:
        """Yield a host. On exit end what serves, then the tasks, then the connections of both."""
        async with (
            contextlib.AsyncExitStack() as connections,
            Background.running() as background,
            contextlib.AsyncExitStack() as serving,
        ):
            yield cls(settings, connections, background, serving)

    def check(self, name: str, run: health.Outcome, *, public: bool = True) -> None:
        """Add a check to /readyz; `public` as of `health.Check`."""
        self.checks.append(Check(name=name, run=run, public=public))
