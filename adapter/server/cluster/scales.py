"""Pod selectors of scale targets, read from their scale subresource.

A scale cannot be watched. So those that HPAs refer to are polled, and never read during a request.
`contents` has the workloads that are watched.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from adapter import bounds, errors
from adapter.background import Condition, gather_or_cancel, guarded
from adapter.clients import collection
from adapter.clients.kubernetes import Kube
from adapter.clients.value_index import Item, ValueIndex
from adapter.server.cluster import contents
from rules import limits
from rules.errors import SelectorError, UnknownResourceError
from rules.hpa import autoscaler, groups
from rules.kinds import GroupResource, Kinds
from rules.limits import Claim, Limits
from rules.names import is_path_segment
from rules.selectors import selectors
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

_INTERVAL = 60.0
"""Seconds between two reads of a scale."""
_SOON = 5.0
"""Seconds between two reads for a target whose pods have no value. Its selector may have changed: a
Rollout with the strategy blueGreen changes it with each promotion."""
_TICK = 1.0
_PER_TICK = math.ceil(bounds.SCALES * _TICK / _INTERVAL)
QPS, BURST = _PER_TICK / _TICK, _PER_TICK
"""Limits of the reads, which delay no other requests."""
TIMEOUT = 10.0
"""Seconds for one read."""
_MAX_TERM = 512
"""Characters of a requirement and its value, of which Kubernetes accepts fewer than 400."""


class ScaleTarget(NamedTuple):
    """An object whose scale is read."""

    resource: GroupResource
    namespace: str
    name: str


@dataclass(slots=True)
class _Scale:
    """State of one scale."""

    read: float = -math.inf
    due: float = -math.inf
    text: str = ""
    """The selector as it was read."""


class Scales:
    """Scales of the wanted targets, polled while `run` runs. `clock` is monotonic."""

    def __init__(
        self,
        api: Kube,
        *,
        resources: Iterable[GroupResource],
        kinds: Callable[[], Kinds],
        limits: Limits = limits.DEFAULT,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self.resources = tuple(resources)
        """Resources whose scales may be read."""
        self._kinds = kinds
        self._limits = limits
        self._clock = clock
        self._sleep = sleep
        self._scales: dict[ScaleTarget, _Scale] = {}
        self._selected: defaultdict[GroupResource, ValueIndex[Selector]] = defaultdict(ValueIndex)
        self._pods: defaultdict[GroupResource, ValueIndex[Selector]] = defaultdict(ValueIndex)
        self._failed: dict[ScaleTarget, str] = {}
        """Why the last read failed."""
        self._failing = Condition()

    def want(self, targets: Mapping[ScaleTarget, bool]) -> None:
        """Poll these scales from now on, and no others.

        True marks a target without values: its scale is read again soon.
        """
        if len(targets) > bounds.SCALES:
            claims = {
                Claim(
                    namespace=each.namespace, name=f"{each.resource}/{each.name}", created=""
                ): each
                for each in targets
            }
            admitted = limits.admit(claims, own=bounds.SCALES, total=bounds.SCALES).keys
            targets = {
                each: targets[each] for claim, each in claims.items() if claim.key in admitted
            }
        for target in self._scales.keys() - targets.keys():
            self._put(target, None)
            self._failed.pop(target, None)
            del self._scales[target]
        for target, soon in targets.items():
            scale = self._scales.setdefault(target, _Scale())
            if soon:
                scale.due = min(scale.due, scale.read + _SOON)

    def selected(self, target: ScaleTarget) -> Selector | None:
        """Return the selector of a scale, as the HPA controller reads it; None if it has none."""
        return self._selected[target.resource].of(target.namespace).get(target.name)

    def pods(self, resource: GroupResource, namespace: str) -> Mapping[str, Selector]:
        """Return the targets of a namespace by name, each with the selector of all its pods."""
        return self._pods[resource].of(namespace)

    async def run(self) -> NoReturn:
        """Read the scales that are due, until cancelled."""
        while True:
            await self._sleep(_TICK)
            now = self._clock()
            due = sorted(
                (scale.due, target) for target, scale in self._scales.items() if scale.due <= now
            )
            await gather_or_cancel(self._read(target) for _, target in due[:_PER_TICK])
            self._log_failures()

    async def _read(self, target: ScaleTarget) -> None:
        """Read one scale. After a failure, the last selector is kept."""
        if (scale := self._scales.get(target)) is None:
            return  # no longer wanted
        scale.read = self._clock()
        scale.due = scale.read + _INTERVAL
        with guarded("/".join(map(str, target)), "its scale cannot be read"):
            try:
                text = await self._selector(target)
                changed = text != scale.text
                selector = self._parsed(text) if changed else None
            except (errors.BackendError, SelectorError) as error:
                if target in self._scales:
                    self._failed[target] = str(error)
                return
            self._failed.pop(target, None)
            if changed and target in self._scales:
                scale.text = text
                self._put(target, selector)

    async def _selector(self, target: ScaleTarget) -> str:
        """Return the selector in a scale; empty without one. Raises BackendError."""
        resource, namespace, name = target
        if not is_path_segment(namespace) or not is_path_segment(name):
            return ""
        try:
            kind = self._kinds().first(resource.resource, resource.group)
        except UnknownResourceError:
            return ""
        quoted = urllib.parse.quote(name, safe="")
        path = f"{collection.path(kind, namespace)}/{quoted}/scale"
        try:
            found = collection.attempt(await self._api.get(path), autoscaler.scale)
        except errors.Refused as error:
            if error.status == 404:
                return ""
            raise
        if isinstance(found, Exception):
            raise errors.Broken(f"GET {path}: the response is not a scale: {found!r}")
        return str(found.selector)

    def _parsed(self, text: str) -> Selector | None:
        """Return the selector; None for an empty one, which has no pods. Raises SelectorError."""
        most, terms = self._limits.workload_selector, text.count(",") + 1
        # The event loop waits for the parser, which takes a second for a megabyte.
        if terms > most:
            raise SelectorError(contents.too_large(terms, self._limits))
        if len(text) > most * _MAX_TERM:
            raise SelectorError(f"its selector has {len(text)} characters: shorten it")
        selector = selectors.parse(text)
        if selector.size > most:
            raise SelectorError(contents.too_large(selector.size, self._limits))
        return None if selector.empty else selector

    def _put(self, target: ScaleTarget, selector: Selector | None) -> None:
        pods = None if selector is None else groups.all_pods(selector)
        for index, value in ((self._selected, selector), (self._pods, pods)):
            index[target.resource].put(Item(target.namespace, target.name, value))

    def _log_failures(self) -> None:
        """Say of which resources scales cannot be read, if that has changed."""
        resources = sorted({str(each.resource) for each in self._failed})
        if not self._failing.becomes(", ".join(resources)):
            return
        if not resources:
            log.info("all scales can be read again")
            return
        target, error = min(self._failed.items())
        log.warning(
            "scales of %s cannot be read, so the last known pods count: %s/%s: %s",
            ", ".join(resources),
            target.namespace,
            target.name,
            error,
        )
