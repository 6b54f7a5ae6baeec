"""Why a metric is missing: what callers and the log are told, up to a real Prometheus."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import errors
from adapter.api.missing import AGAIN_SECONDS, MissingMetrics
from rules import ruleset
from rules.diagnosis import candidates
from rules.diagnosis.inventory import Inventory, ListingStatus
from rules.diagnosis.missing import Cause, Reason
from rules.kinds import GroupResource, Kinds
from rules.query import catalog as catalogs
from rules.query import plan as plans
from rules.query.catalog import Listing, Series
from rules.selectors import selectors
from tests.presets import api
from tests.presets.api import GROUP
from tests.real import prometheus
from tests.real.prometheus import Prometheus

PODS = GroupResource("", "pods")
RULES = """
rules:
- seriesQuery: 'gpu_util{gpu!=""}'
  resources: {overrides: {ns: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: utilisation}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
SUBJECT = "pods/utilisation in namespace default"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


class Relists:
    """What relists found, in memory; counts how often it is asked."""

    def __init__(self):
        self.ruleset = ruleset.load([("rules.yaml", RULES)])
        self.listings = {0: Listing(series=(Series(name="gpu_util", labels=frozenset({"ns"})),))}
        self.looked = 0
        self.labelled: list[str] = []
        self.failure: Exception | None = None
        self.waits = 0.0

    def seen(self):
        self.looked += 1
        kinds = Kinds.builtin()
        return Inventory(
            ruleset=self.ruleset,
            catalog=catalogs.build(self.ruleset, self.listings, kinds),
            kinds=kinds,
            listings=self.listings,
            made=candidates.made(self.ruleset, self.listings),
            heard={0: ListingStatus(listed=0.0, failed=False)},
            now=30.0,
        )

    async def labels(self, rule, series):
        self.labelled.append(series)
        await asyncio.sleep(self.waits)
        if self.failure is not None:
            raise self.failure
        return frozenset({"ns", "k8s_pod"})


@pytest.fixture
def relists():
    return Relists()


@pytest.fixture
def absences(relists, clock):
    return MissingMetrics(relists.seen, relists.labels, clock=clock)


def cause(reason, sentence="because", rule=None):
    return Cause(reason=reason, sentence=sentence, rule=rule)


async def test_the_labels_that_series_carry_instead_are_asked_for(absences, relists):
    (found,) = await absences.of_metric("utilisation", PODS)

    assert found.reason is Reason.LABELS_MISSING
    assert "looked for exported_pod; they carry k8s_pod, ns;" in found.sentence


@pytest.mark.parametrize(
    "failure", [errors.Unreachable("down"), errors.Refused("no", status=400), TimeoutError()]
)
async def test_without_them_the_cause_is_told_all_the_same(absences, relists, failure):
    relists.failure = failure

    (found,) = await absences.of_metric("utilisation", PODS)

    assert found.reason is Reason.LABELS_MISSING
    assert "they carry ns;" in found.sentence


async def test_callers_who_ask_again_cost_little(absences, relists, clock):
    for _ in range(5):  # 60 s of an autoscaler
        await absences.of_metric("utilisation", PODS)
        await absences.of_metric("utilisation", PODS)
        clock.now += 14

    assert (relists.looked, relists.labelled) == (5, ["gpu_util"])

    await absences.of_metric("utilisation", PODS)

    assert relists.labelled == ["gpu_util"] * 2


async def test_a_query_that_found_nothing_is_explained_by_what_is_known_now(absences, relists):
    series = Series(name="gpu_util", labels=frozenset({"ns", "exported_pod"}))
    relists.listings = {0: Listing(series=(series,))}
    entry = relists.seen().catalog.entry(PODS, "utilisation")
    plan = plans.custom(entry, namespace="default", names=["a"], selector=selectors.parse(""))

    (found,) = absences.of_plan(plan)

    assert found.reason is Reason.NO_SAMPLE


async def test_a_name_of_any_length_is_not_remembered(absences, relists):
    for _ in range(2):
        (found,) = await absences.of_metric("x" * 100_000)
        assert len(found.sentence) < 500

    assert relists.looked == 2


def said(caplog):
    return [record.getMessage() for record in caplog.records]


async def test_the_log_says_it_once_and_again_when_it_changes_or_after_a_while(
    absences, clock, caplog
):
    caplog.set_level(logging.INFO)
    labels = [cause(Reason.LABELS_MISSING, "no pod (3 names)", rule=0)]
    for _ in range(40):  # 600 s of an autoscaler
        absences.tell(SUBJECT, labels)
        clock.now += AGAIN_SECONDS / 40
    assert said(caplog) == [f"{SUBJECT}: LabelsMissing: no pod (3 names)"]

    absences.tell(SUBJECT, [cause(Reason.LABELS_MISSING, "no pod (4 names)", rule=0)])
    assert said(caplog)[1:] == [f"{SUBJECT}: LabelsMissing: no pod (4 names)"]

    absences.tell(SUBJECT, [cause(Reason.LABELS_MISSING, "no pod (5 names)", rule=0)])
    assert said(caplog)[2:] == []

    absences.tell(SUBJECT, [cause(Reason.NO_SERIES, rule=0), cause(Reason.NO_SERIES, rule=1)])
    assert said(caplog)[2:] == [f"{SUBJECT}: NoSeries: because; NoSeries: because"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


async def test_the_log_tells_metrics_apart_and_forgets_the_oldest(absences, caplog):
    for number in range(8193):
        absences.tell(str(number), [cause(Reason.NO_RULE)])
    caplog.clear()

    absences.tell("8192", [cause(Reason.NO_RULE)])
    absences.tell("0", [cause(Reason.NO_RULE)])

    assert said(caplog) == ["0: NoRule: because"]


async def test_a_line_of_the_log_is_bounded(absences, caplog):
    absences.tell(SUBJECT, [cause(Reason.NO_QUERY, "x" * 100_000)])

    assert len(said(caplog)[0]) < 2100


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as server:
        server.put(
            'DCGM_FI_DEV_GPU_TEMP{UUID="u",namespace="default",pod="bert-0",Hostname="n"} 60',
            'DCGM_FI_DEV_GPU_UTIL{UUID="u",k8s_ns="default",k8s_pod="bert-0",Hostname="n"} 22',
        )
        yield server


WHY = {
    "no rule": (
        "queue_depth",
        "NoRule",
        r"no rule of 9 gives a metric called queue_depth: add one, or ask for .*",
    ),
    "wrong name": (
        "temperature_celcius_current",
        "WrongName",
        r"no rule of 9 gives .*: did you mean temperature_celsius_current \(of .*, pods\).*\?",
    ),
    "the name of a series": (
        "DCGM_FI_DEV_GPU_TEMP",
        "WrongName",
        r"no .*: it is the name of a series, of which rules\[5\] .* makes temperature_celsius_.*",
    ),
    "no series": (
        "memory_used_bytes_current",
        "NoSeries",
        r"rules\[2\] \(preset gpu-dcgm:\d+\) gives it, .* no series of `DCGM_FI_DEV_FB_USED` .*",
    ),
    "labels missing": (
        "duty_cycle_current",
        "LabelsMissing",
        r".* looked for exported_pod, pod_name, pod; they carry Hostname, UUID, k8s_ns, k8s_pod;.*",
    ),
}


async def test_each_stage_is_told_apart_with_a_real_prometheus(
    scraped: Prometheus, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pods = api.manifests(["default/bert-0"])
    async with api.serving(tmp_path, scraped.url, pods, ("--preset=gpu-dcgm",)) as served:
        for metric, reason, sentence in WHY.values():
            for _ in range(2):
                status, body = await served.get(f"{GROUP}/namespaces/default/pods/*/{metric}")
                (told,) = body.pop("details")["causes"]

                assert (status, body["reason"]) == (404, "NotFound")
                assert body["message"] == (
                    f"the server could not find the metric {metric} for pods"
                )
                assert told["reason"] == reason
                assert re.fullmatch(sentence, told["message"]), told["message"]
        assert await served.pods("default", "temperature_celsius_current") == {"bert-0": 60}

    lines = [each for each in said(caplog) if " in namespace default: " in each]
    assert len(lines) == len(WHY)
    assert lines[-1].startswith("pods/duty_cycle_current in namespace default: LabelsMissing: ")


async def test_what_a_prometheus_that_is_down_hides_is_said_without_its_words(
    tmp_path: Path,
) -> None:

    async with api.serving(
        tmp_path,
        "http://127.0.0.1:9",
        api.manifests([]),
        rules=RULES.replace("gpu_util{", '{__name__=~"gpu_.*",'),
    ) as served:
        _, body = await served.get(f"{GROUP}/namespaces/default/pods/*/utilisation")

    (told,) = body["details"]["causes"]
    assert told["reason"] == "RelistFailed"
    assert "is not known (listed last: never yet): Prometheus could not be asked" in told["message"]
    assert "127.0.0.1" not in told["message"]
