"""The server's steps from a request to its values, for commands: they have no cluster.

`check` and `test` differ in where the names of the objects come from. Only this module and those
that run the server import it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.clients import detection
from adapter.clients.prometheus import Prometheus
from adapter.server.api.groups import custom, external
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import AnyGroup, Content
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.cluster.manifests import FileObjects
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.series.relist import Relist
from rules import metrics_apis
from rules.document.sources import DEFAULT
from rules.kinds import NAMESPACES, GroupResource, Kinds
from rules.metrics_apis import ALL_OBJECTS, CUSTOM
from rules.ruleset import RuleSet
from rules.selectors.selectors import Selector

__all__ = ["Backend", "Steps", "connect", "evaluate"]

_WINDOW = 600.0
"""Seconds in which a series needs a sample, as for the server by default."""
_DEADLINE = math.inf
"""Of a request, in loop time: the client limits each query."""
_ANY = Selector(requirements=())


class _GivenObjects(FileObjects):
    """Objects whose names are given; all have been ready for long."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        super().__init__(())
        self._given = tuple(given)

    def present_names(self, *_: object, **__: object) -> tuple[str, ...]:
        """Return the given names."""
        return self._given

    async def younger(self, *_: object, **__: object) -> Mapping[str, float]:
        """Return nothing: `minPodAge` leaves out no pod."""
        return {}


async def connect(
    ruleset: RuleSet,
    clients: Mapping[str, Prometheus],
    *,
    allow_partial: bool = False,
    scrapes: bool = True,
    clock: Callable[[], float] = time.time,
) -> Backend:
    """Return a backend without objects, after one relist on `clients`, which are by source.

    Each request is queried anew. `scrapes` is as for `Probes`; `clock` returns Unix seconds.
    """
    relist = Relist(
        ruleset,
        clients,
        Kinds.builtin,
        interval=_WINDOW,
        max_age=_WINDOW,
        clock=clock,
    )
    await relist.once()
    registry = CollectorRegistry()
    probes = Probes(
        lambda rule: clients[rule.config.source].for_team(rule.team).query,
        lambda: detection.report(clients[DEFAULT]),
        scrapes=scrapes,
        now=clock,
    )
    return Backend(
        generation=relist.generation,
        kinds=Kinds.builtin(),
        objects=_GivenObjects(),
        evaluation=Evaluation(
            clients,
            metrics=telemetry.EvaluationMetrics(registry),
            freshness=0.0,
            allow_partial=allow_partial,
            clock=clock,
        ),
        collector=CauseCollector(
            relist.labels, probes=probes, metrics=telemetry.CauseMetrics(registry)
        ),
        clock=clock,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the steps of a request have passed on."""

    group: AnyGroup
    backend: Backend
    requested: Any
    query: Any
    """The plan; None if there is nothing to query."""
    found: Any
    """Evaluated values."""

    async def content(self) -> Content:
        """Return the document, and why values are missing. Raises ApiError."""
        return await self.group.content(self.requested, self.query, self.found, self.backend)


async def evaluate(
    backend: Backend,
    metric: str,
    resource: GroupResource | None,
    *,
    namespace: str,
    names: Iterable[str] = (),
    selector: Selector = _ANY,
) -> Steps:
    """Resolve, plan and evaluate the request of an autoscaler for a metric. Raises ApiError.

    It is for the objects `names` or, if `resource` is None, for an external metric. `selector`
    selects series.
    """
    group: AnyGroup = external if resource is None else custom
    info = _info(metric, resource, namespace, str(selector))
    backend = dataclasses.replace(backend, objects=_GivenObjects(names))
    requested = await group.resolve(info, backend)
    query = group.plan(requested)
    found = await group.evaluate(requested, query, backend, deadline=_DEADLINE)
    return Steps(group=group, backend=backend, requested=requested, query=query, found=found)


def _info(
    metric: str, resource: GroupResource | None, namespace: str, selector: str
) -> RequestInfo:
    if resource is None:
        path, key = metrics_apis.external_metric(metric, namespace), "labelSelector"
    else:
        within = "" if resource == NAMESPACES else namespace
        path = metrics_apis.custom_metric(
            metric, str(resource), ALL_OBJECTS, namespace=within, version=CUSTOM.versions[-1]
        )
        key = "metricLabelSelector"
    return request_info.parse(path, urlencode({key: selector}) if selector else "")
