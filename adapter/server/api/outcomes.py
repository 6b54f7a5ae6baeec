"""Last outcome of each request that autoscalers send, noted while the request is answered.

So the watch of autoscalers needs no requests of its own for metrics that the controller requests.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from adapter import bounds, errors
from adapter.background import has_share
from adapter.server.api.groups import group as groups
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import AnyGroup, Content
from adapter.server.apimachinery.request_info import RequestInfo
from rules.errors import SelectorError
from rules.findings import Finding
from rules.query.aggregate import ExternalValue, Value

Key = tuple[object, ...]
"""What a request is for: group, path below the version, and the selectors."""


def key_of(info: RequestInfo) -> Key:
    """Return what a request is for, in any version of its group, however it writes selectors."""
    below_version = info.path.split("/", 4)[-1]
    try:
        return info.group, below_version, info.labels.meaning, info.metric_labels.meaning
    except SelectorError:
        return info.group, below_version, info.label_selector, info.metric_label_selector


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the last request ended."""

    at: float
    """Of the clock."""
    resolved: bool
    """Whether there was a value."""
    causes: tuple[Finding, ...] = ()
    problem: str = ""
    """What was wrong if no cause says so: the message of the error."""
    values: Mapping[str, Value] | Sequence[ExternalValue] = ()
    """What was answered: values by the name of the object, or of an external metric. Empty, as
    `selected`, if the outcomes of the namespace have too many names."""
    selected: tuple[str, ...] = ()
    """Names of the objects that the request selects, with and without a value."""

    @property
    def external(self) -> Sequence[int]:
        """The values of an external metric, in thousandths."""
        if isinstance(self.values, Mapping):
            return ()
        return [each.value.milli for each in self.values]


class Outcomes:
    """The last outcome of each request in `wanted`. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: dict[Key, Outcome | None] = {}
        self._names: dict[Key, tuple[str, int]] = {}
        """The namespace of each request, and the number of names in its outcome."""
        self._names_in: Counter[str] = Counter()
        """Sums of these, by namespace."""
        self._free = bounds.OUTCOME_NAMES
        self._noted: Callable[[Key, Outcome], None] = lambda *_: None

    def want(
        self, keys: Collection[Key], noted: Callable[[Key, Outcome], None] = lambda *_: None
    ) -> None:
        """Note the outcomes of these requests from now on, and forget those of others.

        Each is passed to `noted`, while the request that it answers waits.
        """
        self._last = {key: self._last.get(key) for key in keys}
        self._noted = noted
        for key in self._names.keys() - self._last.keys():
            self._forget_names(key)

    def of(self, key: Key) -> Outcome | None:
        """Return how the last request ended; None if none has."""
        return self._last.get(key)

    async def answer(
        self, group: AnyGroup, info: RequestInfo, backend: Backend, *, deadline: float
    ) -> Content:
        """Return the content of a route, as `group.answer`, and note the outcome if wanted.

        Raises ApiError.
        """
        try:
            content = await groups.answer(group, info, backend, deadline=deadline)
        except errors.ApiError as error:
            self.note(info, None, causes=error.causes, problem=error.message)
            raise
        self.note(info, content, causes=() if content.items else content.causes)
        return content

    def note(
        self,
        info: RequestInfo,
        content: Content | None,
        *,
        causes: tuple[Finding, ...] = (),
        problem: str = "",
    ) -> None:
        """Note how a request ended, if that is wanted; without content after an error."""
        if self._last and (key := key_of(info)) in self._last:
            size = max(len(content.values), len(content.selected)) if content else 0
            if not self._keep_names(key, info.namespace, size) and content is not None:
                content = replace(content, values=(), selected=())
            outcome = self._last[key] = Outcome(
                at=self._clock(),
                resolved=content is not None and content.items > 0,
                causes=causes,
                problem=problem,
                values=content.values if content else (),
                selected=content.selected if content else (),
            )
            self._noted(key, outcome)

    def _keep_names(self, key: Key, namespace: str, size: int) -> bool:
        """Return whether there is room for so many names in an outcome, and take it."""
        if self._names.get(key) == (namespace, size):
            return True
        self._forget_names(key)
        used = self._names_in[namespace] + size
        if not has_share(used, self._free):
            return False
        self._names[key], self._names_in[namespace] = (namespace, size), used
        self._free -= size
        return True

    def _forget_names(self, key: Key) -> None:
        if (known := self._names.pop(key, None)) is not None:
            namespace, size = known
            self._free += size
            self._names_in[namespace] -= size
            if not self._names_in[namespace]:
                del self._names_in[namespace]
