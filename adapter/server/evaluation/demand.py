"""Demand: which objects were requested lately, and which of them one query should cover. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque

from adapter import bounds
from rules.query.plan import SelectedObjects

ObjectNames = tuple[str, tuple[str, ...]]
"""A namespace (empty for objects that have none) and the names of objects in it."""

_WINDOW = 120.0
"""Seconds for which a request counts as demand: eight periods of an HPA controller."""

_BUSY = 3
"""Number of requests within the freshness of an evaluation that make sharing worth its cost."""
_STORM = 20
_STORM_WINDOW = 10.0
"""After so many new sets of objects in so many seconds, names are not matched."""

_FEW_NAMES = 300
"""Number of names up to which they are matched."""
_MAX_MATCHED = 2000
"""Maximum number of names that are matched if less than half of all objects are requested. A query
that is longer than `plan.MAX_LENGTH` is sent without names, unless such a query returned too much.

With 10 000 pods, a matched name costs Prometheus 18 µs, and a sample that is not requested 8 µs;
the adapter needs another 10 µs for each sample. So matching is cheaper below one half."""
_MAX_NAMESPACES = 100
"""Maximum number of namespaces that are matched."""


class Demand:
    """Objects that were requested in the last two minutes. Times are in seconds.

    Each call of `record` evicts what is older.
    """

    def __init__(self) -> None:
        self._requested: OrderedDict[ObjectNames, float] = OrderedDict()
        self._names = 0
        self._requests: deque[float] = deque(maxlen=_BUSY)
        self._new: deque[float] = deque(maxlen=_STORM)

    @property
    def size(self) -> int:
        """Number of sets of objects and of their names."""
        return len(self._requested) + self._names

    def record(self, requested: ObjectNames, now: float) -> None:
        """Count a request."""
        self._requests.append(now)
        if requested in self._requested:
            self._requested.move_to_end(requested)
        else:
            self._new.append(now)
            self._names += len(requested[1])
        self._requested[requested] = now
        self._evict_older(now - _WINDOW)
        while self._names > bounds.REQUESTED_NAMES or len(self._requested) > bounds.REQUESTED:
            self._evict()

    def busy(self, now: float, freshness: float) -> bool:
        """Return whether several requests would share one evaluation of this freshness."""
        return len(self._requests) == _BUSY and now - self._requests[0] < freshness

    def storm(self, now: float) -> bool:
        """Return whether many new sets of objects were requested lately, as after a start."""
        return len(self._new) == _STORM and now - self._new[0] <= _STORM_WINDOW

    def objects(self, now: float, *, returned: int | None, wide: bool) -> SelectedObjects | None:
        """Return the objects that the next evaluation should cover.

        `returned` is the number of objects that an evaluation without names returned, if there was
        one. Without `wide`, names must be matched; None is returned if there are too many.
        """
        self._evict_older(now - _WINDOW)
        names: set[str] = set()
        namespaces: set[str] = set()
        for namespace, some in self._requested:
            namespaces.add(namespace)
            if len(names) <= _MAX_MATCHED:
                names.update(some)
        storm = self.storm(now)
        every_namespace = storm or len(namespaces) > _MAX_NAMESPACES
        matched = _FEW_NAMES if returned is None else min(_MAX_MATCHED, returned // 2)
        if wide and (storm or len(names) > matched):
            names.clear()
        elif len(names) > _MAX_MATCHED:
            return None
        return SelectedObjects(
            namespaces=None if every_namespace else tuple(sorted(namespaces)),
            names=tuple(sorted(names)) or None,
        )

    def _evict_older(self, oldest: float) -> None:
        while self._requested and next(iter(self._requested.values())) < oldest:
            self._evict()

    def _evict(self) -> None:
        (_, names), _ = self._requested.popitem(last=False)
        self._names -= len(names)
