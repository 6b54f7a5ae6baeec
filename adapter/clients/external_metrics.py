"""Another server of external.metrics.k8s.io, such as KEDA's: its metrics and their values.

https://github.com/kubernetes/metrics/tree/master/pkg/apis/external_metrics
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any, NoReturn

from adapter import errors
from adapter.clients.kubernetes import Kube
from adapter.clients.limits import FairSlots
from rules import metrics_apis, quantity
from rules.errors import RulesError
from rules.findings import Finding, degraded, passes
from rules.limits import DEFAULT, Limits
from rules.metrics_apis import EXTERNAL
from rules.names import is_namespace, is_object_name
from rules.query.aggregate import ExternalValue, Value
from rules.quoting import quote_shortened, shorten

TIMEOUT = 10.0
"""Seconds that a request waits for its turn and the response together."""
_INTERVAL = 60.0
_MAX_LISTED = 10_000
"""Metrics of its discovery that are listed here as well."""
_MAX_QUOTED = 200
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RulesError)
"""What a document of another shape raises while it is read."""


class ExternalMetrics:
    """The server that `kube` reaches; `name` is what people call it."""

    def __init__(self, kube: Kube, name: str, *, limits: Limits = DEFAULT) -> None:
        self.name = name
        self._limits = limits
        self._slots = FairSlots(own=limits.fallback_requests, total=limits.fallback_requests_all)
        self.listed: tuple[str, ...] = ()
        """Metrics in its discovery; the same object as long as they are the same."""
        self._kube = kube
        self._state = passes("not asked yet")

    async def values(
        self, metric: str, *, namespace: str, selector: str, deadline: float
    ) -> tuple[ExternalValue, ...]:
        """Return the values of a metric; `selector` is the label selector as it was requested.

        `deadline` is in loop time. Raises ValueError for what no request can have, and
        BackendError, whose `refusal` says what the server did if that is known.
        """
        self._check(metric, namespace, selector)
        path = metrics_apis.external_metric(metric, namespace)
        refusal = (
            f"did not answer {self._limits.fallback_requests} other requests of the namespace, or "
            f"{self._limits.fallback_requests_all} of all, in time: these are the limits "
            "fallback-requests and fallback-requests-all"
        )
        deadline = min(deadline, asyncio.get_running_loop().time() + TIMEOUT)
        try:
            async with asyncio.timeout_at(deadline), self._slots.slot(namespace):
                refusal = ""
                document = await self._get(path, {"labelSelector": selector} if selector else None)
        except TimeoutError as error:
            text = f"GET {path}: no complete response in time"
            raise errors.TimedOut(text, refusal=refusal) from error
        try:
            items = document["items"] or ()
            if len(items) > self._limits.fallback_items:
                raise self._too_large(path, self._limits.fallback_items, "items")
            return tuple(map(_value, items))
        except _MALFORMED as error:
            raise errors.Broken(
                f"GET {path}: the response is not an ExternalMetricValueList: "
                f"{shorten(repr(error), _MAX_QUOTED)}"
            ) from error

    def _check(self, metric: str, namespace: str, selector: str) -> None:
        """Raise ValueError unless the request reaches the path of its metric and no other one."""
        if not is_namespace(namespace):
            problem = f"no namespace can have the name {quote_shortened(namespace)}"
        elif not is_object_name(metric):
            problem = f"no metric can have the name {quote_shortened(metric)}"
        elif not _is_text(selector):
            problem = "labelSelector is not UTF-8"
        else:
            return
        raise ValueError(f"{problem}: the request is not forwarded to {self.name}")

    async def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """Return a document within the limit. Raises BackendError."""
        limit = self._limits.fallback_answer
        try:
            return await self._kube.get(path, params, limit=limit)
        except errors.TooLarge as error:
            raise self._too_large(path, limit, "bytes") from error

    def _too_large(self, path: str, limit: int, unit: str) -> errors.TooLarge:
        name = "fallback-items" if unit == "items" else "fallback-answer"
        answer = f"answers with more than {limit} {unit}, which is the limit {name}"
        advice = f"raise it by --limit={name}=NUMBER"
        return errors.TooLarge(f"GET {path}: {self.name} {answer}; {advice}", refusal=answer)

    async def run(self) -> NoReturn:
        """List the metrics once a minute; those of the last list stay if it fails."""
        while True:
            try:
                listed = _names(await self._get(EXTERNAL.path()))
            except errors.BackendError as error:
                self._state = degraded(f"discovery of {self.name} fails: {error}")
            else:
                self._state = passes(f"{len(listed)} metrics listed")
                if listed != self.listed:
                    self.listed = listed
            await asyncio.sleep(_INTERVAL)

    def check(self) -> Finding:
        """Return for /readyz whether its metrics could be listed. Never raises."""
        return self._state


def _names(document: Any) -> tuple[str, ...]:
    """Return the metrics in an APIResourceList. Raises Broken."""
    try:
        names = {str(each["name"]) for each in document["resources"] or ()}
    except _MALFORMED as error:
        text = shorten(repr(error), _MAX_QUOTED)
        raise errors.Broken(f"the response is not an APIResourceList: {text}") from error
    return tuple(sorted(filter(is_object_name, names))[:_MAX_LISTED])


def _is_text(text: str) -> bool:
    """Return whether `text` has no bytes of invalid UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
