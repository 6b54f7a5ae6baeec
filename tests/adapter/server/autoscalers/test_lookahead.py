"""Forecasts for watched HPAs, from totals that a client of Prometheus returns; time is the test's.

The load is 100 until eight o'clock each day, and 200 until midnight.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import AsyncMock

import pytest

from adapter import bounds, errors
from adapter.clients.prometheus_result import Listed, QueryResult, RangeResult
from adapter.server.api.groups import question
from adapter.server.api.groups.backend import Backend
from adapter.server.apimachinery import request_info
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.autoscalers import watched_hpa
from adapter.server.autoscalers.lookahead import LookAhead, Watched
from adapter.server.causes.evidence import Probes
from adapter.server.evaluation.forecasts import COUNT, Forecasts, Key
from rules.findings import State
from rules.hpa import past_pods
from rules.hpa.autoscaler import Reference
from rules.kinds import Kinds
from rules.query.aggregate import Sample
from rules.selectors import selectors
from tests import world
from tests.adapter import wired
from tests.adapter.server.evaluation.support import entry_of
from tests.rules.hpa.documents import document, object_metric, pods_metric
from tools.real.prometheus import Prometheus

DAY, HOUR = 86_400, 3600
RULE = """
- seriesQuery: {name}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: 'sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})'
  workloads: sum
"""
AHEAD, AHEAD_OF_MORE = (
    RULE.format(name=name) + "  ahead: {season: 1d, horizon: 5m}\n" for name in ("load", "more")
)
PODS = selectors.parse("app=web")
CREATED = dt.datetime(2026, 11, 27, 6, tzinfo=dt.UTC).timestamp()
PATH = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"


class Totals:
    """Stands for the client of Prometheus."""

    def __init__(self) -> None:
        self.queries: list[tuple[str, float, float]] = []
        self.error: Exception | None = None
        self.since = 0.0
        self.partial = ""
        self.hangs = ""
        """Part of the queries that get no response."""

    async def query_range(
        self, query: str, start: float, end: float, step: float
    ) -> Listed[tuple[RangeResult, ...]]:
        if self.error is not None:
            raise self.error
        if self.hangs and self.hangs in query:
            await asyncio.Event().wait()
        assert (end - start) / step < 11_000, "Prometheus refuses more points"
        self.queries.append((query, start, end))
        times = [start + n * step for n in range(round((end - start) / step) + 1)]
        points = tuple((at, load(at)) for at in times if at >= self.since)
        found = (RangeResult(labels={}, points=points),) if points else ()
        return Listed(content=found, partial=self.partial)


class Pods:
    """Stands for the client of the API server, which has pods that have started."""

    def __init__(self) -> None:
        self.started: list[int] = [10, 30, 50]
        """Seconds from creation to Ready."""
        self.error: Exception | None = None
        self.requests: list[tuple[str, Mapping[str, str]]] = []

        self.unreadable: list[Any] = []

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        self.requests.append((path, params))
        if self.error is not None:
            raise self.error
        return {"items": [*self.unreadable, *(_pod(seconds) for seconds in self.started)]}


def _pod(seconds: int) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": f"web-{seconds}", "creationTimestamp": "2026-11-27T06:00:00Z"},
        "status": {
            "conditions": [{**ready, "lastTransitionTime": f"2026-11-27T06:00:{seconds:02}Z"}]
        },
    }


def load(at: float) -> float:
    return 200.0 if at % DAY >= 8 * HOUR else 100.0


def watched(metric: str = "load", name: str = "web", **more: Any) -> Watched:
    metrics = pods_metric("1", metric)
    hpa = watched_hpa.parse(document(metrics, name=name, target=name, **more)).value
    assert hpa is not None
    info = request_info.parse(f"{PATH}/pods/*/{metric}", f"labelSelector=app%3D{name}")
    return hpa, selectors.parse(f"app={name}"), info


class Bed:
    """Forecasts of HPAs at three minutes before eight on the tenth day."""

    def __init__(self, rules: str = AHEAD, *series: str) -> None:
        self.now = 9 * DAY + 7 * HOUR + 57 * 60.0
        self.client, self.other = Totals(), Totals()
        self.watched = [watched()]
        self.kube = Pods()
        self.forecasts = Forecasts(lambda: self.now)
        self.firsts: dict[str, float] = {}
        """Pod -> seconds from its creation to its first sample."""
        collector = wired.CauseCollector()
        collector.probes = Probes(lambda _: self.query, AsyncMock())
        parts: Any = {"objects": None, "evaluation": None, "collector": collector}
        listed = series or ["load namespace pod"] * rules.count("seriesQuery")
        generation = world.generation("rules:" + rules, *listed)
        backend = Backend(
            generation=generation, kinds=Kinds.builtin(), forecasts=self.forecasts, **parts
        )
        self.made = LookAhead(
            backend=lambda: backend,
            watched=lambda: self.watched,
            clients={"default": self.client, "other": self.other},
            kube=self.kube,
            forecasts=self.forecasts,
            clock=lambda: self.now,
        )

    @property
    def key(self) -> Key:
        (key,) = self.forecasts.present
        return key

    async def query(self, text: str) -> QueryResult:
        """Stand for the client of Prometheus that evaluates the queries for first samples."""
        samples: Iterable[Sample] = ()
        if text.startswith("min_over_time((group by (pod) ("):
            samples = (Sample({"pod": pod}, CREATED + s, 0) for pod, s in self.firsts.items())
        if text.startswith("min_over_time((group("):
            samples = [Sample({}, CREATED - 60, 0)]
        return QueryResult(kind="vector", samples=tuple(samples))

    async def look(self) -> None:
        """Make all forecasts that are due."""
        async with asyncio.TaskGroup() as tasks:
            await self.made.once(tasks)

    async def reason(self) -> str:
        """Look at what is due, and return why the only forecast is served or not."""
        await self.look()
        return self.forecasts.reason(self.key)

    @property
    def horizon(self) -> float:
        return self.forecasts.present[self.key].horizon


async def test_before_the_load_of_each_day_comes_its_pods_have_larger_values() -> None:
    bed = Bed()

    assert await bed.reason() == "Rising"
    served = bed.forecasts.served(bed.key)
    assert served is not None
    assert served.factor() == 2.0
    assert len(bed.forecasts.present[bed.key].forecasts) == COUNT
    assert bed.made.check().fact == "1 metric, 1 with a forecast"


async def test_after_that_they_have_the_present_ones() -> None:
    bed = Bed()
    bed.now += 600

    assert await bed.reason() == "NotRising"


async def test_the_forecasts_of_a_minute_follow_the_time() -> None:
    bed = Bed()
    # Half a minute before the horizon, and a minute more, reaches the rise.
    bed.now -= 210

    reasons = []
    for _ in range(COUNT):
        reasons.append(await bed.reason())
        bed.now += 15
        bed.client.error = errors.Unreachable("down")
        bed.made._kept[bed.key].made = bed.now  # nothing is due

    assert reasons == ["NotRising"] * 2 + ["Rising"] * (COUNT - 2)


async def test_the_query_adds_up_all_pods_with_the_names_of_the_workload() -> None:
    bed = Bed()
    await bed.reason()

    names = "web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"
    load = f'sum by (pod) (load{{namespace="default",pod=~"{names}"}})'
    queries = {query for query, *_ in bed.client.queries}
    assert queries == {f"sum(avg by (pod) (({load}\n) > -Inf < Inf))"}


async def test_a_forecast_is_made_each_minute_and_reads_only_what_is_new() -> None:
    bed = Bed()
    await bed.reason()
    bed.client.queries.clear()
    bed.now += 59
    await bed.reason()
    assert bed.client.queries == []

    bed.now += 1
    assert await bed.reason() == "Rising"

    assert [end - start for _, start, end in bed.client.queries] == [0, 0]


async def test_what_a_failed_query_did_not_return_is_read_later() -> None:
    bed = Bed()
    await bed.reason()
    bed.client.error = errors.Unreachable("down")
    bed.now += 60
    assert await bed.reason() == "Unread"
    assert bed.forecasts.served(bed.key) is not None
    assert bed.made.check().fact.startswith("1 of 1 metrics with `ahead` have no forecast: ")

    bed.client.error = None
    bed.client.queries.clear()
    bed.now += 60

    assert await bed.reason() == "Rising"
    assert [end - start for _, start, end in bed.client.queries] == [60, 60]


async def test_after_a_long_outage_everything_is_read_again() -> None:
    bed = Bed()
    await bed.reason()
    bed.client.queries.clear()
    bed.now += 9 * DAY

    assert await bed.reason() == "Rising"
    lengths = [round((end - start) / HOUR) for _, start, end in bed.client.queries]
    assert lengths == [167, 28, 167, 25]


async def test_the_first_season_has_no_past(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bed = Bed()
    bed.client.since = bed.now - HOUR

    for _ in range(2):
        assert await bed.reason() == "NoPast"
        bed.now += 60

    (record,) = caplog.records
    assert record.getMessage() == (
        "default/web: load: the present value is served: Prometheus has no value of one season "
        "ago; it must keep values for a season and a week"
    )
    assert str(bed.made.check().state) == "warning"


async def test_a_workload_whose_pods_have_no_certain_names_has_the_reason() -> None:
    bed = Bed()
    bed.watched = [watched(kind="Widget")]

    assert await bed.reason() == "Unread"
    assert bed.forecasts.sentence(bed.key) == (
        "the present value is served: the names of the past pods of Widget/web are not certain"
    )


async def test_totals_that_are_partial_are_not_read() -> None:
    bed = Bed()
    bed.client.partial = "a store is down"

    assert await bed.reason() == "Unread"
    assert "did not return the past" in bed.forecasts.sentence(bed.key)


async def test_rules_that_read_several_prometheus_have_the_reason() -> None:
    merged = AHEAD + "  merge: true\n"
    other = merged.replace("seriesQuery: load", "seriesQuery: load2") + "  source: other\n"
    named = other.replace("  resources", "  name: {as: load}\n  resources")
    sources = "\nsources: {other: {url: 'http://other'}}\n"
    bed = Bed(merged + named + sources, "load namespace pod", "load2 namespace pod")

    assert await bed.reason() == "Unread"
    assert bed.forecasts.sentence(bed.key).endswith(
        "the rules of the metric read several Prometheus servers; give them one `source`"
    )


async def test_a_defect_that_one_metric_meets_ends_no_other() -> None:
    bed = Bed()
    bed.watched.append(watched(name="api"))
    bed.client.error = ZeroDivisionError()

    await bed.look()

    assert [*map(bed.forecasts.reason, bed.forecasts.present)] == ["Unread", "Unread"]


async def test_a_metric_that_cannot_be_resolved_takes_no_forecast_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed = Bed()
    bed.watched.append(watched(name="api"))
    found = question.target_of

    def fail_once(info: RequestInfo) -> question.Target:
        monkeypatch.setattr(question, "target_of", found)
        raise ZeroDivisionError

    monkeypatch.setattr(question, "target_of", fail_once)
    await bed.look()

    assert len(bed.forecasts.present) == 1


async def test_without_a_horizon_it_is_the_time_that_pods_take_to_start() -> None:
    bed = Bed(AHEAD.replace(", horizon: 5m", ""))
    await bed.reason()
    assert bed.horizon == 30.0
    ((path, params),) = bed.kube.requests
    assert path == "/api/v1/namespaces/default/pods"
    assert (params["labelSelector"], params["limit"]) == ("app=web", "50")

    bed.kube.started = [40]
    bed.now += 3599
    await bed.reason()
    assert bed.horizon == 30.0
    bed.now += 60
    await bed.reason()
    assert bed.horizon == 40.0
    bed.kube.error = errors.Unreachable("down")
    bed.now += 3600
    await bed.reason()
    assert bed.horizon == 40.0


async def test_the_horizon_reaches_to_the_first_sample_of_pods_that_have_one() -> None:
    bed = Bed(AHEAD.replace(", horizon: 5m", ""))
    bed.firsts = {"web-10": 70, "web-30": 90}

    await bed.reason()

    assert bed.horizon == 80.0


async def test_without_a_pod_that_is_ready_the_start_takes_a_minute() -> None:
    bed = Bed(AHEAD.replace(", horizon: 5m", ""))
    bed.kube.started = []
    await bed.reason()
    assert bed.horizon == 60.0

    bed.kube.started = [40]
    bed.now += 60
    await bed.reason()
    assert bed.horizon == 40.0


async def test_pods_that_cannot_be_read_have_no_part_in_the_horizon() -> None:
    bed = Bed(AHEAD.replace(", horizon: 5m", ""))
    bed.kube.unreadable = [{"metadata": {}}, 1]

    await bed.reason()

    assert bed.horizon == 30.0


async def test_a_defect_in_the_measured_start_ends_no_other_forecast() -> None:
    bed = Bed(AHEAD.replace(", horizon: 5m", ""))
    bed.kube.error = ZeroDivisionError()

    assert await bed.reason() == "Unread"
    bed.kube.error = None
    bed.now += 60
    assert await bed.reason() == "Rising"


async def test_metrics_of_one_workload_have_each_their_own_horizon() -> None:
    rules = (AHEAD + AHEAD_OF_MORE).replace(", horizon: 5m", "")
    bed = Bed(rules, "load namespace pod", "more namespace pod")
    bed.watched = [watched(), watched("more")]

    await bed.look()

    assert len(bed.kube.requests) == 2


async def test_an_object_metric_of_the_target_is_one_of_its_pods() -> None:
    bed = Bed()
    metric = object_metric("Deployment", "apps/v1", "web", type="Value", value="1")
    hpa = watched_hpa.parse(document(metric, target="web")).value
    assert hpa is not None
    for name in ("web", "other"):
        info = request_info.parse(f"{PATH}/deployments.apps/{name}/load")
        bed.watched.append((hpa, PODS, info))
    del bed.watched[0]

    await bed.look()

    ((_, resource, name, *_),) = bed.forecasts.present
    assert (str(resource), name) == ("deployments.apps", "web")


async def test_rules_without_the_key_are_not_even_looked_at() -> None:
    bed = Bed(RULE.format(name="load"))
    bed.watched = None

    await bed.look()

    assert not bed.forecasts.present
    assert bed.made.check().fact == "no HPA has a metric whose rule says `ahead`"


async def test_metrics_without_the_key_and_unknown_ones_have_no_forecast() -> None:
    bed = Bed(AHEAD + RULE.format(name="other"))
    bed.watched = [watched("other"), watched("unknown")]

    await bed.look()

    assert not bed.forecasts.present


async def test_an_hpa_that_is_gone_has_no_forecast_any_more() -> None:
    bed = Bed()
    await bed.reason()
    bed.watched = []

    await bed.look()

    assert not bed.forecasts.present


async def test_forecasts_that_are_due_wait_for_no_new_one_and_no_other_source() -> None:
    other = "  source: other\nsources: {other: {url: 'http://other'}}\n"
    bed = Bed(AHEAD + AHEAD_OF_MORE + other, "load namespace pod", "more namespace pod")
    await bed.reason()
    bed.watched += [watched(name="new"), watched("more")]
    bed.client.hangs = "new-"
    bed.other.hangs = "more"
    bed.client.queries.clear()

    async with asyncio.timeout(90), asyncio.TaskGroup() as tasks:
        for _ in range(3):
            bed.now += 60
            await bed.made.once(tasks)
            await bed.made._running["default", False]
        for source in ("default", "other"):
            bed.made._running[source, True].cancel()

    assert len(bed.client.queries) == 2 * 3
    assert all('"web-[' in query for query, *_ in bed.client.queries)


async def test_some_new_forecasts_of_each_namespace_are_made_at_once() -> None:
    bed = Bed()
    await bed.reason()
    bed.watched = [*(watched(name=f"new-{n}") for n in range(5)), *bed.watched]
    bed.client.queries.clear()
    bed.now += 60

    await bed.look()

    assert len(bed.forecasts.present) == 1 + 4
    bed.now += 5
    await bed.look()
    assert len(bed.forecasts.present) == 1 + 5


async def test_the_number_of_forecasts_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "FORECASTS", 2)
    bed = Bed()
    bed.watched += [watched(name=name) for name in ("a", "b")]

    await bed.look()

    assert len(bed.forecasts.present) == 2
    assert bed.made.check().fact.startswith("1 metrics with `ahead` get no forecast, because")
    bed.made._backend = Bed(RULE.format(name="load")).made._backend
    await bed.look()
    assert bed.made.check().state is State.OK


async def test_it_looks_every_five_seconds_at_what_is_due() -> None:
    bed, pauses, ended = Bed(), list[float](), asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            ended.set()
            await asyncio.Event().wait()

    bed.made._sleep = sleep
    running = asyncio.create_task(bed.made.run())
    async with asyncio.timeout(90):
        await ended.wait()
        await bed.made._running["default", True]
    running.cancel()

    assert pauses == [5.0, 5.0, 5.0]
    assert len(bed.forecasts.present) == 1


def test_prometheus_adds_up_the_finite_values_of_the_pods(empty_prometheus: Prometheus) -> None:
    of_web = 'namespace="n",m="a"'
    empty_prometheus.put(
        f'used{{{of_web},exported_pod="web-0",pod="exporter"}} 1',
        f'used{{{of_web},exported_pod="web-1",pod="exporter"}} NaN',
        f'used{{{of_web},pod="web-12",gpu="0"}} 2',
        f'used{{{of_web},pod="web-12",gpu="1"}} 6',
        f'used{{{of_web},pod="other-0"}} 10',
        'used{namespace="n",m="b",pod="web-3"} 20',
        'used{namespace="other",m="a",pod="web-4"} 40',
    )
    query = "<<.Series>>{<<.LabelMatchers>>}  # of each GPU"
    for aggregate, total in (("avg", 5.0), ("max", 7.0), ("sum", 9.0)):
        entry = entry_of(
            query=query, more=f"aggregate: {aggregate}", labels=("exported_pod", "pod")
        )
        workload = Reference(api_version="apps/v1", kind="StatefulSet", name="web")

        text = past_pods.total("n", workload, entry.steps, selectors.parse("m=a"))

        (found,) = empty_prometheus.query(text)
        assert float(found["value"][1]) == total
