"""Builds the server: lists its parts, which close in reverse order.

Only this package and the commands know `Settings`; each part gets plain arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable

from adapter import telemetry
from adapter.background import collect_garbage, watch_stalls
from adapter.server.api import groups as api_groups
from adapter.server.api import health, router
from adapter.server.api.discovery import Discovery
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.explain import Explainer
from adapter.server.api.groups.backend import Backend
from adapter.server.api.openapi import OpenApi
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.heads import Heads
from adapter.server.app import autoscaling, binding, cluster, fallback, reload, security, teams
from adapter.server.app.host import Host
from adapter.server.app.security import Security
from adapter.server.app.values import Values
from adapter.server.http import server
from adapter.server.http.connection import Serve
from adapter.settings import Settings
from rules.metrics_apis import APIS

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def running(settings: Settings, bound: socket.socket | None = None) -> AsyncIterator[str]:
    """Run a server with `settings` and yield its URL. It listens, but may not be ready.

    `bound` is the socket of `binding`, if the port was bound before this module was loaded. Raises
    ConfigError for invalid rules, and StartError for everything else that prevents a start.
    """
    for notice in settings.notices:
        log.warning("%s", notice)
    async with Host.running(settings) as host:
        host.start("event loop", watch_stalls(telemetry.LoopMetrics(host.registry).late))
        host.start("garbage collection", collect_garbage())
        rules, clients, embedded = await reload.load(host)
        objects, watched = await cluster.connect(host, lambda: rules.ruleset)
        team_rules = await teams.connect(
            host, watched, lambda: values.relist.generation, rules, clients
        )
        ruleset = rules.routed
        values = Values(host, ruleset, clients, objects, embedded)
        host.start("reload", rules.run(values.adopt, ruleset))
        other = await fallback.connect(host, watched)
        backend = values.backend(host, objects, other, team_rules)
        discovery = Discovery(
            secure_port=settings.serving.port, elsewhere=lambda: other.listed if other else ()
        )
        host.lookups.add("discovery", discovery.encoded.cache)
        outcomes = Outcomes()
        secured = await security.connect(host, api_groups.served(values.relist.generation))
        autoscaling.start(host, watched, outcomes, backend, clients)
        closing = asyncio.Event()
        handler = _api(host, backend, discovery, outcomes, secured, closing)
        url = _listen(host, handler, secured.context, bound or binding.bind(settings.serving))
        await host.serving.enter_async_context(_draining(closing, settings.serving.shutdown_delay))
        secured.on_listening()
        log.info("serving on %s", url)
        yield url


def _api(
    host: Host,
    backend: Callable[[], Backend],
    discovery: Discovery,
    outcomes: Outcomes,
    secured: Security,
    closing: asyncio.Event,
) -> Serve:
    """Return the function that serves all requests, and start the health checks."""
    if not host.settings.cluster.objects:
        host.start("rights", host.rights.run())
    host.check("rights", host.rights.check)
    host.check("shutdown", lambda: _check_not_closing(closing))
    live = health.Check(name="background-tasks", run=host.background.check, public=True)
    operator_endpoints = health.OperatorEndpoints(
        live=(live,),
        ready=(live, *host.checks),
        registry=host.registry,
        api_paths=(*discovery.of(backend().generation).paths, *OpenApi.paths),
    )
    host.start("health", operator_endpoints.run())
    heads, encoded = Heads(), EncodedAnswers()
    host.lookups.add("heads", heads.cache)
    host.lookups.add("answers", encoded.cache)
    return router.build_router(
        discovery=discovery,
        openapi=OpenApi(),
        operator_endpoints=operator_endpoints,
        backend=backend,
        guard=secured.guard,
        explainer=Explainer(),
        encoded=encoded,
        heads=heads,
        outcomes=outcomes,
        closing=closing.is_set,
        causes_in_messages=host.settings.serving.causes_in_messages,
        meter=telemetry.RequestMetrics(
            host.registry, {(api.name, version) for api in APIS for version in api.versions}
        ),
    )


@contextlib.asynccontextmanager
async def _draining(closing: asyncio.Event, seconds: float) -> AsyncIterator[None]:
    """On exit set `closing`, which makes /readyz fail, and continue to serve for `seconds`."""
    try:
        yield
        closing.set()
        log.info("shutting down: /readyz fails; the listener closes in %g s", seconds)
        await asyncio.sleep(seconds)
    finally:
        closing.set()


def _check_not_closing(closing: asyncio.Event) -> None:
    if closing.is_set():
        raise RuntimeError("process is shutting down")


def _listen(host: Host, handler: Serve, context: ssl.SSLContext, bound: socket.socket) -> str:
    """Accept connections, and return the server's URL."""
    serving = host.settings.serving
    listener = server.Listener(handler, serving.bind_address, serving.port, ssl_context=context)
    listener.start(bound)
    host.serving.push_async_callback(listener.close)
    return listener.url
