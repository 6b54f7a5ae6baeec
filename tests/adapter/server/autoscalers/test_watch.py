"""Which requests follow from an HPA, and when a change is told; time is that of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.clients.value_index import Item, ValueIndex
from adapter.server.api.outcomes import Outcomes, key_of
from adapter.server.apimachinery import request_info
from adapter.server.autoscalers import questions, watch
from adapter.server.autoscalers.events import Change
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster.shared_index import SharedIndex
from rules.causes.reasons import Reason
from rules.findings import Finding
from rules.kinds import Kinds
from rules.selectors import selectors
from tests.rules.hpa.documents import (
    document,
    external_metric,
    object_metric,
    pods_metric,
    resource_metric,
)

PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/util"
QUERY = "labelSelector=app%3Dweb"
LOST = errors.ApiError(
    404, "not found", causes=[Finding(reason=Reason.NO_RULE, fact="in namespace secret")]
)


VALUE = {"type": "Value", "value": "1"}
CPU = resource_metric(type="Utilization", averageUtilization=50)


def hpa(*metrics: dict[str, Any], name: str = "web", **fields: Any) -> dict[str, Any]:
    found = document(*(metrics or [pods("util")]), name=name, target=name, **fields)
    return found | {"status": {"currentReplicas": 1}}


def pods(name: str) -> dict[str, Any]:
    return pods_metric("1", name)


def external(name: str, **target: str) -> dict[str, Any]:
    return external_metric(name, **target or VALUE)


def described(kind: str, api_version: str, name: str = "x") -> dict[str, Any]:
    return object_metric(kind, api_version, name, **VALUE)


EXTERNAL_GROUP = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        (pods("util"), f"{CUSTOM}/pods/*/util?labelSelector=app%3Dweb"),
        (described("Deployment", "apps/v1"), f"{CUSTOM}/deployments.apps/x/cuda_test_gpu_avg"),
        (described("Service", "v1"), f"{CUSTOM}/services/x/cuda_test_gpu_avg"),
        (described("Namespace", "v1", "default"), f"{CUSTOM}/metrics/cuda_test_gpu_avg"),
        (
            described("Rollout", "argoproj.io/v1"),
            f"{CUSTOM}/rollout.argoproj.io/x/cuda_test_gpu_avg",
        ),
        (external("Queue"), f"{EXTERNAL_GROUP}/queue?labelSelector=queue%3Da"),
        (CPU, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"),
    ],
    ids=str,
)
def test_the_request_is_that_of_the_controller(metric: dict[str, Any], path: str) -> None:
    watched = questions.parse(hpa(metric)).value
    assert watched is not None

    found = questions.request_of(
        watched.metrics[0], watched, Kinds.builtin(), selectors.parse("app=web")
    )

    assert found is not None
    assert f"{found.path}?{urlencode(found.params)}".rstrip("?") == path


def test_the_pods_of_a_workload_are_known() -> None:
    (deployment, rollout) = (questions.parse(hpa(kind=k)).value for k in ("Deployment", "Rollout"))
    assert deployment is not None
    assert rollout is not None

    assert str(questions.workload(deployment.target, Kinds.builtin())) == "deployments.apps"
    assert questions.workload(rollout.target, Kinds.builtin()) is None


def test_without_replicas_there_is_no_request_for_metrics_of_pods() -> None:
    watched = questions.parse({**hpa(), "status": {}}).value
    assert watched is not None

    found = questions.request_of(
        watched.metrics[0], watched, Kinds.builtin(), selectors.parse("app=web")
    )

    assert found is None


KINDS = Kinds.builtin()


class Told:
    """Stands for Events."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool, str]] = []
        self.before: frozenset[str] = frozenset()
        self.turn: asyncio.Semaphore | None = None
        """Lets one Event be written each."""
        self.defects = 0

    async def unresolvable(self) -> frozenset[str]:
        return self.before

    async def write(self, change: Change) -> None:
        if self.turn is not None:
            await self.turn.acquire()
        if self.defects:
            self.defects -= 1
            raise AssertionError
        self.changes.append((change.hpa.name, change.resolved, change.message))


class Bed:
    """A watch of one HPA, whose metric the controller requests before each look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told = Told()
        self.asked: list[str] = []
        self.slow: str | None = None
        """Namespace whose requests are never answered."""
        self.error: errors.ApiError | None = None
        self.answered = True
        self.negative = False
        self.defect = False
        self.outcomes = Outcomes(lambda: self.now)
        self.registry = CollectorRegistry()
        self.meter = telemetry.AutoscalerMetrics(self.registry)
        self.index: SharedIndex[questions.WatchedHpa] = SharedIndex(100)
        self.index.put(questions.parse(hpa()))

    async def run(self, seconds: float, change: Callable[[float], None] = lambda _: None) -> None:
        """Let so many seconds pass."""
        end, ended = self.now + seconds, asyncio.Event()

        async def sleep(pause: float) -> None:
            self.now += pause
            change(self.now)
            if self.answered:
                self._request()
            for _ in range(20):
                await asyncio.sleep(0)
            if self.now > end:
                ended.set()
                await asyncio.Event().wait()

        workloads: ValueIndex[Any] = ValueIndex()
        workloads.put(Item("default", "web", selectors.parse("app=web")))
        autoscalers = Autoscalers(
            hpas=Cache(self.index),
            workloads=Cache(workloads),
            kinds=lambda: KINDS,
            outcomes=self.outcomes,
            ask=self._ask,
            is_served=lambda *_: True,
            events=self.told,
            meter=self.meter,
            clock=lambda: self.now,
            sleep=sleep,
        )
        self.check = autoscalers.check
        running = asyncio.create_task(autoscalers.run())
        try:
            async with asyncio.timeout(20):
                await ended.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def left_out(self) -> dict[str, float]:
        """What the gauge says is left out."""
        (family,) = (each for each in self.registry.collect() if each.name.endswith("_left_out"))
        return {each.labels["reason"]: each.value for each in family.samples}

    @property
    def gauge(self) -> list[tuple[str, float]]:
        (family,) = self.meter.collect()
        return [(each.labels["reason"], each.value) for each in family.samples]

    async def _ask(self, info: request_info.RequestInfo) -> None:
        self.asked.append(info.path)
        if info.namespace == self.slow:
            await asyncio.Event().wait()
        if self.defect:
            raise AssertionError
        self._note(info)

    def _request(self) -> None:
        self._note(request_info.parse(PATH, QUERY))

    def _note(self, info: request_info.RequestInfo) -> None:
        if self.error:
            self.outcomes.note(info, resolved=False, causes=self.error.causes)
        else:
            self.outcomes.note(info, resolved=True, negative=self.negative)


class Cache:
    """Stands for watch caches of one kind."""

    def __init__(self, index: ValueIndex[Any] | None) -> None:
        self._index = index

    def index(self, kind: object) -> ValueIndex[Any] | None:
        return self._index


async def test_a_lasting_change_is_told_once_and_a_short_one_never() -> None:
    bed = Bed()

    def change(now: float) -> None:
        bed.error = LOST if 40 <= now < 45 or 100 <= now < 200 else None

    await bed.run(300, change)

    (lost, back) = bed.told.changes
    assert lost[:2] == ("web", False)
    assert lost[2] == (
        "Pods metric util: NoRule: no rule produces a metric of this name. Add a rule, or use a "
        "name in discovery"
    )
    assert back == ("web", True, "Pods metric util: there is a value again")
    assert bed.asked == []  # the controller asked
    assert bed.gauge == [("", 1.0)]


async def test_the_gauge_has_the_reason_at_the_first_look_after_the_answer() -> None:
    bed = Bed()
    bed.error = LOST

    await bed.run(watch.INTERVAL * 2)

    assert bed.gauge == [("NoRule", 0.0)]
    assert bed.told.changes == []


@pytest.mark.parametrize("average", [True, False])
async def test_a_negative_external_metric_is_told_if_its_target_is_an_average(
    average: bool,
) -> None:
    bed = Bed()
    target = {"averageValue": "1"} if average else {"value": "1"}
    bed.index.put(questions.parse(hpa(external("queue", **target))))
    bed.answered = False

    def change(now: float) -> None:
        bed.negative = now < 150
        if now == 140:
            assert bed.gauge == [("NegativeValue", 0.0) if average else ("", 1.0)]

    await bed.run(300, change)

    # Like any metric that has a value, it is not requested more often.
    assert 4 <= len(bed.asked) <= 5
    if not average:
        assert (bed.told.changes, bed.gauge) == ([], [("", 1.0)])
        return
    lost, back = bed.told.changes
    assert lost[:2] == ("web", False)
    assert lost[2].startswith("External metric queue: NegativeValue: the external metric has a va")
    assert back == ("web", True, "External metric queue: there is a value again")


async def test_what_nobody_requests_is_requested_here_once_a_minute() -> None:
    bed = Bed()
    bed.answered = False

    await bed.run(200)

    assert 3 <= len(bed.asked) <= 4
    assert bed.gauge == [("", 1.0)]


@pytest.mark.parametrize(
    ("written", "same"),
    [
        ("b+in+(y,+x),a==1", True),
        ("a=1,b+in+(x,y)", True),
        ("a+in+(1),b+in+(x,y)", True),
        ("a!=1,b+in+(x,y)", False),
        ("a=1,b+in+(x,z)", False),
        ("a=1", False),
        ("a=(", False),
    ],
)
def test_a_request_is_known_however_its_selector_is_written(written: str, same: bool) -> None:
    sent, other = (
        key_of(request_info.parse(f"{CUSTOM}/pods/*/util", f"labelSelector={each}"))
        for each in ("a=1,b+in+(x,y)", written)
    )

    assert (sent == other) == same


async def test_a_metric_that_was_lost_before_a_restart_is_told_to_be_back() -> None:
    bed = Bed()
    (watched,) = bed.index.values()
    change = Change(hpa=watched, metric="Pods metric util", resolved=True, message="")
    bed.told.before = frozenset({change.name(resolved=False)})

    await bed.run(60)

    assert [resolved for _, resolved, _ in bed.told.changes] == [True]


async def test_an_hpa_that_cannot_be_requested_or_read_disturbs_no_other() -> None:
    bed = Bed()
    long = pods("util")
    long["pods"]["metric"]["selector"] = {
        "matchExpressions": [{"key": "a", "operator": "In", "values": ["x" * 60] * 1200}]
    }
    bed.index.put(questions.parse(hpa(long, name="long")))
    bed.index.put(questions.parse(hpa({"type": "Later"}, name="later")))

    await bed.run(30)

    assert bed.gauge == [("", 1.0)]


async def test_a_defect_that_one_hpa_meets_disturbs_no_other(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = Bed()
    bed.index.put(questions.parse(hpa(kind="StatefulSet", name="hit")))
    workload = questions.workload

    def failing(target: Any, kinds: Kinds) -> Any:
        if target.kind == "StatefulSet":
            raise RecursionError
        return workload(target, kinds)

    monkeypatch.setattr(questions, "workload", failing)

    await bed.run(20)

    assert bed.gauge == [("", 1.0)]
    assert any("default/hit: cannot be watched" in each for each in caplog.messages)


async def test_a_defect_in_an_answer_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    bed.answered = False
    bed.defect = True

    await bed.run(60)

    assert "cannot be answered" in caplog.text
    assert len(bed.asked) > 1


async def test_what_is_left_out_is_in_the_gauge_and_once_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    bed = Bed()
    bed.index = SharedIndex(10)
    bed.index.put(questions.parse(hpa()))
    many = hpa(*(pods(f"m{number}") for number in range(35)), name="many", namespace="greedy")

    def change(now: float) -> None:
        if now == 10:
            bed.index.put(questions.parse(hpa(pods("util"), {"type": "Later"}, name="later")))
            bed.index.put(questions.parse(many))
            assert bed.left_out == {}
            assert bed.check().fact == "no metric is left out"
        if now == 40:
            assert bed.left_out == {"hpa-metrics-all": 30, "unreadable": 1}
            reasons = "hpa-metrics-all, unreadable"
            assert bed.check().fact == f"31 metrics left out, for these reasons: {reasons}"
            bed.index.remove("greedy", "many")
        if now == 60:
            bed.index.remove("default", "later")

    await bed.run(80, change)

    assert bed.left_out == {}
    assert bed.gauge == [("", 1.0)]
    lines = [each.getMessage() for each in caplog.records if "watched" in each.getMessage()]
    assert [line.partition("--limit=NAME=NUMBER: ")[2] for line in lines] == [
        "hpa-metrics-all: greedy/many; unreadable: default/later",
        "unreadable: default/later",
        "",
    ]
    assert lines[-1] == "all metrics of HPAs are watched again"


async def test_the_log_names_three_hpas_of_many(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    for number in range(5):
        bed.index.put(questions.parse(hpa({"type": "Later"}, name=f"h{number}")))

    await bed.run(20)

    assert "unreadable: default/h0, default/h1, default/h2 and others" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize("slow", ["a-first", "z-last"])
async def test_a_namespace_with_slow_metrics_leaves_requests_for_those_of_others(slow: str) -> None:
    bed = Bed()
    bed.answered = False
    bed.slow = slow
    bed.index = SharedIndex(10_000)
    for number in range(40):
        metrics = (external(f"h{number}-{each}") for each in range(30))
        bed.index.put(questions.parse(hpa(*metrics, name=f"h{number}", namespace=slow)))
    bed.index.put(questions.parse(hpa()))

    await bed.run(120)

    assert sum(f"/{slow}/" in each for each in bed.asked) == watch._MAX_ASKED // 2
    assert sum("/default/" in each for each in bed.asked) >= 2


async def test_a_namespace_whose_metrics_come_and_go_leaves_events_for_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_MAX_CHANGES", 20)
    bed = Bed()
    bed.answered = False
    bed.error = LOST
    bed.index = SharedIndex(10_000)
    written = asyncio.Semaphore(0)
    bed.told.turn = written
    metrics = [external(f"m{each}") for each in range(30)]
    bed.index.put(questions.parse(hpa(*metrics, name="many", namespace="a-greedy")))
    bed.index.put(questions.parse(hpa()))

    def change(now: float) -> None:
        if now == 80:
            for _ in range(4):
                written.release()

    await bed.run(100, change)

    assert len(bed.told.changes) == 4
    assert "web" in [name for name, _, _ in bed.told.changes]


async def test_an_event_that_cannot_be_written_for_another_reason_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed()
    bed.error = LOST
    bed.told.defects = 1

    def change(now: float) -> None:
        bed.error = LOST if now < 60 else None

    await bed.run(120, change)

    assert "default/web: the Event cannot be written" in caplog.text
    assert [resolved for _, resolved, _ in bed.told.changes] == [True]
