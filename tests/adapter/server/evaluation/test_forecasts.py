"""What requests get of forecasts; time is that of the test."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from adapter.server.evaluation.forecasts import COUNT, Forecasts, Key
from rules.kinds import PODS
from rules.query.aggregate import Value
from rules.query.ahead import Forecast
from rules.selectors.selectors import EVERYTHING

KEY: Key = ("n", PODS, "*", "load", EVERYTHING.meaning, EVERYTHING.meaning)
OTHER: Key = ("other", *KEY[1:])
RISING = Forecast(reason="Rising", now=10.0, expected=15.0, error=0.1)
FALLING = Forecast(reason="NotRising", now=10.0, expected=5.0, error=0.1)


def value(milli: int) -> Value:
    return Value(milli=milli, time=1.0, samples=1)


VALUES = MappingProxyType({"a": value(4000), "b": value(6000)})


class Bed:
    def __init__(self) -> None:
        self.now = 100.0
        self.forecasts = Forecasts(lambda: self.now)

    def predict(self, *forecasts: Forecast, key: Key = KEY) -> None:
        made = forecasts or (RISING,) * COUNT
        self.forecasts.predict(key, made, season=86400.0, horizon=240.0)

    def millis(self, values: MappingProxyType[str, Value] = VALUES) -> list[int]:
        return [each.milli for each in self.forecasts.scale(KEY, values).values()]


@pytest.fixture
def bed() -> Bed:
    return Bed()


def test_values_are_those_of_now_without_a_forecast_and_where_the_load_falls(bed: Bed) -> None:
    assert bed.forecasts.scale(KEY, VALUES) is VALUES
    bed.predict(FALLING)
    assert bed.forecasts.scale(KEY, VALUES) is VALUES
    bed.predict(key=OTHER)
    assert bed.forecasts.scale(KEY, VALUES) is VALUES


def test_each_value_is_multiplied_where_the_load_rises(bed: Bed) -> None:
    bed.predict()

    scaled = bed.forecasts.scale(KEY, VALUES)

    assert bed.millis() == [6000, 9000]
    assert (scaled["a"].time, scaled["a"].samples) == (1.0, 1)


def test_the_sum_is_at_most_the_expected_one_when_the_load_has_grown_since(bed: Bed) -> None:
    bed.predict()

    assert bed.millis(MappingProxyType({"a": value(6000), "b": value(6000)})) == [7500, 7500]
    grown = MappingProxyType({"a": value(8000), "b": value(9000)})
    assert bed.millis(grown) == [8000, 9000]


@pytest.mark.parametrize("milli", [0, -5000])
def test_no_value_becomes_less(bed: Bed, milli: int) -> None:
    bed.predict()

    assert bed.millis(MappingProxyType({"a": value(milli), "b": value(4000)})) == [milli, 6000]


def test_an_answer_is_the_same_object_until_values_or_forecast_change(bed: Bed) -> None:
    bed.predict()
    first = bed.forecasts.scale(KEY, VALUES)

    assert bed.forecasts.scale(KEY, VALUES) is first
    assert bed.forecasts.scale(KEY, MappingProxyType({**VALUES})) is not first
    again = bed.forecasts.scale(KEY, VALUES)
    bed.predict(Forecast(reason="Rising", now=10.0, expected=15.0, error=0.1))
    assert bed.forecasts.scale(KEY, VALUES) is not again


def test_each_forecast_is_served_for_fifteen_seconds(bed: Bed) -> None:
    bed.predict(FALLING, RISING, FALLING)

    for seconds, milli in ((14.9, 4000), (15.0, 6000), (29.9, 6000), (30.0, 4000)):
        bed.now = 100.0 + seconds
        assert bed.millis()[0] == milli


def test_the_last_forecasts_end_after_four_minutes_and_say_why(bed: Bed) -> None:
    bed.predict()
    bed.forecasts.fail(KEY, "Prometheus is down", season=86400.0, horizon=240.0)

    bed.now += 239
    assert bed.millis() == [6000, 9000]
    bed.now += 1
    assert bed.forecasts.scale(KEY, VALUES) is VALUES
    assert bed.forecasts.sentence(KEY) == (
        "the present value is served, because the last forecast is too old: Prometheus is down"
    )


def test_forecasts_that_ended_before_the_next_one_is_ready_say_so(bed: Bed) -> None:
    bed.predict()
    bed.now += 240

    assert bed.forecasts.sentence(KEY).endswith("too old: the next one is not ready yet")


def test_without_any_forecast_the_sentence_has_the_reason(bed: Bed) -> None:
    assert "there is no forecast yet" in bed.forecasts.sentence(KEY)
    bed.forecasts.fail(KEY, "names are not certain", season=86400.0, horizon=240.0)
    assert bed.forecasts.sentence(KEY) == "the present value is served: names are not certain"
    assert bed.forecasts.document(KEY)["served"] is False


def test_what_nobody_requests_any_more_is_forgotten(bed: Bed) -> None:
    bed.predict()
    bed.predict(key=OTHER)
    before = bed.forecasts.present

    bed.forecasts.retain(frozenset({KEY}))

    assert bed.forecasts.present.keys() == {KEY}
    assert before.keys() == {KEY, OTHER}  # who reads it still has it whole
