"""Forecasts of the load of workloads, as factors on the present values of their pods.

`autoscalers.lookahead` makes them; requests only look one up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias

from rules.kinds import GroupResource
from rules.query.aggregate import Value
from rules.query.ahead import Forecast

INTERVAL = 15.0
"""Seconds from one forecast to the next: an HPA requests its metrics as often."""
COUNT = 16
"""Forecasts that are made at once. They last for four minutes if no newer ones follow: the last
total counts as the present one for five."""

_Meaning: TypeAlias = frozenset[tuple[str, str, tuple[str, ...]]]
Key: TypeAlias = tuple[str, GroupResource, str, str, _Meaning, _Meaning]
"""Namespace, resource, name (`*` for all that the label selector selects), metric, and the meaning
of the label selector and of the metric selector of a request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The last forecasts for a request."""

    season: float
    """In seconds, as `horizon`."""
    horizon: float
    began: float = 0.0
    """When the first forecast begins to be served, by the clock of `Forecasts`."""
    forecasts: tuple[Forecast, ...] = ()
    """For each INTERVAL after that; empty if there were none yet."""
    problem: str = ""
    """Why there are no newer ones; empty if nothing prevents it."""

    def at(self, time: float) -> Forecast | None:
        """Return the forecast for a time; None if the last one is too old."""
        index = int((time - self.began) / INTERVAL)
        return self.forecasts[index] if index < len(self.forecasts) else None


class Forecasts:
    """The last forecasts for each request of an autoscaler. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.present: Mapping[Key, Outlook] = MappingProxyType({})
        """Immutable, and replaced as a whole."""
        self._scaled: dict[Key, tuple[Mapping[str, Value], Forecast, Mapping[str, Value]]] = {}
        """Values that were scaled last, by which forecast, and the result."""

    def retain(self, keys: frozenset[Key]) -> None:
        """Forget the forecasts of all other requests."""
        if self.present.keys() - keys:
            self._replace({key: each for key, each in self.present.items() if key in keys})

    def predict(
        self, key: Key, forecasts: tuple[Forecast, ...], *, season: float, horizon: float
    ) -> None:
        """Serve forecasts from now on, one after the other."""
        outlook = Outlook(season=season, horizon=horizon, began=self._clock(), forecasts=forecasts)
        self._replace({**self.present, key: outlook})

    def fail(self, key: Key, problem: str, *, season: float, horizon: float) -> None:
        """Note why there are no new forecasts; the last ones are served until they end."""
        last = self.present.get(key) or Outlook(season=season, horizon=horizon)
        self._replace({**self.present, key: replace(last, problem=problem)})

    def served(self, key: Key) -> Forecast | None:
        """Return the forecast that is served to a request; None if it gets the present values."""
        outlook = self.present.get(key)
        forecast = None if outlook is None else outlook.at(self._clock())
        return None if forecast is None or forecast.factor() == 1 else forecast

    def scale(self, key: Key, values: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return the values that are served instead of the present ones.

        It is the same mapping as long as the values and the forecast are the same objects.
        """
        forecast = self.served(key)
        if forecast is None:
            return values
        last = self._scaled.get(key)
        if last is not None and last[0] is values and last[1] is forecast:
            return last[2]
        scaled = MappingProxyType(_scaled(values, forecast))
        self._scaled[key] = values, forecast, scaled
        return scaled

    def reason(self, key: Key) -> str:
        """Return why a forecast is served or not, as one word."""
        outlook = self.present.get(key)
        forecast = None if outlook is None or outlook.problem else outlook.at(self._clock())
        return "Unread" if forecast is None else forecast.reason

    def sentence(self, key: Key) -> str:
        """Say what is served to a request, and why."""
        outlook = self.present.get(key)
        if outlook is None:
            return (
                "the present value is served: there is no forecast yet; one is made each minute "
                "for each HPA that scales the described pods or workload by this metric"
            )
        if (forecast := outlook.at(self._clock())) is not None:
            return forecast.sentence
        too_old = ", because the last forecast is too old" if outlook.forecasts else ""
        problem = outlook.problem or "the next one is not ready yet"
        return f"the present value is served{too_old}: {problem}"

    def document(self, key: Key) -> dict[str, Any]:
        """Return what is served to a request, and why, for explanations."""
        outlook = self.present.get(key)
        forecast = None if outlook is None else outlook.at(self._clock())
        return {
            "seasonSeconds": None if outlook is None else outlook.season,
            "horizonSeconds": None if outlook is None else outlook.horizon,
            "now": None if forecast is None else forecast.now,
            "expected": None if forecast is None else forecast.expected,
            "error": None if forecast is None else forecast.error,
            "served": self.served(key) is not None,
            "sentence": self.sentence(key),
        }

    def _replace(self, present: Mapping[Key, Outlook]) -> None:
        self.present = MappingProxyType(present)
        for key in self._scaled.keys() - present.keys():
            del self._scaled[key]


def _scaled(values: Mapping[str, Value], forecast: Forecast) -> dict[str, Value]:
    """Return the values, larger by the factor of the forecast.

    Values below 0 stay as they are: a product would be less.
    """
    total = sum(value.milli for value in values.values() if value.milli > 0)
    factor = forecast.factor(total / 1000)
    return {
        name: replace(value, milli=int(value.milli * factor)) if value.milli > 0 else value
        for name, value in values.items()
    }
