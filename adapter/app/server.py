"""The composition root: every part is made here, in order, and unmade in reverse.

Only this module and the commands know `Settings`; each part gets its plain arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.api import health, router
from adapter.api.discovery import Discovery
from adapter.api.groups import GROUPS
from adapter.api.groups.group import Backend
from adapter.api.missing import MissingMetrics
from adapter.api.openapi import OpenApi
from adapter.app import rule_files, security
from adapter.app import sources as upstream
from adapter.background import Background
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.cluster.manifests import FileObjects
from adapter.cluster.objects import ClusterObjects
from adapter.http import responses, server
from adapter.metrics import detection
from adapter.metrics.evaluation import Evaluation
from adapter.metrics.relist import Relist
from adapter.settings import Settings, Source
from rules.lint import check

log = logging.getLogger(__name__)

_DEFAULT = "gpu-dcgm"
_CHOICE_WITHIN = 10.0
"""Seconds; the server does not listen before it has its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that listens."""

    url: str
    relist: Relist


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Running]:
    """Serve as `settings` say; listening, if not yet ready, when this is entered.

    Raises ConfigError for the rules and StartError for everything else that prevents a start.
    """
    for notice in settings.notices:
        log.warning("%s", notice)
    registry = CollectorRegistry()
    async with contextlib.AsyncExitStack() as stack:
        background = await stack.enter_async_context(Background.running())
        prometheus = await stack.enter_async_context(
            upstream.connect_prometheus(settings, telemetry.Requests(registry))
        )
        compiled = rule_files.load(settings.sources or await _chosen(prometheus))
        for problem in (*compiled.problems, *check.warnings(compiled)):
            log.warning("%s", problem)
        objects = await _objects(settings, stack, background)
        relist = Relist(
            compiled,
            prometheus,
            lambda: objects.kinds,
            interval=settings.metrics_relist_interval,
            max_age=settings.metrics_max_age,
            meter=telemetry.Relists(registry),
        )
        background.start("relist", relist.run())
        backend = Backend(
            catalog=lambda: relist.catalog,
            objects=objects,
            evaluation=Evaluation(prometheus),
            absences=MissingMetrics(lambda: relist.seen, relist.labels),
        )
        discovery = Discovery(GROUPS, lambda: relist.catalog, secure_port=settings.secure_port)
        openapi = OpenApi(GROUPS)
        secured = await security.from_settings(settings, stack, background, registry)
        closing = asyncio.Event()
        operations = health.Ops(
            live=(health.Check(name="background-tasks", run=background.check),),
            ready=(
                health.Check(name="background-tasks", run=background.check),
                health.Check(name="kinds", run=lambda: _kinds_known(objects)),
                health.Check(name="first-relist", run=lambda: _attempted(relist)),
                health.Check(name="prometheus", run=lambda: _listed(relist)),
                *secured.checks,
                health.Check(name="shutdown", run=lambda: _not_closing(closing)),
            ),
            registry=registry,
            api_paths=(*discovery.paths, *openapi.paths),
        )
        handler = router.build_router(
            discovery=discovery,
            openapi=openapi,
            operations=operations,
            backend=backend,
            guard=secured.guard,
            closing=closing.is_set,
        )
        url = await _listen(settings, handler, secured.context, stack)
        await stack.enter_async_context(_draining(closing, settings.shutdown_delay))
        secured.listening()
        log.info("serving on %s", url)
        yield Running(url=url, relist=relist)


async def _chosen(prometheus: Prometheus) -> tuple[Source, ...]:
    """The presets that fit what Prometheus has, where the command line names no rules."""
    try:
        async with asyncio.timeout(_CHOICE_WITHIN):
            choice = await detection.choose(prometheus)
    except (errors.BackendError, TimeoutError) as error:
        names = [_DEFAULT]
        why = f"Prometheus cannot be asked what it has ({str(error) or 'no answer in time'})"
    else:
        names = list(choice.presets) or [_DEFAULT]
        if choice.provisional and _DEFAULT not in names:
            names.append(_DEFAULT)  # for the pods that may come
        why = "; ".join(choice.findings) or "they fit what Prometheus has"
    flags = " ".join(f"--preset={name}" for name in names)
    log.warning("neither --config nor --preset is given: using %s: %s", flags, why)
    return tuple(Source(kind="preset", name=name) for name in names)


async def _objects(
    settings: Settings, stack: contextlib.AsyncExitStack, background: Background
) -> ClusterObjects | FileObjects:
    try:
        if settings.objects:
            return FileObjects.load(settings.objects)
        kube = await Kube.connect(
            settings.lister_kubeconfig, qps=settings.client_qps, burst=settings.client_burst
        )
    except errors.BackendError as error:
        raise errors.StartError(
            f"{error}\n--lister-kubeconfig=FILE names a cluster; --objects=FILE stands for one"
        ) from error
    stack.push_async_callback(kube.close)
    objects = ClusterObjects(kube, interval=settings.discovery_interval)
    background.start("discovery of kinds", objects.run())
    return objects


@contextlib.asynccontextmanager
async def _draining(closing: asyncio.Event, seconds: float) -> AsyncIterator[None]:
    """At its end tells whoever asks that this server is about to go, and for a while goes on."""
    try:
        yield
        closing.set()
        log.info("shutting down: not ready any more; the listener closes in %g s", seconds)
        await asyncio.sleep(seconds)
    finally:
        closing.set()


def _kinds_known(objects: ClusterObjects | FileObjects) -> None:
    if isinstance(objects, ClusterObjects) and not objects.discovered:
        raise RuntimeError("the cluster's kinds of resource are not known yet")


def _attempted(relist: Relist) -> None:
    if not relist.attempted.is_set():
        raise RuntimeError("the first relist has not been attempted yet")


def _listed(relist: Relist) -> str:
    """Tells how it stands; never fails, for an unready adapter stops namespace deletion."""
    failing = sum(1 for state in relist.states if state.error)
    total = len(relist.states)
    return f"{total - failing} of {total} rules listed at the last attempt"


def _not_closing(closing: asyncio.Event) -> None:
    if closing.is_set():
        raise RuntimeError("process is shutting down")


async def _listen(
    settings: Settings,
    handler: responses.WebHandler,
    context: ssl.SSLContext,
    stack: contextlib.AsyncExitStack,
) -> str:
    runner = server.runner(handler)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = server.Site(
        runner,
        settings.bind_address,
        settings.secure_port,
        ssl_context=context,
        reuse_port=settings.permit_port_sharing,
    )
    try:
        await site.start()
    except OSError as error:
        raise errors.StartError(
            f"cannot listen on {settings.bind_address}:{settings.secure_port}: {error.strerror}; "
            "--secure-port names another port"
        ) from error
    return site.name
