"""Presets that fit the series in Prometheus, detected continuously, for `--preset=auto`.

`clients.detection` queries Prometheus, `rules.exporters.detect` draws conclusions.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from adapter import errors, telemetry
from adapter.background import Backoff, Condition, utc
from adapter.clients import detection
from adapter.clients.prometheus import Prometheus
from rules.exporters import detect
from rules.exporters.detect import Detection
from rules.findings import Finding, degraded, passes

log = logging.getLogger(__name__)

REFRESH = 30.0
"""Seconds between two requests for the names in the index."""
_JITTER = 0.1
"""Part of the interval by which a detection may be earlier, so that replicas spread out."""
_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0


class DetectedPresets:
    """The presets that fit the series in Prometheus, detected anew while `run` runs.

    `interval` (between detections) and `refresh_interval` (between requests for the names in the
    index, a new one of which causes a detection) are in seconds.
    """

    def __init__(
        self,
        prometheus: Prometheus,
        *,
        interval: float,
        refresh_interval: float = REFRESH,
        meter: telemetry.DetectionMetrics | None = None,
    ) -> None:
        self._prometheus = prometheus
        self._lister = detection.lister_of(prometheus)
        self._interval = interval
        self._refresh_interval = refresh_interval
        self._meter = meter
        self._absences: Mapping[str, float | None] = {}
        """The presets that fitted the last report, or one shortly before: `detect.absences`."""
        self._indexed: frozenset[str] = frozenset()
        """Names in the index at the last detection."""
        self._condition = Condition()
        self._logged: tuple[str, ...] = ()
        self._unread: tuple[str, ...] = ()
        """Titles of what was found if no preset reads any of it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The presets to use now, in order."""
        return tuple(self._absences) or (detect.DEFAULT,)

    def check(self) -> Finding:
        """Report the presets for /readyz. Never raises: the previous ones are used."""
        used = ", ".join(self.names)
        if self._unread and not self._condition.problem:
            return degraded(
                f"no preset reads what is found ({', '.join(self._unread)}); {used} is used "
                "meanwhile, without series"
            )
        found = "detected" if self._absences else "no exporter is detected, so this is used"
        chosen = f"{used} ({found})"
        if self._condition.problem:
            since = utc(self._condition.began)
            return degraded(f"{self._condition.problem} since {since}; in use: {chosen}")
        return passes(chosen)

    async def detect(self, timeout: float | None = None) -> None:
        """Choose the presets anew within `timeout` seconds; log a change and a failure once."""
        await self._choose(timeout)
        if self._meter is not None:
            self._meter.chosen(self.names)

    async def _choose(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                observations = await detection.observe(self._prometheus, self._lister)
        except (errors.BackendError, TimeoutError) as error:
            if self._condition.becomes("Prometheus cannot be queried"):
                reason = f"{self._condition.problem}: {str(error) or 'no response in time'}"
                log.warning("--preset=auto: using %s: %s", _flags(self.names), reason)
                self._logged = ()
            return
        self._condition.becomes("")
        report = detect.analyze(observations)
        self._absences = detect.absences(report, self._absences, time.monotonic())
        self._indexed = frozenset(observations.indexed)
        unread = tuple(each.generation.title for each in report.exporters if not each.presets)
        self._unread = () if report.presets else unread
        if self.names != self._logged:
            self._logged = self.names
            self._log(report, unread)

    def _log(self, report: Detection, unread: Sequence[str]) -> None:
        """Log which presets are used, and why."""
        used = _flags(self.names)
        if report.presets:
            found = ", ".join(each.generation.title for each in report.exporters if each.presets)
            more = f"; no preset reads {', '.join(unread)}" if unread else ""
            if detect.DEFAULT in self.names and detect.DEFAULT not in report.presets:
                more += f"; --preset={detect.DEFAULT} is for pods to come"
            log.info("--preset=auto: using %s: found %s%s", used, found, more)
        elif unread:
            log.warning(
                "--preset=auto: no preset reads what is found (%s): write rules, and load them "
                "with --config. Until then %s is used",
                ", ".join(unread),
                used,
            )
        else:
            log.warning("--preset=auto: using %s: %s", used, "; ".join(report.sentences))

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Detect periodically until cancelled; call `changed` when `names` changes."""
        retries = Backoff(_FIRST_BACKOFF, min(_MAX_BACKOFF, self._interval))
        while True:
            if self._condition.problem:
                pause = retries.pause()
            else:
                retries.reset()
                pause = self._interval * random.uniform(1 - _JITTER, 1)  # noqa: S311 - spreads load
            await self._wait(pause)
            before = self.names
            await self.detect()
            if self.names != before:
                changed()

    async def _wait(self, pause: float) -> None:
        """Wait for `pause` seconds, or until the index has a new name."""
        due = time.monotonic() + pause
        while (left := due - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._refresh_interval))
            if time.monotonic() < due and await self._has_new_names():
                return

    async def _has_new_names(self) -> bool:
        if self._condition.problem or not self._lister.has_index:
            return False
        try:
            found = await self._lister.index(detection.SELECTOR, ())
        except errors.BackendError:
            return False  # the next detection logs it, if it fails, too
        return not self._indexed.issuperset(found.names)


def _flags(presets: Iterable[str]) -> str:
    return " ".join(f"--preset={name}" for name in presets)
