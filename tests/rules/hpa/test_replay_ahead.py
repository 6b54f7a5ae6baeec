"""Replay of a forecast: what it would have changed, week by week."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rules.errors import UnreadableError
from rules.hpa import replay, replay_ahead, replay_report
from rules.hpa.replay import MetricReading, Sync
from rules.hpa.replay_report import Replay
from tests.rules.hpa import documents

pytestmark = pytest.mark.slow  # weeks are replayed, each in seconds

DAY, HOUR, STEP = 86_400, 3600, 60
START = 1_800_000_000 // DAY * DAY


HPA = documents.hpa(documents.pods_metric("40", "load"))


def history(days, load):
    return [
        Sync(
            time=float(time),
            readings=(MetricReading(milli=load(time) * 1000, counted=1),),
            replicas=None,
            present=1,
            pods=1,
            ready=1,
        )
        for time in range(START, START + days * DAY, STEP)
    ]


def shifts(time):
    """Return a load that rises at eight o'clock, within ten minutes."""
    since = time % DAY - 8 * HOUR
    return 100 if since < 0 or since > 8 * HOUR else min(300, 100 + 200 * since // 600)


def replayed(past):
    factors, made = replay_ahead.forecasts(HPA, past, season=DAY, horizon=240, totals=[False])
    without, ahead = (
        replay.simulate(title, HPA, past, startup=240, step=STEP, totals=[False], factors=each)
        for title, each in (("present settings", ()), ("ahead", factors))
    )
    return past, factors, made, without, ahead


@pytest.fixture(scope="module")
def ten_days():
    return replayed(history(10, shifts))


def test_pods_that_start_before_a_rise_save_most_of_the_time_above_the_target(ten_days):
    past, _, made, without, ahead = ten_days

    found = list(replay_ahead.weeks(past, STEP, made, without, ahead))

    first, last = found
    assert (first.begin, last.begin) == (START, START + 7 * DAY)
    # Half of a week of forecasts must be known first, and the load has no past on the first day.
    assert 0 < first.forecast < last.forecast
    assert last.error == pytest.approx(0, abs=0.2)
    assert last.above > 3 * 240
    assert last.above_ahead < last.above / 2
    assert last.pod_hours < last.pod_hours_ahead < 1.01 * last.pod_hours
    assert first.above + last.above == sum(without.over) * STEP
    assert first.pod_hours + last.pod_hours == pytest.approx(without.pod_hours)


def test_without_a_season_nothing_changes():
    past, _, made, without, ahead = replayed(history(9, lambda _: 100))

    assert ahead.replicas == without.replicas
    assert list(replay_ahead.weeks(past, STEP, made, without, ahead)) == []


def test_a_load_that_has_grown_since_the_forecast_is_not_multiplied_above_it(ten_days):
    past, factors, made, *_ = ten_days

    for (factor,), forecast, sync in zip(factors, made, past, strict=True):
        assert factor == 1 or factor * sync.readings[0].milli <= forecast.expected * 1000 + 1


def test_metrics_that_are_not_of_the_target_have_no_forecast():
    hpa = documents.hpa(documents.external_metric(type="AverageValue", averageValue="10"))

    with pytest.raises(UnreadableError, match="nothing to forecast"):
        replay_ahead.forecasts(hpa, history(1, shifts), season=DAY, horizon=240, totals=[True])


@pytest.mark.parametrize(("pods", "total"), [(1, True), (2, False)])
def test_a_metric_of_the_target_is_the_load_or_that_of_each_pod(pods, total):
    metric = documents.object_metric(described="serving", type="Value", value="1")
    hpa = documents.hpa(metric)
    of_pods = history(6, lambda time: pods * shifts(time))
    own = [
        replace(each, ready=pods, readings=(replace(each.readings[0], milli=milli // pods),))
        for each in of_pods
        if (milli := each.readings[0].milli)
    ]

    found = replay_ahead.forecasts(hpa, own, season=DAY, horizon=240, totals=[total])

    expected = replay_ahead.forecasts(HPA, of_pods, season=DAY, horizon=240, totals=[False])
    assert found == expected
    assert max(factor for (factor,) in found[0]) > 1.5


def test_the_text_has_a_row_for_each_week(ten_days):
    past, _, made, without, ahead = ten_days
    report = Replay(
        hpa=HPA,
        history=tuple(past),
        step=STEP,
        results=(without, ahead),
        decided=(),
        fit=replay.fit((), past),
        weeks=tuple(replay_ahead.weeks(past, STEP, made, without, ahead)),
        notes=(),
    )

    lines = list(replay_report.lines(report))

    begin = lines.index(replay_report.OF_WEEK)
    assert lines[begin + 1].split("  ")[0] == "week from"
    assert lines[begin + 2].startswith("2027-01-15 00:00")
    assert lines[begin + 3].startswith("2027-01-22 00:00")
    assert lines[begin + 4] == ""
    assert [each["begin"] for each in replay_report.document(report)["weeks"]] == [
        START,
        START + 7 * DAY,
    ]
