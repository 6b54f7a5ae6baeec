"""Causes of missing metrics in API answers and in the log, with a fake Prometheus."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from adapter import errors
from adapter.server.causes import collector, log
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.causes.log import ENDED_AFTER, LOG_INTERVAL
from adapter.telemetry import CauseMetrics
from rules.causes import missing, suggestions
from rules.causes.reasons import Reason
from rules.findings import Finding, Place, State
from rules.kinds import GroupResource
from rules.query import plan as plans
from rules.selectors import selectors
from tests import world
from tools.waiting import Clock, until

PODS = GroupResource("", "pods")
RULES = """
rules:
- seriesQuery: 'gpu_util{gpu!=""}'
  resources: {overrides: {ns: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: utilisation}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
SUBJECT = "pods/utilisation in namespace default"


@pytest.fixture
def clock():
    return Clock(1000.0)


class FakeRelist:
    """A relist in memory that counts calls."""

    def __init__(self):
        self.ruleset = world.load(RULES)
        self.listings = [world.listing("gpu_util ns")]
        self.queried: list[str] = []
        self.failure: Exception | None = None

    def inventory(self):
        return world.generation(self.ruleset, *self.listings).inventory(now=30.0)

    async def labels(self, rule, series):
        self.queried.append(series)
        if self.failure is not None:
            raise self.failure
        return frozenset({"ns", "k8s_pod"})


@pytest.fixture
def relist():
    return FakeRelist()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(relist, clock, registry):
    async def unreachable(*_):
        raise errors.Unreachable("down")

    probes = Probes(lambda _: unreachable, unreachable, clock=clock)
    counts = CauseMetrics(registry)
    return CauseCollector(relist.labels, probes=probes, metrics=counts, clock=clock)


def cause(reason, fact="because", rule=""):
    return Finding(reason=reason, fact=fact, where=Place(path=rule))


async def test_metrics_that_are_missing_at_the_same_time_load_the_presets_once(
    metrics, relist, monkeypatch
):
    loads, go_on = [], threading.Event()

    def load():
        loads.append(True)
        go_on.wait(30)
        return {}

    monkeypatch.setattr(suggestions, "preset_metrics", load)
    tasks = [
        asyncio.create_task(metrics.of_metric(relist.inventory(), f"m{number}", PODS))
        for number in range(20)
    ]
    await until(lambda: loads)
    for _ in range(3):
        await asyncio.sleep(0)
    during = len(loads)
    go_on.set()
    await asyncio.gather(*tasks)

    assert during == 1


async def test_the_present_labels_of_series_are_queried(metrics, relist):
    (found,) = await metrics.of_metric(relist.inventory(), "utilisation", PODS)

    assert found.reason is Reason.LABELS_MISSING
    assert "expected exported_pod; found k8s_pod, ns." in found.sentence


@pytest.mark.parametrize(
    "failure", [errors.Unreachable("down"), errors.Refused("no", status=400), TimeoutError()]
)
async def test_a_cause_is_given_even_if_labels_cannot_be_queried(metrics, relist, failure):
    relist.failure = failure

    (found,) = await metrics.of_metric(relist.inventory(), "utilisation", PODS)

    assert found.reason is Reason.LABELS_MISSING
    assert "found ns." in found.sentence


async def test_a_failed_query_for_labels_is_repeated_after_five_seconds(metrics, relist, clock):
    rule, relist.failure = relist.ruleset.rules[0], errors.Unreachable("down")
    for _ in range(2):
        assert await metrics.labels(rule, "gpu_util") == frozenset()
    assert len(relist.queried) == 1

    clock.now += 5.0
    relist.failure = None
    assert await metrics.labels(rule, "gpu_util") == {"ns", "k8s_pod"}


@pytest.fixture
def computed(monkeypatch):
    """The arguments of each computation of causes."""
    calls, of_metric = [], missing.of_metric

    def count(*arguments):
        calls.append(arguments)
        return of_metric(*arguments)

    monkeypatch.setattr(missing, "of_metric", count)
    return calls


async def test_repeated_requests_use_the_cache(metrics, relist, clock, computed):
    known = relist.inventory()
    for _ in range(5):  # 60 s of an autoscaler
        await metrics.of_metric(known, "utilisation", PODS)
        await metrics.of_metric(known, "utilisation", PODS)
        clock.now += 14

    assert (len(computed), relist.queried) == (5, ["gpu_util"])

    await metrics.of_metric(known, "utilisation", PODS)

    assert relist.queried == ["gpu_util"] * 2


async def test_causes_of_other_rules_are_not_used(metrics, relist):
    before = relist.inventory()
    (cause,) = await metrics.of_metric(before, "utilisation", PODS)
    assert cause.reason == Reason.LABELS_MISSING
    relist.ruleset, relist.listings = world.load("rules: []"), []
    after = relist.inventory()

    for _ in range(2):
        assert cause not in await metrics.of_metric(after, "utilisation", PODS)
        assert await metrics.of_metric(before, "utilisation", PODS) == (cause,)


async def test_a_query_without_samples_is_explained_by_the_present_inventory(metrics, relist):
    relist.listings = [world.listing("gpu_util ns exported_pod")]
    entry = relist.inventory().catalog.entry(PODS, "utilisation")
    plan = plans.custom(entry, namespace="default", names=["a"], selector=selectors.parse(""))

    (found,) = await metrics.of_plan(relist.inventory(), plan)

    assert found.reason is Reason.NO_SAMPLE
    assert "Prometheus did not answer the queries for the cause: run `gpu" in found.sentence


async def test_better_causes_of_all_rules_together_take_a_limited_time(
    relist, registry, clock, monkeypatch
):
    async def hang(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(collector, "_TIMEOUT", 0.05)
    second = RULES.replace("rules:", "").replace('gpu_util{gpu!=""}', "other_util")
    relist.ruleset = world.load(RULES + second)
    relist.listings = [world.listing()] * 2
    metrics = CauseCollector(
        relist.labels,
        probes=Probes(lambda _: hang, hang, clock=clock),
        metrics=CauseMetrics(registry),
        clock=clock,
    )

    async with asyncio.timeout(30):
        causes = await metrics.of_metric(relist.inventory(), "utilisation", PODS)

    assert [(each.reason, each.where.path) for each in causes] == [
        (Reason.NO_SERIES, "rules[0]"),
        (Reason.NO_SERIES, "rules[1]"),
    ]


async def test_a_very_long_name_is_not_cached(metrics, relist, computed):
    known = relist.inventory()
    for _ in range(2):
        (found,) = await metrics.of_metric(known, "x" * 100_000)
        assert len(found.sentence) < 500
    assert len(computed) == 2


def messages(caplog):
    return [record.getMessage() for record in caplog.records]


async def test_a_cause_is_logged_once_and_again_when_it_changes_or_after_ten_minutes(
    metrics, clock, caplog
):
    caplog.set_level(logging.INFO)
    labels = [cause(Reason.LABELS_MISSING, "no pod (3 names)", "rules[0]")]
    for _ in range(40):  # 600 s of an autoscaler
        metrics.log_causes(SUBJECT, labels)
        clock.now += LOG_INTERVAL / 40
    assert messages(caplog) == [f"{SUBJECT}: LabelsMissing: no pod (3 names)"]

    metrics.log_causes(SUBJECT, [cause(Reason.LABELS_MISSING, "no pod (4 names)", "rules[0]")])
    assert messages(caplog)[1:] == [
        f"{SUBJECT}: LabelsMissing: no pod (4 names) (40 requests in 10m0s)"
    ]

    metrics.log_causes(SUBJECT, [cause(Reason.LABELS_MISSING, "no pod (5 names)", "rules[0]")])
    assert messages(caplog)[2:] == []

    metrics.log_causes(
        SUBJECT,
        [cause(Reason.NO_SERIES, rule="rules[0]"), cause(Reason.NO_SERIES, rule="rules[1]")],
    )
    assert messages(caplog)[2:] == [f"{SUBJECT}: NoSeries: because. Also NoSeries: because"]

    clock.now += ENDED_AFTER
    metrics._log.log_ended()
    assert messages(caplog)[3:] == [f"{SUBJECT}: LabelsMissing ended after 42 requests in 10m0s"]
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "WARNING", "WARNING", "INFO"]


async def test_two_autoscalers_with_different_causes_do_not_repeat_each_others_warning(
    metrics, clock, caplog
):
    for _ in range(4):  # their label selectors differ
        metrics.log_causes(SUBJECT, [cause(Reason.NO_SAMPLE)])
        metrics.log_causes(SUBJECT, [cause(Reason.NOT_SCRAPED)])
        clock.now += 15

    assert messages(caplog) == [f"{SUBJECT}: NoSample: because", f"{SUBJECT}: NotScraped: because"]


async def test_a_cause_that_no_request_has_any_more_has_ended(metrics, clock, caplog):
    caplog.set_level(logging.INFO)
    for _ in range(3):
        metrics.log_causes(SUBJECT, [cause(Reason.NOT_FINITE)])
        clock.now += 15
    metrics.log_causes("one request", [cause(Reason.NOT_FINITE)])
    caplog.clear()

    clock.now += ENDED_AFTER - 16
    metrics._log.log_ended()
    assert messages(caplog) == []

    clock.now += 1
    metrics._log.log_ended()
    metrics._log.log_ended()
    assert messages(caplog) == [f"{SUBJECT}: NotFinite ended after 3 requests in 30s"]


async def test_the_end_of_causes_is_logged_in_the_background(caplog):
    caplog.set_level(logging.INFO)
    now, swept = [0.0], asyncio.Event()

    async def sleep(seconds):
        now[0] += seconds
        if now[0] > 2 * ENDED_AFTER:
            swept.set()
            await asyncio.Event().wait()

    causes = log.CauseLog(clock=lambda: now[0], sleep=sleep)
    for _ in range(2):
        causes.add(SUBJECT, [cause(Reason.NO_SERIES)])
    task = asyncio.create_task(causes.run())
    await swept.wait()
    task.cancel()

    assert messages(caplog)[1:] == [f"{SUBJECT}: NoSeries ended after 2 requests in 0s"]


async def test_each_answer_is_counted_by_its_most_specific_reason(metrics, registry):
    for _ in range(2):
        metrics.log_causes(SUBJECT, [cause(Reason.NOT_FINITE), cause(Reason.NO_SERIES)])

    name = "gpu_metrics_adapter_answers_without_value_total"
    assert registry.get_sample_value(name, {"reason": "NotFinite"}) == 2
    assert registry.get_sample_value(name, {"reason": "NoSeries"}) is None


async def test_causes_that_are_usual_at_the_start_give_no_warning_until_they_last(metrics, caplog):
    caplog.set_level(logging.DEBUG)
    starting = Finding(reason=Reason.NO_SERIES, fact="because", state=State.PENDING)

    metrics.log_causes(SUBJECT, [starting])
    metrics.log_causes(SUBJECT, [cause(Reason.NO_SERIES)])

    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING"]


@pytest.mark.slow
async def test_a_bounded_number_of_subjects_is_tracked(metrics, caplog):
    for number in range(8193):
        metrics.log_causes(str(number), [cause(Reason.NO_RULE)])
    caplog.clear()

    metrics.log_causes("8192", [cause(Reason.NO_RULE)])
    metrics.log_causes("0", [cause(Reason.NO_RULE)])

    assert messages(caplog) == ["0: NoRule: because"]


async def test_a_log_line_is_truncated(metrics, caplog):
    metrics.log_causes(SUBJECT, [cause(Reason.NO_QUERY, "x" * 100_000)])

    assert len(messages(caplog)[0]) < 2100


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        ("", "NoSample: because (Refused: GET /api: 400 bad). Correct it"),
        ("bad", "NoSample: because (Refused: GET /api: 400 bad). Correct it"),
        ("because", "NoSample: because. Correct it"),
    ],
)
async def test_an_error_stands_before_the_cure_unless_the_cause_quotes_it(
    metrics, caplog, refusal, line
):
    error = errors.Refused("GET /api: 400 bad", status=400, refusal=refusal)

    metrics.log_causes(SUBJECT, [replace(cause(Reason.NO_SAMPLE), cure="Correct it")], error)

    assert messages(caplog) == [f"{SUBJECT}: {line}"]
