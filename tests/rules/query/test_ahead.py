"""Forecast of a workload's load from that of one season ago."""

import math
import random

import pytest

from rules.query.ahead import LARGEST_ERROR, STEP, Forecast, Forecaster, Totals

DAY = 86_400.0
HORIZON = 240.0
LEAD = HORIZON + STEP
NOON = 20 * DAY + DAY / 2
MORNING = NOON - DAY / 4


def day(time):
    """Return a load from 10 at midnight to 30 at noon."""
    return 20 - 10 * math.cos(2 * math.pi * time / DAY)


def totals(load, begin, end):
    count = int((end - begin) // STEP) + 1
    return Totals(begin=begin, values=[load(begin + STEP * i) for i in range(count)])


def at(time, load, *, season=DAY, horizon=HORIZON, recent=None):
    """Return the forecast from what a caller reads of a load, `recent` being that of today."""
    made = Forecaster(season=season, horizon=horizon)
    past, now = made.needed(time)
    today = time // DAY * DAY

    def present(moment):
        return (recent if recent and moment >= today else load)(moment)

    return made.at(totals(load, *past), totals(present, *now), time)


def test_a_rise_is_expected_when_it_came_one_season_ago():
    found = at(MORNING, day)
    assert found.reason == "Rising"
    assert found.now == pytest.approx(day(MORNING))
    assert found.expected == pytest.approx(day(MORNING + LEAD))
    assert found.factor() == pytest.approx(day(MORNING + LEAD) / day(MORNING))
    assert found.error == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("season", [DAY, 7 * DAY, 35 * DAY])
def test_a_fall_never_lowers_the_values(season):
    found = at(NOON + DAY / 4, day, season=season)
    assert found.reason == "NotRising"
    assert found.expected < found.now
    assert found.factor() == 1


@pytest.mark.parametrize("growth", [1.3, 0.7])
def test_the_level_of_now_scales_what_was(growth):
    found = at(MORNING, day, recent=lambda time: growth * day(time))
    assert found.expected == pytest.approx(growth * day(MORNING + LEAD))


def test_no_more_is_expected_than_ever_was():
    found = at(NOON - 3600, day, recent=lambda time: 1.1 * day(time))
    assert (found.reason, found.expected) == ("NotRising", found.now)


@pytest.mark.parametrize("growth", [0.4, 2.5])
def test_a_day_unlike_that_of_one_season_ago_has_no_forecast(growth):
    found = at(MORNING, day, recent=lambda time: growth * day(time))
    assert (found.reason, found.factor()) == ("Unlike", 1)


def test_after_a_time_near_zero_the_load_of_one_season_ago_is_expected():
    def opens(time):
        return 0.01 if time % DAY < MORNING % DAY else 10.0

    found = at(MORNING - 180, opens, recent=lambda time: 10 * opens(time))
    assert (found.reason, found.expected) == ("Rising", 10)


def noisy(load, seed):
    """Return a load with noise that is other noise each minute."""
    return lambda time: load(time) * random.Random(f"{seed} {time}").uniform(0.8, 1.2)


def test_the_value_of_now_is_served_while_rises_do_not_come():
    wrong = at(MORNING, noisy(lambda _: 20.0, "a"))
    assert (wrong.reason, wrong.factor()) == ("Inaccurate", 1)
    assert wrong.error > LARGEST_ERROR
    assert wrong.sentence.endswith("did not come, and the limit is 65%")


def test_a_jump_is_expected_when_it_came_and_in_full():
    def jobs(time):
        return 30.0 if time % 3600 < 720 else 10.0

    found = at(NOON - 120, jobs, horizon=60.0)
    assert (found.reason, found.expected) == ("Rising", 30)
    assert at(NOON - 180, jobs, horizon=60.0).reason == "NotRising"


def test_a_slow_rise_is_expected_although_noise_is_larger():
    found = at(MORNING, lambda time: day(time) * random.Random(f"d {time}").uniform(0.9, 1.1))
    assert found.reason == "Rising"
    assert found.expected / found.now == pytest.approx(day(MORNING + LEAD) / day(MORNING), abs=0.02)


@pytest.mark.parametrize("season", [DAY, 7 * DAY])
def test_after_clocks_have_changed_the_load_comes_an_hour_off_a_season_ago(season):
    today = NOON // DAY * DAY

    def shifts(time):
        hour = (time + 3600 * (time >= today - DAY)) % DAY / 3600
        return 30.0 if 8 <= hour < 18 else 10.0

    before = today + 7 * 3600 - LEAD
    assert at(before, shifts, season=season).reason == "Rising"
    # Yesterday the clocks had changed, too; a week ago they had not.
    later = at(before + 3600, shifts, season=season)
    assert (later.reason, later.expected) == ("NotRising", 30)


def test_rises_count_for_more_than_noise():
    def shifts(time):
        return 10.0 if time / 3600 % 4 < 2 else 30.0

    assert at(MORNING - LEAD, noisy(shifts, "b")).reason == "Rising"


def test_the_value_of_now_is_served_without_a_past():
    made = Forecaster(season=7 * DAY, horizon=HORIZON)
    past, now = made.needed(MORNING)
    alone = made.at(Totals(begin=0, values=()), totals(day, *now), MORNING)
    assert (alone.reason, alone.factor(), alone.expected) == ("NoPast", 1, None)
    made = Forecaster(season=7 * DAY, horizon=HORIZON)
    young = totals(day, MORNING - 10 * DAY, past[1])
    found = made.at(young, totals(day, *now), MORNING)
    assert (found.reason, found.factor(), found.error) == ("Unproven", 1, None)


def test_gaps_are_no_values():
    def gap(moment):
        return math.nan if MORNING - 3600 < moment <= MORNING else day(moment)

    assert at(MORNING, day, recent=gap).reason == "NoLoad"
    early = at(MORNING, lambda moment: gap(moment + DAY), recent=day)
    assert early.reason == "Rising"  # the gap ended where the forecast reads
    assert at(MORNING, lambda moment: gap(moment + DAY - 600), recent=day).reason == "NoPast"


def test_later_forecasts_are_those_of_a_forecaster_that_begins_there():
    load = totals(noisy(day, "c"), MORNING - 10 * DAY, MORNING + DAY)
    kept = Forecaster(season=DAY, horizon=HORIZON)
    for time in (MORNING, MORNING + 60, MORNING + 3600, MORNING + DAY):
        assert kept.at(load, load, time) == Forecaster(season=DAY, horizon=HORIZON).at(
            load, load, time
        )


def test_without_load_nothing_is_multiplied():
    assert at(NOON, lambda _: 0.0) == Forecast(reason="NoLoad", now=0.0, expected=0.0, error=None)


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (
            "Rising",
            (
                "the forecast is served: a total of 24 instead of the present 20, because the load "
                "rose one season ago; 5% of the rises that were forecast in the last 7 days did "
                "not come"
            ),
        ),
        ("NotRising", "the present value is served: the forecast is not higher, a total of 24"),
        (
            "NoPast",
            (
                "the present value is served: Prometheus has no value of one season ago; it must "
                "keep values for a season and a week"
            ),
        ),
    ],
)
def test_a_sentence_says_what_is_served_and_why(reason, sentence):
    assert Forecast(reason=reason, now=20.0, expected=24.0, error=0.05).sentence == sentence
