"""The router on a socket, fakes of its backends, and a client that sends raw bytes."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from multidict import CIMultiDict
from prometheus_client import CollectorRegistry

from adapter.server.api import discovery, health, router
from adapter.server.api.groups.backend import Backend, TeamRulesView
from adapter.server.api.openapi import OpenApi
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.heads import Head
from adapter.server.auth import authentication, authorization, filters, tokens, trust
from adapter.server.auth.in_flight import WaitingForReview
from adapter.server.causes import collector
from adapter.server.cluster.object_index import Object
from adapter.server.evaluation.evaluation import Evaluated, Usages
from adapter.server.http import server
from adapter.server.http.connection import Serve
from adapter.server.series.generation import Generation
from rules import ruleset
from rules.causes.candidates import Inventory
from rules.causes.evidence import Evidence
from rules.causes.reasons import Reason
from rules.findings import Finding
from rules.kinds import GroupResource, Kinds
from rules.query import catalog as catalogs
from rules.query import resource
from rules.query.aggregate import ExternalValue, Value
from rules.query.catalog import Catalog, Listing, Series, Step
from rules.query.plan import ExternalPlan, Plan
from rules.query.resource import ResourceQueries, Usage, UsageByName
from rules.ruleset import RuleSet
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes
    rest: bytes = b""
    """Bytes after the body, up to the end of the connection."""


class Objects:
    """Fake of cluster.objects.Objects with the names and labels of objects in memory."""

    def __init__(
        self,
        kinds: Kinds,
        objects: Mapping[tuple[GroupResource, str], Mapping[str, Mapping[str, str]]],
    ) -> None:
        self.kinds = kinds
        self.known = objects
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}
        """Equal names are the same object, as those of an index without changes."""
        self.finished: set[str] = set()
        self.ready: dict[str, float] = {}
        """Pod -> seconds for which it has been Ready; others are not."""
        self.selectors: dict[tuple[GroupResource, str], dict[str, Selector]] = {}
        """Workloads with the selectors of their pods."""
        self.younger_failure: Exception | None = None
        self.failure: Exception | None = None
        self.discovered = kinds

    async def refresh(self) -> Kinds:
        if self.failure is not None:
            raise self.failure
        self.kinds = self.discovered
        return self.kinds

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        if self.failure is not None:
            raise self.failure
        return self.present_names(resource, namespace=namespace, selector=selector)

    def present_names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        by_name = self.known.get((resource, namespace), {})
        names = tuple(name for name, labels in by_name.items() if selector.matches(labels))
        return self._names.setdefault(names, names)

    async def objects(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[Object, ...]:
        if self.failure is not None:
            raise self.failure
        return tuple(
            Object(place, name, tuple(itertools.chain.from_iterable(sorted(labels.items()))))
            for (each, place), by_name in self.known.items()
            for name, labels in by_name.items()
            if each == resource and namespace in ("", place) and selector.matches(labels)
        )

    async def object(self, resource: GroupResource, *, namespace: str, name: str) -> Object | None:
        found = await self.objects(resource, namespace=namespace, selector=Selector())
        return next((each for each in found if each.name == name), None)

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        if self.younger_failure is not None:
            raise self.younger_failure
        ages = {name: self.ready.get(name, 0.0) for name in names}
        return {name: age for name, age in ages.items() if age < seconds}

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        if self.failure is not None:
            raise self.failure
        return self.selectors.get((resource, namespace), {})

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        if self.failure is not None:
            raise self.failure
        return name not in self.finished


class Evaluation:
    """Fake Evaluation with values in memory; records the plans."""

    def __init__(
        self,
        values: Mapping[tuple[GroupResource, str], Value],
        external: Mapping[str, Sequence[ExternalValue]] | None = None,
    ) -> None:
        self.known = values
        self.external = external or {}
        self.used: dict[tuple[str, str, str], Usage] = {}
        """By `cpu` or `memory`, namespace and name."""
        self.not_finite: set[tuple[str, str, str]] = set()
        """Keys as in `used`."""
        self.calls: list[Plan | ExternalPlan] = []
        self.failure: BaseException | None = None
        self.failing = frozenset({"cpu", "memory"})
        """Queries of metrics.k8s.io that fail if `failure` is set."""
        self.waits = 0.0

    def freshness(self, step: Step) -> float:
        """Return what a real one returns for a rule that sets none."""
        return 1.0

    async def values(
        self, plan: Plan, *, deadline: float | None = None, serve_partial: bool = False
    ) -> Evaluated[Mapping[str, Value]]:
        await self._ask(plan)
        named = ((name, self.known.get((plan.resource, name))) for name in plan.names)
        return Evaluated(values={name: value for name, value in named if value is not None})

    def repeats(self, *_: object) -> bool:
        return False

    async def usages(
        self, plans: Sequence[Plan], *, deadline: float | None = None
    ) -> tuple[Usages, ...]:
        self.calls += plans
        return tuple(
            self._usage(plan)
            if self.failure is None or plan.metric not in self.failing
            else self.failure
            for plan in plans
        )

    def _usage(self, plan: Plan) -> UsageByName:
        keys = {name: (plan.metric, plan.namespace, name) for name in plan.names}
        found = UsageByName(
            (name, self.used[key])
            for name, key in keys.items()
            if key in self.used and key not in self.not_finite
        )
        found.not_finite = [name for name, key in keys.items() if key in self.not_finite]
        return found

    async def rows(
        self, plan: ExternalPlan, *, deadline: float | None = None
    ) -> Evaluated[Sequence[ExternalValue]]:
        await self._ask(plan)
        return Evaluated(values=self.external.get(plan.metric, ()))

    async def _ask(self, plan: Plan | ExternalPlan) -> None:
        self.calls.append(plan)
        plan.promql()  # raises PlanError as the real one does
        await asyncio.sleep(self.waits)
        if self.failure is not None:
            raise self.failure


class Nobody:
    """Caller of an authorized request who may not read discovery."""

    slot = contextlib.nullcontext()

    async def may_read(self, path: str) -> bool:
        return False

    def is_known_to_read(self, path: str) -> bool:
        return False


async def only_answers(*_: object) -> Nobody:
    """Guard that allows all requests, but not to read discovery."""
    return Nobody()


def guard(api: Any, *, waiting: WaitingForReview | None = None, **limits: int) -> filters.Guard:
    """Return the filters of a server without CAs, whose API server is `api`."""
    reviews = tokens.TokenReviews(api, waiting=waiting)
    authenticator = authentication.Authenticator(trust.Trust, reviews)
    return filters.Guard(authenticator, authorization.Authorizer(api, waiting=waiting), **limits)


class Probes:
    """Fake Probes without evidence."""

    async def without_value(self, *_: object) -> tuple[Evidence, ...]:
        return ()

    async def with_values(self, *_: object, **__: object) -> tuple[Evidence, ...]:
        return ()


class CauseCollector(collector.CauseCollector):
    """Fake CauseCollector with one cause for all metrics without a value; records the calls."""

    def __init__(self) -> None:
        self.probes: Any = Probes()
        self.calls: list[object] = []
        self.causes_visible: list[tuple[str, tuple[Finding, ...]]] = []

    async def of_metric(
        self, inventory: Inventory, metric: str, resource: GroupResource | None = None
    ) -> tuple[Finding, ...]:
        self.calls.append((metric, resource))
        return (Finding(reason=Reason.NO_SERIES, fact="<none> were seen"),)

    async def of_plan(self, inventory: Inventory, plan: Plan | ExternalPlan) -> tuple[Finding, ...]:
        self.calls.append(plan)
        return (Finding(reason=Reason.NO_SAMPLE, fact="nothing was found"),)

    def log_causes(
        self, subject: str, causes: Sequence[Finding], error: Exception | None = None
    ) -> None:
        self.causes_visible.append((subject, tuple(causes)))
        log.warning("%s: %s: %s", subject, "; ".join(map(str, causes)), error)


def generation(catalog: Catalog, resources: ResourceQueries | None = None) -> Generation:
    """Return a generation that has this catalog, and no rules."""
    return Generation(
        ruleset=RuleSet(),
        resources=resources,
        kinds=Kinds.builtin(),
        listings={},
        statuses={},
        catalog=catalog,
        series_by_metric={},
    )


def catalog(
    text: str, *series: str, labels: Iterable[str] = (), kinds: Kinds | None = None
) -> Catalog:
    """Return the catalog of rules, of which the first have one series each, with `labels`."""
    rules = ruleset.load([("rules.yaml", text)])
    listings = {
        rule.index: Listing(series=(Series(name=name, labels=frozenset(labels)),))
        for rule, name in zip(rules.all, series, strict=False)
    }
    return catalogs.build(rules, listings, kinds or Kinds.builtin())


@functools.cache
def _queries() -> ResourceQueries:
    """Return queries, with which metrics.k8s.io is served."""
    key = "{containerQuery: up, nodeQuery: up, resources: {template: <<.Resource>>}}"
    rules = ruleset.load([("f.yaml", f"resourceRules: {{cpu: {key}, memory: {key}, window: 1m}}")])
    assert rules.resource_rules is not None
    return resource.compile(rules.resource_rules)


def build_router(
    catalog: Catalog | None = None,
    objects: Objects | None = None,
    evaluation: Evaluation | None = None,
    *,
    resources: ResourceQueries | None = None,
    collector: CauseCollector | None = None,
    team_rules: TeamRulesView | None = None,
    **options: Any,
) -> Serve:
    """Return the router of a server that serves all groups, by default without any metric."""
    objects = objects or Objects(Kinds.builtin(), {})
    parts: Any = {
        "objects": objects,
        "evaluation": evaluation or Evaluation({}),
        "collector": collector or CauseCollector(),
    }
    backend = Backend(
        generation=generation(catalog or Catalog.empty(), resources or _queries()),
        kinds=objects.kinds,
        team_rules=team_rules,
        **parts,
    )
    return router_of(lambda: backend, **options)


def router_of(
    backend: Callable[[], Backend],
    *,
    port: int = 6443,
    live: Sequence[health.Check] = (),
    ready: Sequence[health.Check] = (),
    **options: Any,
) -> Serve:
    """Return the router of a server with this backend."""
    documents = discovery.Discovery(secure_port=port)
    operator_endpoints = health.OperatorEndpoints(
        live=live,
        ready=ready,
        registry=CollectorRegistry(),
        api_paths=(*documents.of(backend().generation).paths, *OpenApi.paths),
    )
    return router.build_router(
        discovery=documents,
        openapi=OpenApi(),
        operator_endpoints=operator_endpoints,
        backend=backend,
        **options,
    )


def head(headers: Mapping[str, str] | Sequence[tuple[str, str]] = ()) -> Head:
    """Return the head of a request with `headers`."""
    return Head(CIMultiDict(headers), request_info.parse("/"))


@contextlib.asynccontextmanager
async def listening(handler: Serve, **limits: float) -> AsyncIterator[int]:
    """Serve `handler` and yield the port."""
    limits = {"shutdown_seconds": 1.0, "head_seconds": 5.0, "close_seconds": 0.5, **limits}
    listener = server.Listener(handler, "127.0.0.1", 0, **limits)
    listener.start()
    try:
        yield listener.port
    finally:
        await listener.close()


@contextlib.contextmanager
def sending(
    serve: Serve, *, quiet_seconds: float = 10.0, **limits: float
) -> Iterator[Callable[[bytes], bytes]]:
    """Yield a function that sends bytes to a server, and returns what it receives.

    After the first bytes, it waits `quiet_seconds` for more: a connection that is kept alive never
    ends.
    """
    with asyncio.Runner() as loop:

        async def start() -> server.Listener:
            listener = server.Listener(
                serve, "127.0.0.1", 0, shutdown_seconds=0.1, close_seconds=0.1, **limits
            )
            listener.start()
            return listener

        async def exchange(data: bytes) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            answer = b""
            try:
                writer.write(data)
                while True:
                    async with asyncio.timeout(quiet_seconds if answer else 20):
                        if not (piece := await reader.read(1 << 16)):
                            return answer
                    answer += piece
            except (ConnectionError, TimeoutError):
                return answer
            finally:
                writer.close()

        listener = loop.run(start())

        def send(data: bytes) -> bytes:
            return loop.run(exchange(data))

        yield send
        loop.run(listener.close())


async def fetch(
    port: int, target: str | bytes, *, method: str = "GET", headers: Mapping[str, str] | None = None
) -> Reply:
    raw = target if isinstance(target, bytes) else target.encode("utf-8", "surrogateescape")
    fields = {"Host": "adapter", "Connection": "close", **(headers or {})}
    head = b"".join(f"{name}: {value}\r\n".encode() for name, value in fields.items())
    return await send(
        port, method.encode() + b" " + raw + b" HTTP/1.1\r\n" + head + b"\r\n", method
    )


async def send(port: int, data: bytes, method: str = "GET") -> Reply:
    """Send `data` and return what the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        async with asyncio.timeout(60):
            return _reply(await reader.read(), method)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def _reply(raw: bytes, method: str) -> Reply:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    length = int(headers.get("Content-Length", len(rest))) if method != "HEAD" else 0
    return Reply(
        status=int(first.split()[1]), headers=headers, body=rest[:length], rest=rest[length:]
    )
