"""Compares past values of a replay with the answers that the server gave then.

Both have the same real Prometheus. The server's steps run at each time of the past, with the
objects of then; a replay reads ranges afterwards.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.cli.commands import local_backend
from adapter.cli.doctor import client, history
from adapter.cli.doctor.history import Past
from adapter.clients.prometheus import Prometheus
from adapter.server.api.groups import custom, external
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import AnyGroup, answer
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.negotiation import UNCHANGED
from adapter.server.evaluation.evaluation import Evaluation
from rules import quantity, ruleset
from rules.document.sources import DEFAULT
from rules.errors import UnreadableError
from rules.hpa import autoscaler, reading
from rules.hpa.reading import ApiReply, ApiRequest
from rules.hpa.replay import MetricReading
from rules.kinds import PODS, WORKLOADS, GroupResource, Kinds
from rules.metrics_apis import CUSTOM, EXTERNAL
from rules.query import entry_document
from rules.query.pod_age import too_young
from rules.selectors import selectors
from rules.selectors.selectors import Selector
from tools.real import prometheus as real
from tools.replay import worlds
from tools.replay.worlds import STEP, Case

_DISCOVERY = {
    "/apis/apps/v1": [("Deployment", "deployments")],
    "/api/v1": [("Service", "services"), ("Namespace", "namespaces"), ("Pod", "pods")],
}


@dataclass(kw_only=True)
class Row:
    """What became of one case."""

    case: Case
    past: Past | None
    """None if it was refused, because a metric has no value at all."""
    answers: list[tuple[MetricReading, ...]]
    """What the controller would have read from the server of each metric, at each step."""
    items: list[list[list[Any]]]
    """Of the server's answers; empty for an error."""

    @property
    def compared(self) -> list[tuple[tuple[MetricReading, ...], tuple[MetricReading, ...]]]:
        """What a replay and the server say, at each step."""
        by_time = (
            {round(each.time): each.readings for each in self.past.history} if self.past else {}
        )
        nothing = (MetricReading(milli=None),) * len(self.case.each)
        found = []
        for step, answered in enumerate(self.answers):
            read = by_time.get(self.case.time(step), nothing)
            if self.case.known:
                found.append((read, answered))
            else:  # a pod without a sample is not known
                found.append((tuple(map(_without_pods, read)), tuple(map(_without_pods, answered))))
        return found

    @property
    def wrong(self) -> list[int]:
        """The steps at which they differ."""
        if self.past is None and self.is_empty:
            return []
        return [i for i, (read, answered) in enumerate(self.compared) if read != answered]

    @property
    def is_empty(self) -> bool:
        """Whether a metric has no value at any step."""
        of_metrics = zip(*self.answers, strict=True)
        return any(all(each.milli is None for each in of) for of in of_metrics)


def _without_pods(reading: MetricReading) -> MetricReading:
    return replace(reading, missing=0, unready=0)


class _Objects:
    """The objects of a case at one step."""

    def __init__(self, case: Case) -> None:
        self.case, self.step = case, 0

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        return tuple(self.case.live(self.step)) if resource == PODS else ("web",)

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        return True

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        ready = self.case.ready_since(self.step)
        return too_young(ready, names, now=self.case.time(self.step), seconds=seconds)

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        return {"web": selectors.parse("app=web")} if resource in WORKLOADS else {}

    async def refresh(self) -> Kinds:
        return Kinds.builtin()


class Api:
    """What a replay reads from the API server: the HPA, its scale, and the rules of its metric."""

    def __init__(self, case: Case, backend: Backend) -> None:
        self._case, self._backend = case, backend

    async def run(self, steps: Any) -> Any:
        """Return the result of steps."""
        return await client.run(steps, self._reply)

    async def _reply(self, request: ApiRequest) -> ApiReply:
        if request.path.endswith("/scale"):
            status = {"replicas": 1, "selector": "app=web"}
            return ApiReply(document={"spec": {"replicas": 1}, "status": status})
        if request.path == f"/apis/{CUSTOM.name}":
            served = [{"version": "v1beta2"}]
            return ApiReply(document={"preferredVersion": served[0], "versions": served})
        if request.path in _DISCOVERY:
            kinds = _DISCOVERY[request.path]
            resources = [{"kind": kind, "name": name} for kind, name in kinds]
            return ApiReply(document={"resources": resources})
        return ApiReply(document=self._case.hpa)

    async def explanation(self, request: ApiRequest) -> Mapping[str, Any]:
        """Return the part of an explanation that a replay needs."""
        group, info = parsed(request)
        requested = await group.resolve(info, self._backend)
        plan = json.loads(json.dumps(entry_document.document(requested.entry)))
        return {"plan": plan, "verdict": ""}


def parsed(request: ApiRequest) -> tuple[AnyGroup, request_info.RequestInfo]:
    """Return the API group of a request, and the request as the server parses it."""
    group: AnyGroup = external if EXTERNAL.has(request.path) else custom
    query = "&".join(f"{key}={each}" for key, each in request.params.items())
    return group, request_info.parse(request.path, query)


async def compare(cases: Sequence[Case], url: str) -> list[Row]:
    """Ask the server at each step of each case, then replay it."""
    every = [each for case in cases for each in case.each]
    text = "rules:" + "".join(each.rules for each in every)
    text += "\nexternalRules:" + "".join(each.external for each in every)
    rules = ruleset.load([("rules.yaml", text)])
    now = float(cases[0].time(cases[0].steps - 1))

    def clock() -> float:
        return now

    async with aiohttp.ClientSession() as session:
        then = Prometheus(session, url, clock=clock)
        local = await local_backend.connect(rules, {DEFAULT: then}, clock=clock)
        rows = []
        for case in cases:
            objects: Any = _Objects(case)
            evaluation = Evaluation(
                {DEFAULT: then},
                metrics=telemetry.EvaluationMetrics(CollectorRegistry()),
                freshness=0.0,
                clock=clock,
            )
            own = replace(local, objects=objects, evaluation=evaluation)
            api: Any = Api(case, own)
            requests = await _requests(api, case)
            answers, items = [], []
            for step in range(case.steps):
                now, objects.step = float(case.time(step)), step
                items.append([await _items(each, own) for each in requests])
                read = (
                    _read_from(found, each, step)
                    for found, each in zip(items[-1], case.each, strict=True)
                )
                answers.append(tuple(read))
            await evaluation.close()
            past = await _read(api, Prometheus(session, url), case)
            rows.append(Row(case=case, past=past, answers=answers, items=items))
    return rows


async def _read(api: Any, prometheus: Prometheus, case: Case) -> Past | None:
    since, now = float((case.steps - 1) * STEP), float(case.time(case.steps - 1))
    try:
        hpa = await api.run(reading.hpa(case.namespace, "web"))
        return await history.read(api, prometheus, hpa, now=now, since=since, step=float(STEP))
    except UnreadableError as error:
        if "has no history" not in str(error):
            raise
        return None


async def _requests(api: Api, case: Case) -> list[ApiRequest]:
    found = await api.run(reading.requests(autoscaler.autoscaler(case.hpa)))
    return [each for each in found if isinstance(each, ApiRequest)]


async def _items(request: ApiRequest, backend: Backend) -> list[Any]:
    """Return the items of the server's answer; none for an error."""
    group, info = parsed(request)
    try:
        content = await answer(group, info, backend, deadline=math.inf)
        return [*content.build(UNCHANGED)["items"]]
    except errors.ApiError:
        return []


def _read_from(items: Sequence[Any], case: Case, step: int) -> MetricReading:
    """Return what the controller reads from the items."""
    values = [quantity.milli_value(each["value"]) for each in items]
    if not values:
        return MetricReading(milli=None)
    if case.kind != "pods":
        return MetricReading(milli=_total(values, average=case.average))
    of = dict(zip((each["describedObject"]["name"] for each in items), values, strict=True))
    missing = unready = 0
    for pod in case.there(step):
        phase = pod.phase(step)
        if step >= pod.deleted or phase == "Failed":
            of.pop(pod.name, None)
        elif phase == "Pending":
            unready += 1
            of.pop(pod.name, None)
        elif pod.name not in of:
            missing += 1
    counted = [*of.values()]
    if not counted:
        return MetricReading(milli=None)
    return MetricReading(milli=sum(counted), counted=len(counted), missing=missing, unready=unready)


def _total(values: Sequence[int], *, average: bool) -> int:
    """Add as the controller does: in 64 bits, of which it takes negative averages for overflow."""
    total = 0
    for each in values:
        total = (total + each + (1 << 63)) % (1 << 64) - (1 << 63)
        if average and total < 0:
            return (1 << 63) - 1
    return total


async def run(number: int, *, seed: int = 1, steps: int = 40) -> list[Row]:
    """Compare random cases on a Prometheus of their own."""
    with tempfile.TemporaryDirectory() as folder, real.run(Path(folder)) as prometheus:
        begin = int(time.time()) // STEP * STEP - steps * STEP
        cases = [worlds.case(each, seed, begin=begin, steps=steps) for each in range(number)]
        for case in cases:
            prometheus.put_series(case.written())
        return await compare(cases, prometheus.url)
