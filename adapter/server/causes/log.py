"""Log of the causes of missing metrics: each once when it begins, and with a count when it ends.

Autoscalers repeat a request every few seconds. `collector` has the causes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from adapter import bounds
from adapter.errors import BackendError
from rules.causes import wording
from rules.causes.missing import SEE_LOG
from rules.findings import Finding, Place, State
from rules.quoting import counted

log = logging.getLogger(__name__)

LOG_INTERVAL = 600.0
"""Seconds after which the same causes of a subject are logged again."""
ENDED_AFTER = 60.0
"""Seconds without a request to which the causes apply; autoscalers send one every 15 s."""
_SWEEP_INTERVAL = 15.0
_MAX_LINE = 1500
"""Characters of all causes; the log cuts messages at 2000, and each has its subject before."""

_Identity = tuple[tuple[str, Place, State], ...]


@dataclass(slots=True, kw_only=True)
class _Missing:
    """Causes that one subject has, and since when."""

    level: int
    reasons: str
    began: float
    logged: float
    last: float
    requests: int = 0
    """Since `logged`."""
    total: int = 0

    def count(self, now: float) -> None:
        """Count a request."""
        self.last = now
        self.requests += 1
        self.total += 1


class CauseLog:
    """Logs causes at a bounded rate. `clock` is monotonic, in seconds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._missing: OrderedDict[tuple[str, _Identity], _Missing] = OrderedDict()
        """That with the oldest request first.

        Not by subject only: it has no label selector, so autoscalers whose selectors differ can
        have different causes at the same time.
        """

    async def run(self) -> NoReturn:
        """Log the end of causes until cancelled."""
        while True:
            await self._sleep(_SWEEP_INTERVAL)
            self.log_ended()

    def add(
        self, subject: str, causes: Sequence[Finding], error: BackendError | None = None
    ) -> None:
        """Log why `subject` has no value, unless the same was logged recently.

        Causes are the same if their reasons and rules are; ages and counts in them may differ.
        `error` quotes the backend, which only the log may do.
        Pending ones are logged at debug level only, until they last.
        """
        now = self._clock()
        identity = tuple((cause.reason, cause.where, cause.state) for cause in causes)
        known = self._missing.get((subject, identity))
        repeated = ""
        if known is None:
            provisional = causes and all(cause.state is State.PENDING for cause in causes)
            known = _Missing(
                level=logging.DEBUG if provisional else logging.WARNING,
                reasons=", ".join(dict.fromkeys(cause.reason for cause in causes)),
                began=now,
                logged=now,
                last=now,
            )
            self._missing[subject, identity] = known
        elif now - known.logged >= LOG_INTERVAL:
            repeated = f" ({known.requests} requests in {_duration(now - known.logged)})"
            known.logged, known.requests = now, 0
        self._missing.move_to_end((subject, identity))
        if repeated or known.total == 0:
            line = _line(causes, error)
            log.log(known.level, "%s: %s%s", subject, line, repeated)
        known.count(now)
        if len(self._missing) > bounds.LOGGED_CAUSES:
            self._missing.popitem(last=False)

    def log_ended(self) -> None:
        """Log causes that no request had for a minute: the metric has values, or nobody asks."""
        now = self._clock()
        while self._missing:
            key, oldest = next(iter(self._missing.items()))
            if now - oldest.last < ENDED_AFTER:
                return
            self._log_end(key[0], self._missing.pop(key))

    def _log_end(self, subject: str, ended: _Missing) -> None:
        if ended.total > 1 and ended.reasons:
            log.log(
                min(ended.level, logging.INFO),
                "%s: %s ended after %d requests in %s",
                subject,
                ended.reasons,
                ended.total,
                _duration(ended.last - ended.began),
            )


def _line(causes: Sequence[Finding], error: BackendError | None) -> str:
    """Return the causes in one line, with `error` in the first unless that quotes it already."""
    shown = [replace(each, cure="") if each.cure == SEE_LOG else each for each in causes]
    if shown and error is not None:
        first, refusal = shown[0], wording.truncate(" ".join(error.refusal.split()))
        if not refusal or refusal not in first.fact:
            text = f"{type(error).__name__}: {error}"
            quoted = f" ({text})" if first.cure else f": {text}"
            shown[0] = replace(first, fact=first.fact + quoted)
    if not shown:
        return "the metric appeared or disappeared just now"
    most_specific, *others = (each.within(_MAX_LINE) for each in shown)
    left = _MAX_LINE - len(most_specific)
    fitting = [text for text in others if (left := left - len(text)) > 0]
    more = len(others) - len(fitting)
    end = [counted(more, "more cause")] if more else []
    return ". Also ".join((most_specific, *fitting, *end))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
