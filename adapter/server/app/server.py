"""Builds the server: creates its parts in order, and closes them in reverse order.

Only this package and the commands know `Settings`; each part gets plain arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn

from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.background import Background, collect_garbage, watch_stalls
from adapter.clients.held import Held
from adapter.clients.kubernetes import Kube
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult
from adapter.clients.rights import Rights
from adapter.server.api import groups as api_groups
from adapter.server.api import health, router
from adapter.server.api.discovery import Discovery
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.explain import Explainer
from adapter.server.api.groups.group import AnyGroup, Backend, Questions
from adapter.server.api.openapi import OpenApi
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery.heads import Heads
from adapter.server.app import autoscaling, fallback, security, sources, teams
from adapter.server.app.reload import Reload
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.cluster import collection, watch_cache
from adapter.server.cluster.complete import CompleteObjects
from adapter.server.cluster.manifests import FileObjects
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.cluster.readiness import Readiness
from adapter.server.cluster.value_index import ValueIndex
from adapter.server.cluster.watch_cache import WatchCaches
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.http import server
from adapter.server.http.connection import Serve
from adapter.server.series import detection
from adapter.server.series.detection import DetectedPresets
from adapter.server.series.generation import Generation
from adapter.server.series.relist import Relist
from adapter.settings import AUTO, Settings
from rules.lint import check
from rules.ruleset import CompiledRule, RuleSet
from rules.selectors.selectors import Selector
from rules.teams import SOURCE

log = logging.getLogger(__name__)

_LIST_QPS, _LIST_BURST = 100.0, 200
"""Minimum limits of the lists for kinds that are not watched: those of 1 500 autoscalers."""
_RATE_FLAGS = "--client-qps and --client-burst"
_REPLICAS_INTERVAL = 600.0
_DETECTION_TIMEOUT = 10.0
"""Seconds; the server listens only once it has its rules."""


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[str]:
    """Run a server with `settings` and yield its URL. It listens, but may not be ready.

    Raises ConfigError for invalid rules, and StartError for everything else that prevents a start.
    """
    for notice in settings.notices:
        log.warning("%s", notice)
    registry = CollectorRegistry()
    # Left in the reverse order: what serves ends first, then the tasks, then what both ask.
    async with (
        contextlib.AsyncExitStack() as connections,
        Background.running() as background,
        contextlib.AsyncExitStack() as serving,
    ):
        requests, held = telemetry.PrometheusRequestMetrics(registry), Held()
        prometheus = await connections.enter_async_context(
            sources.connect_prometheus(settings.prometheus, requests, held=held)
        )
        from_where = settings.rules.sources or (AUTO,)
        presets = DetectedPresets(
            prometheus,
            interval=settings.relist.interval,
            meter=telemetry.DetectionMetrics(registry),
        )
        if AUTO in from_where:
            await presets.detect(_DETECTION_TIMEOUT)
        rules = Reload(from_where, lambda: presets.names, meter=telemetry.ReloadMetrics(registry))
        named = await connections.enter_async_context(
            sources.connect_sources(rules.ruleset.sources, requests, held=held)
        )
        for problem in (*rules.ruleset.problems, *check.warnings(rules.ruleset)):
            log.warning("%s", problem)
        rights = Rights()
        cluster = await _cluster(
            settings, lambda: relist.generation, rights, connections, background, registry
        )
        objects = cluster.objects
        team_rules: teams.Teams | None = None
        if settings.rules.team_selector and cluster.watched is not None:
            team_rules = await teams.connect(
                settings,
                cluster.watched.kube,
                rights,
                connections,
                background,
                registry,
                cluster.watched.metrics,
                requests,
                held,
                lambda: relist.generation,
            )
            rules.add(team_rules.rules)
        ruleset = rules.ruleset
        others = {**named, SOURCE: team_rules.client} if team_rules else named
        relist = Relist(
            ruleset,
            prometheus,
            lambda: objects.kinds,
            sources=others,
            interval=settings.relist.interval,
            max_age=settings.relist.max_age or settings.relist.interval,
            meter=telemetry.RelistMetrics(registry),
        )
        background.start("relist", relist.run())
        stalls = telemetry.LoopMetrics(registry)
        background.start("event loop", watch_stalls(stalls.longest))
        background.start("garbage collection", collect_garbage())
        background.start("replicas", _count_replicas(relist, (prometheus, *others.values())))
        evaluation = Evaluation(
            prometheus,
            metrics=telemetry.EvaluationMetrics(registry),
            sources=others,
            freshness=settings.values.query_freshness,
            allow_partial=settings.values.allow_partial_responses,
        )
        serving.push_async_callback(evaluation.close)

        def query_of(rule: CompiledRule) -> Callable[[str], Awaitable[QueryResult]]:
            client = others.get(rule.config.source, prometheus)
            return client.for_team(rule.team).query

        collector = CauseCollector(
            relist.labels,
            metrics=telemetry.CauseMetrics(registry),
            probes=Probes(query_of, lambda: detection.report(prometheus)),
        )
        background.start("cause log", collector.run())

        async def adopt(changed: RuleSet) -> None:
            await relist.adopt(changed, others)
            present = relist.generation.rules
            evaluation.adopt(present, others)
            collector.adopt(present)

        background.start("reload", rules.run(adopt))
        if AUTO in from_where:
            background.start("detection", presets.run(rules.request))
        questions = Questions()
        other = None
        if cluster.watched is not None:
            other = await fallback.connect(
                settings, cluster.watched.kube, rights, connections, background
            )

        @functools.lru_cache(maxsize=1)
        def backend_of(generation: Generation) -> Backend:
            backend = Backend(
                generation=generation,
                objects=objects,
                evaluation=evaluation,
                collector=collector,
                questions=questions,
                fallback=other,
                team_rules=team_rules.reports if team_rules else None,
            )
            views = {
                namespace: replace(backend, generation=view, questions=Questions())
                for namespace, view in generation.teams.items()
            }
            return replace(backend, teams=views)

        def groups() -> tuple[AnyGroup, ...]:
            return api_groups.served(relist.generation)

        port = settings.serving.port
        discovery = Discovery(
            groups,
            lambda: relist.generation.catalog,
            secure_port=port,
            elsewhere=lambda: other.listed if other else (),
        )
        openapi = OpenApi(groups)
        lookups = telemetry.CacheMetrics(registry)
        heads = Heads()
        encoded, outcomes = EncodedAnswers(), Outcomes()
        lookups.add("heads", heads.cache)
        lookups.add("questions", questions.cache)
        lookups.add("answers", encoded.cache)
        lookups.add("discovery", discovery.encoded.cache)
        secured = await security.from_settings(
            settings, groups(), rights, connections, background, registry, lookups
        )
        if not settings.cluster.objects:
            background.start("rights", rights.run())
        autoscalers = None
        if cluster.watched is not None:
            autoscalers = autoscaling.start(
                kube=cluster.watched.kube,
                workloads=cluster.watched.workloads,
                outcomes=outcomes,
                discovery=discovery,
                backend=lambda: backend_of(relist.generation),
                background=background,
                limits=settings.limited.limits,
                watch_metrics=cluster.watched.metrics,
                meter=telemetry.AutoscalerMetrics(registry),
            )
        closing = asyncio.Event()
        operator_endpoints = health.OperatorEndpoints(
            live=(health.Check(name="background-tasks", run=background.check, public=True),),
            ready=(
                health.Check(name="background-tasks", run=background.check, public=True),
                health.Check(name="kinds", run=lambda: _check_kinds(objects), public=True),
                health.Check(
                    name="first-relist", run=lambda: _check_first_relist(relist), public=True
                ),
                health.Check(name="prometheus", run=prometheus.reachability.check, public=True),
                *(
                    health.Check(
                        name=f"prometheus-{name}", run=client.reachability.check, public=True
                    )
                    for name, client in named.items()
                ),
                health.Check(name="rules", run=relist.check, public=True),
                health.Check(name="reload", run=rules.check, public=True),
                *(
                    (health.Check(name="presets", run=presets.check, public=True),)
                    if AUTO in from_where
                    else ()
                ),
                *(
                    (health.Check(name="team-rules", run=team_rules.rules.check, public=True),)
                    if team_rules
                    else ()
                ),
                *(
                    (health.Check(name="autoscalers", run=autoscalers.check, public=True),)
                    if autoscalers
                    else ()
                ),
                *((health.Check(name="external-fallback", run=other.check),) if other else ()),
                health.Check(name="watch-caches", run=cluster.watches, public=True),
                health.Check(name="evaluation", run=evaluation.status, public=True),
                *(
                    (health.Check(name="usage", run=evaluation.usage_status.check, public=True),)
                    if ruleset.resource_rules
                    else ()
                ),
                health.Check(name="rights", run=rights.check, public=True),
                *secured.checks,
                health.Check(name="shutdown", run=lambda: _check_not_closing(closing), public=True),
            ),
            registry=registry,
            api_paths=(*discovery.paths, *openapi.paths),
        )
        background.start("health", operator_endpoints.run())
        handler = router.build_router(
            discovery=discovery,
            openapi=openapi,
            operator_endpoints=operator_endpoints,
            backend=lambda: backend_of(relist.generation),
            guard=secured.guard,
            explainer=Explainer(query_of, relist.labels),
            encoded=encoded,
            heads=heads,
            outcomes=outcomes,
            closing=closing.is_set,
            causes_in_messages=settings.serving.causes_in_messages,
            meter=telemetry.RequestMetrics(
                registry,
                {(each.NAME, version) for each in api_groups.GROUPS for version in each.VERSIONS},
            ),
        )
        if team_rules is not None:
            team_rules.start(background, rules.request)
        url = _listen(settings, handler, secured.context, serving)
        await serving.enter_async_context(_draining(closing, settings.serving.shutdown_delay))
        secured.on_listening()
        log.info("serving on %s", url)
        gc.freeze()  # modules live as long as the process
        yield url


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    objects: ClusterObjects | FileObjects
    watches: Callable[[], str]
    """Returns the state of the watch caches."""
    watched: _Watched | None = None
    """What the watch of autoscalers shares; None if the objects are read from files."""


class _Watched(NamedTuple):
    kube: Kube
    workloads: WatchCaches[ValueIndex[Selector]]
    metrics: telemetry.WatchCacheMetrics


async def _cluster(
    settings: Settings,
    generation: Callable[[], Generation],
    rights: Rights,
    stack: contextlib.AsyncExitStack,
    background: Background,
    registry: CollectorRegistry,
) -> _Cluster:
    cluster = settings.cluster
    if cluster.objects:
        try:
            return _Cluster(
                objects=FileObjects(cluster.objects), watches=lambda: "objects are read from files"
            )
        except errors.BackendError as error:
            raise errors.StartError(str(error)) from error
    try:
        kube = await Kube.connect(
            cluster.kubeconfig,
            qps=cluster.qps,
            burst=cluster.burst,
            flags=_RATE_FLAGS,
        )
    except errors.BackendError as error:
        raise errors.StartError(
            f"{error}\nuse --lister-kubeconfig=FILE for another cluster, "
            "or --objects=FILE to run without one"
        ) from error
    stack.push_async_callback(kube.close)
    watch_metrics = telemetry.WatchCacheMetrics(registry)
    caches = WatchCaches(kube, watch_cache.OBJECTS, metrics=watch_metrics)
    background.start("watch caches", caches.run())
    ready = WatchCaches(kube, watch_cache.READY_PODS, metrics=watch_metrics)
    background.start("watch of ready pods", ready.run())
    workloads = WatchCaches(
        kube, watch_cache.pod_selectors(settings.limited.limits), metrics=watch_metrics
    )
    background.start("watch of workloads", workloads.run())
    # Callers wait for lists. So these have a rate limit of their own, and do not delay the watches.
    listing = kube.with_rate(
        qps=max(cluster.qps, _LIST_QPS), burst=max(cluster.burst, _LIST_BURST), flags=_RATE_FLAGS
    )
    objects = ClusterObjects(
        kube,
        listing=listing,
        caches=caches,
        readiness=Readiness(CompleteObjects(listing, ready)),
        workloads=CompleteObjects(listing, workloads),
        interval=cluster.discovery_interval,
    )
    background.start("discovery of kinds", objects.run())
    rights.require(kube, lambda: collection.rights(generation().ruleset, objects.kinds))
    return _Cluster(
        objects=objects,
        watches=lambda: watch_cache.statuses(caches, ready, workloads),
        watched=_Watched(kube, workloads, watch_metrics),
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


async def _count_replicas(relist: Relist, clients: Sequence[Prometheus]) -> NoReturn:
    """Every ten minutes, count the servers behind one address, and return to the preferred one."""
    await relist.attempted.wait()
    while True:
        for client in clients:
            await client.count_replicas()
        await asyncio.sleep(_REPLICAS_INTERVAL)


def _check_kinds(objects: ClusterObjects | FileObjects) -> None:
    if isinstance(objects, ClusterObjects) and not objects.discovered:
        raise RuntimeError("the resource kinds of the cluster are not discovered yet")


def _check_first_relist(relist: Relist) -> None:
    if not relist.attempted.is_set():
        raise RuntimeError("the first relist is not finished yet")


def _check_not_closing(closing: asyncio.Event) -> None:
    if closing.is_set():
        raise RuntimeError("process is shutting down")


def _listen(
    settings: Settings,
    handler: Serve,
    context: ssl.SSLContext,
    stack: contextlib.AsyncExitStack,
) -> str:
    """Listen, and return the server's URL. Raises StartError."""
    address, port = settings.serving.bind_address, settings.serving.port
    listener = server.Listener(
        handler,
        address,
        port,
        ssl_context=context,
        reuse_port=settings.serving.permit_port_sharing,
    )
    try:
        listener.start()
    except OSError as error:
        raise errors.StartError(
            f"cannot listen on {address}:{port}: {error.strerror}; "
            "use --secure-port for another port"
        ) from error
    stack.push_async_callback(listener.close)
    return listener.url
