"""Which requests follow from an HPA, and when a change is told; time is that of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.api.outcomes import Outcomes
from adapter.apimachinery import request_info
from adapter.autoscalers import questions, watch
from adapter.autoscalers.events import Change
from adapter.autoscalers.watch import Autoscalers
from adapter.cluster.value_index import ValueIndex
from rules.causes.cause import Cause, Reason
from rules.kinds import Kinds
from rules.selectors import selectors

PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/util"
QUERY = "labelSelector=app%3Dweb"
LOST = errors.ApiError(
    404, "not found", causes=[Cause(reason=Reason.NO_RULE, sentence="in namespace secret")]
)


def hpa(*metrics: dict[str, Any], name: str = "web", kind: str = "Deployment") -> dict[str, Any]:
    return {
        "metadata": {"namespace": "default", "name": name, "uid": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
            "maxReplicas": 3,
            "metrics": list(metrics) or [pods("util")],
        },
        "status": {"currentReplicas": 1},
    }


def pods(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "1"}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def described(kind: str, api_version: str, name: str = "x") -> dict[str, Any]:
    reference = {"kind": kind, "apiVersion": api_version, "name": name}
    target = {"type": "Value", "value": "1"}
    source = {"metric": {"name": "util"}, "describedObject": reference, "target": target}
    return {"type": "Object", "object": source}


EXTERNAL = {
    "type": "External",
    "external": {
        "metric": {"name": "Queue", "selector": {"matchLabels": {"q": "a"}}},
        "target": {"type": "Value", "value": "1"},
    },
}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
EXTERNAL_GROUP = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default"


@pytest.mark.parametrize(
    ("metric", "path"),
    [
        (pods("util"), f"{CUSTOM}/pods/*/util?labelSelector=app%3Dweb"),
        (described("Deployment", "apps/v1"), f"{CUSTOM}/deployments.apps/x/util"),
        (described("Service", "v1"), f"{CUSTOM}/services/x/util"),
        (described("Namespace", "v1", "default"), f"{CUSTOM}/metrics/util"),
        (described("Rollout", "argoproj.io/v1"), f"{CUSTOM}/rollout.argoproj.io/x/util"),
        (
            EXTERNAL,
            f"{EXTERNAL_GROUP}/queue?labelSelector=q%3Da&metricLabelSelector=q%3Da",
        ),
        (CPU, "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dweb"),
    ],
    ids=str,
)
def test_the_request_is_that_of_the_controller(metric: dict[str, Any], path: str) -> None:
    watched = questions.parse(hpa(metric)).value
    assert watched is not None

    found = questions.path_of(
        watched.metrics[0], watched, Kinds.builtin(), selectors.parse("app=web")
    )

    assert found == path


def test_the_pods_of_a_workload_are_known() -> None:
    (deployment, rollout) = (questions.parse(hpa(kind=k)).value for k in ("Deployment", "Rollout"))
    assert deployment is not None
    assert rollout is not None

    assert str(questions.workload(deployment.target, Kinds.builtin())) == "deployments.apps"
    assert questions.workload(rollout.target, Kinds.builtin()) is None


def test_without_replicas_there_is_no_request_for_metrics_of_pods() -> None:
    watched = questions.parse({**hpa(), "status": {}}).value
    assert watched is not None

    found = questions.path_of(
        watched.metrics[0], watched, Kinds.builtin(), selectors.parse("app=web")
    )

    assert found == ""


KINDS = Kinds.builtin()


class Told:
    """Stands for Events."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, bool, str]] = []
        self.before: frozenset[str] = frozenset()

    async def unresolvable(self) -> frozenset[str]:
        return self.before

    async def write(self, change: Change) -> None:
        self.changes.append((change.hpa.name, change.resolved, change.message))


class Bed:
    """A watch of one HPA, whose metric the controller requests before each look."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told = Told()
        self.asked: list[str] = []
        self.error: errors.ApiError | None = None
        self.answered = True
        self.defect = False
        self.outcomes = Outcomes(lambda: self.now)
        self.meter = telemetry.AutoscalerMetrics(CollectorRegistry())
        self.index: ValueIndex[questions.Watched] = ValueIndex()
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
        workloads.put(questions.Item("default", "web", selectors.parse("app=web")))
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
        running = asyncio.create_task(autoscalers.run())
        try:
            async with asyncio.timeout(20):
                await ended.wait()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def gauge(self) -> list[tuple[str, float]]:
        (family,) = self.meter.collect()
        return [(each.labels["reason"], each.value) for each in family.samples]

    async def _ask(self, info: request_info.RequestInfo) -> None:
        self.asked.append(info.path)
        if self.defect:
            raise AssertionError
        self._note(info)

    def _request(self) -> None:
        self._note(request_info.parse(PATH, QUERY))

    def _note(self, info: request_info.RequestInfo) -> None:
        if self.error:
            self.outcomes.note(info, resolved=False, causes=self.error.causes)
        else:
            self.outcomes.note(info, resolved=True)


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


async def test_what_nobody_requests_is_requested_here_once_a_minute() -> None:
    bed = Bed()
    bed.answered = False

    await bed.run(200)

    assert 3 <= len(bed.asked) <= 4
    assert bed.gauge == [("", 1.0)]


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


async def test_a_defect_in_an_answer_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    bed = Bed()
    bed.answered = False
    bed.defect = True

    await bed.run(60)

    assert "cannot be answered" in caplog.text
    assert len(bed.asked) > 1
