"""Another server of external.metrics.k8s.io, such as KEDA's: its metrics and their values.

https://github.com/kubernetes/metrics/tree/master/pkg/apis/external_metrics
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import quote

from adapter import errors
from adapter.clients.kubernetes import Kube
from rules import quantity
from rules.errors import RulesError
from rules.names import is_path_segment
from rules.query.aggregate import ExternalValue, Value

_PATH = "/apis/external.metrics.k8s.io/v1beta1"
_INTERVAL = 60.0
_MAX_LISTED = 10_000
"""Metrics of its discovery that are listed here as well."""


class ExternalMetrics:
    """The server that `kube` reaches; `name` is what people call it."""

    def __init__(self, kube: Kube, name: str) -> None:
        self.name = name
        self.listed: tuple[str, ...] = ()
        """Metrics in its discovery; the same object as long as they are the same."""
        self._kube = kube
        self._state = "not asked yet"

    async def values(
        self, metric: str, *, namespace: str, selector: str, deadline: float
    ) -> tuple[ExternalValue, ...]:
        """Return the values of a metric; `selector` is the label selector as it was requested.

        `deadline` is in loop time. Raises BackendError.
        """
        path = f"{_PATH}/namespaces/{quote(namespace, safe='')}/{quote(metric, safe='')}"
        try:
            async with asyncio.timeout_at(deadline):
                document = await self._kube.get(
                    path, {"labelSelector": selector} if selector else None
                )
        except TimeoutError as error:
            raise errors.TimedOut(f"GET {path}: no complete response in time") from error
        try:
            return tuple(map(_value, document["items"] or ()))
        except (AttributeError, KeyError, TypeError, ValueError, RulesError) as error:
            raise errors.Broken(
                f"GET {path}: the response is not an ExternalMetricValueList: {error!r}"
            ) from error

    async def run(self) -> NoReturn:
        """List the metrics once a minute; those of the last list stay if it fails."""
        while True:
            try:
                listed = _names(await self._kube.get(_PATH))
            except errors.BackendError as error:
                self._state = errors.Degradation(f"discovery of {self.name} fails: {error}")
            else:
                self._state = f"{len(listed)} metrics listed"
                if listed != self.listed:
                    self.listed = listed
            await asyncio.sleep(_INTERVAL)

    def check(self) -> str:
        """Return for /readyz whether its metrics could be listed. Never raises."""
        return self._state


def _names(document: Any) -> tuple[str, ...]:
    """Return the metrics in an APIResourceList. Raises Broken."""
    try:
        names = {str(each["name"]) for each in document["resources"] or ()}
    except (AttributeError, KeyError, TypeError) as error:
        raise errors.Broken(f"the response is not an APIResourceList: {error!r}") from error
    return tuple(sorted(filter(is_path_segment, names))[:_MAX_LISTED])


def _value(item: Mapping[str, Any]) -> ExternalValue:
    labels = item.get("metricLabels")
    return ExternalValue(
        labels=None if labels is None else {str(key): str(each) for key, each in labels.items()},
        value=Value(
            milli=quantity.milli_value(item["value"]),
            time=dt.datetime.fromisoformat(item["timestamp"]).timestamp(),
            samples=1,
        ),
    )
