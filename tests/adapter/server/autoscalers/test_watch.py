"""Which requests follow from an HPA, and when a change is told; time is that of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from prometheus_client import CollectorRegistry

from adapter import bounds, errors, telemetry
from adapter.clients.value_index import Item, ValueIndex
from adapter.server.api.groups.group import Content
from adapter.server.api.outcomes import Outcomes, key_of
from adapter.server.apimachinery import request_info
from adapter.server.autoscalers import proposals, watch, watched_hpa
from adapter.server.autoscalers.events import Change
from adapter.server.autoscalers.proposals import Proposals
from adapter.server.autoscalers.watch import Autoscalers
from adapter.server.cluster.contents import ReplicaStatus, Workload, WorkloadIndex
from adapter.server.cluster.object_index import Object, ObjectIndex
from adapter.server.cluster.scales import Scales, ScaleTarget
from adapter.server.cluster.shared_index import SharedIndex
from rules.causes.reasons import Reason
from rules.findings import Finding, State
from rules.kinds import GroupResource, Kinds
from rules.metrics_apis import EXTERNAL
from rules.query.aggregate import ExternalValue, Value
from rules.selectors import selectors
from tests.rules.hpa.documents import (
    document,
    external_metric,
    object_metric,
    pods_metric,
    resource_metric,
)
from tests.world import group

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


KINDS = Kinds.builtin()
SELECTOR = selectors.parse("app=web")
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        (pods("util"), f"{CUSTOM}/pods/*/util?labelSelector=app%3Dweb"),
        (described("Deployment", "apps/v1"), f"{CUSTOM}/deployments.apps/x/cuda_test_gpu_avg"),
        (
            described("Rollout", "argoproj.io/v1"),
            f"{CUSTOM}/rollout.argoproj.io/x/cuda_test_gpu_avg",
        ),
        (CPU, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"),
    ],
    ids=str,
)
def test_the_request_is_that_of_the_controller(metric: dict[str, Any], path: str) -> None:
    watched = watched_hpa.parse(hpa(metric)).value

    found = watched_hpa.request_of(watched.metrics[0], watched, KINDS, SELECTOR)

    assert f"{found.path}?{urlencode(found.params)}".rstrip("?") == path


@pytest.mark.parametrize("synced", [True, False])
def test_without_replicas_at_a_sync_metrics_of_pods_are_not_needed(synced: bool) -> None:
    watched = watched_hpa.parse(without_pods(synced=synced)).value

    assert watched.needs(watched.metrics[0]) == (not synced)


def without_pods(*, synced: bool = True) -> dict[str, Any]:
    """Return an HPA that may scale to zero, and has."""
    active = {"type": "ScalingActive", "status": "True"}
    status = {"currentReplicas": 0, "conditions": [active] if synced else []}
    document = hpa()
    return {**document, "spec": {**document["spec"], "minReplicas": 0}, "status": status}


def value(milli: int) -> Value:
    return Value(milli=milli, time=0, samples=1)


def answer(
    values: Mapping[str, Value] | tuple[ExternalValue, ...], selected: tuple[str, ...] = ()
) -> Content:
    return Content(
        sources=(), items=len(values), build=lambda _: {}, values=values, selected=selected
    )


NO_API: Any = None


class Told:
    """Stands for Events."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool, str]] = []
        self.before: frozenset[str] = frozenset()
        self.turn: asyncio.Semaphore | None = None
        """Lets one Event be written each."""
        self.defects = self.failures = 0

    async def unresolvable(self) -> frozenset[str]:
        return self.before

    async def write(self, change: Change) -> bool:
        if self.turn is not None:
            await self.turn.acquire()
        if self.defects:
            self.defects -= 1
            raise AssertionError
        if self.failures:
            self.failures -= 1
            return False
        self.changes.append((change.hpa.name, change.resolved, change.message))
        return True


class Bed:
    """A watch of one HPA, whose metric the controller requests before each look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told = Told()
        self.asked: list[str] = []
        self.slow: str | None = None
        """Namespace whose requests are never answered."""
        self.error: errors.ApiError | None = None
        self.lost = ""
        """Part of the label selectors of metrics that have no value."""
        self.answered = True
        self.value = value(2000)
        self.selected = self.with_value = ("a", "b")
        self.pods, self.pending = ObjectIndex(), ValueIndex[bool]()
        self.status: ReplicaStatus | None = None
        self.defect = False
        self.outcomes = Outcomes(lambda: self.now)
        self.registry = CollectorRegistry()
        self.meter = telemetry.AutoscalerMetrics(self.registry)
        self.kinds = KINDS
        self.discoveries = 0
        self.scales: Any = Scales(NO_API, resources=(), kinds=lambda: self.kinds)
        self.index: SharedIndex[watched_hpa.WatchedHpa] = SharedIndex(100)
        self.put(hpa())

    def put(self, document: dict[str, Any]) -> None:
        """Have an HPA."""
        self.index.put(watched_hpa.parse(document))

    async def run(self, seconds: float, change: Callable[[float], None] = lambda _: None) -> None:
        """Let so many seconds pass."""
        end, ended = self.now + seconds, asyncio.Event()

        async def sleep(pause: float) -> None:
            self.now += pause
            change(self.now)
            if self.answered:
                self.request()
            for _ in range(20):
                await asyncio.sleep(0)
            if self.now > end:
                ended.set()
                await asyncio.Event().wait()

        workloads = WorkloadIndex()
        workloads.put(Workload("default", "web", selectors.parse("app=web"), self.status))
        hpas = Cache(self.index)
        autoscalers = Autoscalers(
            hpas=hpas,
            workloads=Cache(workloads),
            scales=self.scales,
            kinds=lambda: self.kinds,
            outcomes=self.outcomes,
            request=self._ask,
            is_served=lambda *_: True,
            discover=self._discover,
            events=self.told,
            proposals=Proposals(
                pods=Cache(self.pods), pending=Cache(self.pending), workloads=Cache(workloads)
            ),
            meter=self.meter,
            clock=lambda: self.now,
            sleep=sleep,
        )
        self.unwatch = lambda: setattr(hpas, "found", None)
        self.check, self.requests = autoscalers.check, autoscalers.requests
        running = asyncio.create_task(autoscalers.run())
        try:
            async with asyncio.timeout(90):
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
        family, _ = self.meter.collect()
        return [(each.labels["reason"], each.value) for each in family.samples]

    @property
    def proposed(self) -> dict[str, float]:
        """What the metrics of the HPA propose."""
        _, family = self.meter.collect()
        return {each.labels["metric"]: each.value for each in family.samples}

    async def _discover(self) -> None:
        self.discoveries += 1
        raise errors.Unreachable("refused")

    async def _ask(self, info: request_info.RequestInfo) -> None:
        self.asked.append(info.path)
        if info.namespace == self.slow:
            await asyncio.Event().wait()
        if self.defect:
            raise AssertionError
        self._note(info)

    def request(self) -> None:
        """Answer the controller."""
        self._note(request_info.parse(PATH, QUERY))

    def _note(self, info: request_info.RequestInfo) -> None:
        if self.error or (self.lost and self.lost in info.label_selector):
            self.outcomes.note(info, None, causes=LOST.causes)
        elif info.group == EXTERNAL.name:
            value = ExternalValue(labels={}, value=self.value)
            self.outcomes.note(info, answer((value,)))
        else:
            values = dict.fromkeys(self.with_value, self.value)
            self.outcomes.note(info, answer(values, selected=self.selected))


class Cache:
    """Stands for watch caches of one kind."""

    def __init__(self, index: Any) -> None:
        self.found = index

    def index(self, kind: object) -> Any:
        return self.found


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
    bed.put(hpa(external("queue", **target)))
    bed.answered = False

    def change(now: float) -> None:
        bed.value = value(-1000 if now < 150 else 1000)
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


async def test_a_change_is_told_also_after_a_time_without_replicas() -> None:
    bed = Bed()

    def change(now: float) -> None:
        bed.error = LOST if now < 40 else None
        bed.put(without_pods() if 40 <= now < 60 else hpa())

    await bed.run(100, change)

    assert [resolved for _, resolved, _ in bed.told.changes] == [False, True]


@pytest.mark.parametrize("lost", ["queue=a", "queue=b"])
async def test_metrics_of_one_name_are_one_that_has_a_value_if_each_has(lost: str) -> None:
    bed = Bed()
    bed.answered = False
    metrics = [external("depth"), external("depth")]
    for each, name in zip(metrics, "ab", strict=True):
        each["external"]["metric"]["selector"] = {"matchLabels": {"queue": name}}
    bed.put(hpa(*metrics))
    bed.lost = lost

    await bed.run(60)

    assert bed.gauge == [("NoRule", 0.0)]
    assert [resolved for _, resolved, _ in bed.told.changes] == [False]


async def test_hpas_that_cannot_be_watched_any_more_have_no_requests() -> None:
    bed = Bed()

    def change(now: float) -> None:
        if now == 20:
            assert len([*bed.requests()]) == 1
            bed.unwatch()

    await bed.run(30, change)

    assert [*bed.requests()] == []
    assert bed.check().state is State.WARNING


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
    bed.put(hpa(long, name="long"))
    bed.put(hpa({"type": "Later"}, name="later"))

    await bed.run(30)

    assert bed.gauge == [("", 1.0)]


@pytest.mark.parametrize(
    ("where", "met"),
    [(watched_hpa, "scale_targets"), (Proposals, "note"), (proposals, "replicas")],
)
async def test_a_defect_that_one_hpa_meets_ends_nothing_for_others(
    where: Any, met: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = getattr(where, met)

    def failing(*args: Any, **more: Any) -> Any:
        if "hit" in [getattr(each, "name", "") for each in args]:
            raise ZeroDivisionError
        return found(*args, **more)

    monkeypatch.setattr(where, met, failing)
    bed = Bed()
    bed.put(hpa(external("queue"), name="hit"))

    await bed.run(40)

    assert bed.proposed == {"Pods metric util": 4}
    assert {*bed.gauge} == {("", 1.0)}
    assert "default/hit: " in caplog.text
    assert "ZeroDivisionError" in caplog.text


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
    bed.put(hpa())
    many = hpa(*(pods(f"m{number}") for number in range(35)), name="many", namespace="greedy")

    def change(now: float) -> None:
        if now == 10:
            bed.put(hpa(pods("util"), {"type": "Later"}, name="later"))
            bed.put(many)
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
    assert [line.partition("(unlisted): ")[2] for line in lines] == [
        "hpa-metrics-all: greedy/many; unreadable: default/later",
        "unreadable: default/later",
        "",
    ]
    assert lines[-1] == "all metrics of HPAs are watched again"


async def test_the_log_names_three_hpas_of_many(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    for number in range(5):
        bed.put(hpa({"type": "Later"}, name=f"h{number}"))

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
        bed.put(hpa(*metrics, name=f"h{number}", namespace=slow))
    bed.put(hpa())

    await bed.run(120)

    assert sum(f"/{slow}/" in each for each in bed.asked) == watch._MAX_REQUESTS // 2
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
    bed.put(hpa(*metrics, name="many", namespace="a-greedy"))
    bed.put(hpa())

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


async def test_an_event_that_could_not_be_written_is_written_later() -> None:
    bed = Bed()
    bed.error = LOST
    bed.told.failures = 3

    await bed.run(60)

    assert [resolved for _, resolved, _ in bed.told.changes] == [False]


ROLLOUTS = GroupResource("argoproj.io", "rollouts")


def with_rollouts(*scale_targets: GroupResource) -> Kinds:
    return Kinds.of((*KINDS.groups, group("argoproj.io", "rollouts Rollout")), scale_targets)


def of_rollout(*metrics: dict[str, Any]) -> dict[str, Any]:
    found = hpa(*metrics)
    found["spec"]["scaleTargetRef"] |= {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}
    return found


class Selected:
    """Stands for the scales; records which are wanted."""

    def __init__(self) -> None:
        self.wanted: list[Mapping[ScaleTarget, bool]] = []
        self.text = ""

    def want(self, targets: Mapping[ScaleTarget, bool]) -> None:
        self.wanted.append(targets)

    def selected(self, target: ScaleTarget) -> selectors.Selector | None:
        assert target == ScaleTarget(ROLLOUTS, "default", "web")
        return selectors.parse(self.text) if self.text else None


async def test_the_scale_of_a_rollout_is_wanted_and_has_the_selector_of_its_pods() -> None:
    bed = Bed()
    bed.kinds, bed.scales = with_rollouts(ROLLOUTS), Selected()
    bed.put(of_rollout(described("Rollout", "argoproj.io/v1", "x")))

    def change(now: float) -> None:
        bed.scales.text = "app=web" if now >= 20 else ""

    await bed.run(10, change)
    assert {each.name for each in bed.scales.wanted[-1]} == {"web", "x"}

    bed.put(of_rollout(pods("util")))
    await bed.run(20, change)
    assert bed.gauge == [("", 1.0)]
    assert [*bed.scales.wanted[-1].values()] == [False]

    # Without a value, the selector may have changed: it is read soon.
    bed.error = LOST
    await bed.run(20, change)
    assert [*bed.scales.wanted[-1].values()] == [True]


async def test_a_target_of_a_new_kind_lets_kinds_be_discovered_for_a_minute() -> None:
    bed = Bed()
    bed.put(of_rollout(pods("util")))

    await bed.run(300)

    assert bed.discoveries == watch._NEW / watch.INTERVAL  # most of them do nothing
    assert bed.left_out == {}


async def test_an_hpa_on_a_kind_that_is_not_listed_is_said_to_be_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bed = Bed()
    bed.kinds = with_rollouts()
    bed.put(of_rollout(pods("util"), external("queue")))

    await bed.run(20)

    assert bed.left_out == {"unlisted": 1}
    assert "--scale-targets lacks (unlisted): unlisted: default/web" in caplog.text


@pytest.mark.parametrize(
    ("milli", "pending", "deleted", "proposed"),
    [
        (500, (), (), 2),  # c has no value, so it counts as the target
        (500, ("c",), (), 1),
        (2000, ("c",), (), 4),
        (2000, (), ("b", "c"), 2),
    ],
)
async def test_pods_count_as_in_the_controller(
    milli: int, pending: tuple[str, ...], deleted: tuple[str, ...], proposed: int
) -> None:
    bed = Bed()
    bed.put({**hpa(), "status": {"currentReplicas": 3}})
    bed.value = value(milli)
    bed.selected = ("a", "b", "c")
    for each in bed.selected:
        bed.pods.put(Object("default", each, (), each in deleted))
    for each in pending:
        bed.pending.put(Item("default", each, True))

    await bed.run(watch.INTERVAL * 2)

    assert bed.proposed == {"Pods metric util": proposed}


async def test_what_the_controller_changes_after_an_answer_counts_at_the_next_one() -> None:
    bed = Bed()

    def change(now: float) -> None:
        if now > 10:
            bed.answered = False
            bed.pods.put(Object("default", "a", (), True))
            bed.pending.put(Item("default", "b", True))

    await bed.run(30, change)

    assert bed.proposed == {"Pods metric util": 4}


@pytest.mark.parametrize("answered", [True, False])
async def test_after_a_start_from_zero_only_answers_with_pods_count(answered: bool) -> None:
    bed = Bed()
    bed.put(without_pods())
    bed.error = LOST

    def change(now: float) -> None:
        if now in {40, 45}:
            assert (bed.gauge, bed.proposed, bed.told.changes) == ([], {}, [])
        if now == 45:  # the last request without pods was before
            bed.error, bed.answered = None, False
            bed.put({**without_pods(), "status": {"currentReplicas": 1}})
            if answered:
                bed.request()
        if now == 50:
            assert bed.gauge == ([("", 1.0)] if answered else [])
            assert bed.proposed == ({"Pods metric util": 4} if answered else {})

    await bed.run(50, change)


@pytest.mark.parametrize(
    ("target", "status", "proposed"),
    [
        ({"averageValue": "1"}, ReplicaStatus(present=2, ready=0), 2),
        ({"averageValue": "500m"}, None, 4),
        ({"value": "1"}, ReplicaStatus(present=3, ready=3), 6),
        ({"value": "1"}, ReplicaStatus(present=0, ready=0), None),
        ({"value": "1"}, None, None),
    ],
)
async def test_an_external_metric_proposes_by_the_replicas_of_the_target(
    target: dict[str, str], status: ReplicaStatus | None, proposed: int | None
) -> None:
    bed = Bed()
    bed.put(hpa(external("queue", **target)))
    bed.status, bed.answered = status, False

    await bed.run(60)

    assert bed.proposed == ({} if proposed is None else {"External metric queue": proposed})


async def test_one_answer_is_noted_for_few_of_the_hpas_that_send_the_same_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "_MAX_NOTED", 2)
    bed = Bed()
    for name in ("web", "b", "c"):
        bed.put(hpa(*[external("queue", averageValue="1")] * 30, name=name))
    noted: list[str] = []
    note = Proposals.note

    def counted(self: Proposals, hpa: watched_hpa.WatchedHpa, *rest: Any) -> proposals.Seen:
        noted.append(hpa.name)
        return note(self, hpa, *rest)

    monkeypatch.setattr(Proposals, "note", counted)
    bed.answered = False

    await bed.run(40)

    assert sorted(noted) == ["b", "web"]
    assert len(bed.gauge) == 3


async def test_outcomes_of_one_namespace_leave_room_for_the_names_in_those_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "OUTCOME_NAMES", 200)
    outcomes, names = Outcomes(), tuple(f"p{each}" for each in range(30))
    infos = [
        request_info.parse(f"{CUSTOM}/pods/*/m{each}".replace("default", namespace), QUERY)
        for namespace in ("greedy", "other")
        for each in range(5)
    ]
    keys = [key_of(each) for each in infos]
    outcomes.want(keys)

    for info in infos * 2:
        outcomes.note(info, answer(dict.fromkeys(names, value(1)), selected=names))

    found = [outcomes.of(each) for each in keys]
    assert [len(each.values) for each in found if each] == [30, 30, 30, 0, 0, 30, 30, 0, 0, 0]
    assert all(each and each.resolved for each in found)

    outcomes.want(keys[5:])
    outcomes.note(infos[5], None)
    for info in infos[6:]:
        outcomes.note(info, answer(dict.fromkeys(names, value(1)), selected=names))

    found = [outcomes.of(each) for each in keys[5:]]
    assert [len(each.selected) for each in found if each] == [0, 30, 30, 30, 0]


async def test_hpas_that_send_the_same_request_share_what_is_noted_of_their_pods() -> None:
    bed = Bed()
    other = hpa(name="b")
    other["spec"]["scaleTargetRef"]["name"] = "web"
    bed.put(other)
    noted: list[int] = []
    replicas = proposals.replicas

    def seen(hpa: watched_hpa.WatchedHpa, metric: Any, seen: proposals.Seen) -> int | None:
        noted.append(id(seen))
        return replicas(hpa, metric, seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proposals, "replicas", seen)
        await bed.run(10)

    assert (len(noted), len({*noted})) == (2, 1)


async def test_metrics_of_many_pods_leave_other_work_more_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights: list[int] = []
    sliced = watch._sliced

    def spied(every: Any, weight: Callable[[Any], int] = lambda _: 1) -> Any:
        weights.extend(map(weight, every))
        return sliced(every, weight)

    monkeypatch.setattr(watch, "_sliced", spied)
    bed = Bed()
    bed.selected = tuple(f"p{each}" for each in range(1000))

    await bed.run(10)

    assert max(weights) == 51


async def test_without_a_value_or_a_sync_that_reads_metrics_nothing_is_proposed() -> None:
    bed = Bed()

    def change(now: float) -> None:
        bed.error = LOST if now < 20 else None
        if now == 20:
            assert bed.proposed == {}
        if now == 40:
            assert bed.proposed == {"Pods metric util": 4}
            above = {"currentReplicas": 1000}
            bed.put({**hpa(), "status": above})

    await bed.run(60, change)

    assert bed.proposed == {}
