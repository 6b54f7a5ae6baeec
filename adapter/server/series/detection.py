"""Detection of GPU exporters and model servers in a live Prometheus, once or continuously.

`rules.exporters.detect` draws conclusions. Queries return only names of series and labels, never
label values. Whether a `pod` is the target's own is decided in PromQL, by a comparison with `up`,
which has only target labels.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from adapter import errors, telemetry
from adapter.background import Backoff, Condition, gather_or_cancel, utc
from adapter.clients.prometheus import Prometheus
from adapter.server.series.lister import Lister
from rules import promql
from rules.exporters import detect, generations
from rules.exporters.detect import Report

log = logging.getLogger(__name__)

_JITTER = 0.1
"""Part of the interval by which a detection may be earlier, so that replicas spread out."""
_FIRST_BACKOFF = 1.0
_MAX_BACKOFF = 60.0
_LOOKBACK = 2 * 3600.0
"""Seconds. Prometheus still has them in memory, and GPUs that are idle now may have had a pod."""


def _named(series: Iterable[str]) -> str:
    return f"{{{promql.matcher('__name__', '=~', '|'.join(series))}}}"


_SELECTOR = _named(generations.SERIES)
_ANY_SERIES = '{__name__!=""}'
_WITH_POD = promql.with_matchers(_SELECTOR, ('pod!=""',))
_SAME_TARGET = "on (job, instance, namespace, pod)"
_FOREIGN = f"({_WITH_POD} unless {_SAME_TARGET} up)"
"""Series whose `pod` is not that of their target."""
_TARGETS_WITH_POD = 'on (job, instance) up{pod!=""}'
_RECENTLY_FOREIGN = (
    f"last_over_time({_WITH_POD}[{_LOOKBACK:.0f}s])"
    f" unless {_SAME_TARGET} last_over_time(up[{_LOOKBACK:.0f}s])"
)
_LOAD_OF_PODS = promql.with_matchers(_named(generations.LOAD), ('pod!=""',))
_OF_PODS = f"{_LOAD_OF_PODS} and {_SAME_TARGET} up"
_SCRAPE = "job, service, endpoint, prometheus, prometheus_replica, replica"
"""Labels in which the targets of several scrapes of one port differ."""
_KIND = "kind"
"""Label that tells the results of two queries apart that are sent as one."""
_SCRAPES = " or ".join(
    f"label_replace(max by (__name__) (count by (__name__, namespace, pod{by}) "
    f"(group by (__name__, namespace, pod, instance{among}) ({_OF_PODS})) > 1), "
    f'"{_KIND}", "{kind}", "", "")'
    for kind, by, among in (("targets", ", instance", f", {_SCRAPE}"), ("ports", "", ""))
)
# Grouped first: with several pods on one GPU, label_replace would yield duplicate series.
_HOSTNAME_IS_POD = (
    "label_replace(group by (__name__, job, instance, {label}) ({selector}),"
    ' "pod", "$1", "{label}", "(.+)") and on (job, instance, pod) up'
)


async def report(prometheus: Prometheus) -> detect.Report:
    """Query Prometheus; return the exporters and the presets that fit. Raises BackendError."""
    return detect.analyze(await _observe(prometheus, Lister(prometheus, max_age=_LOOKBACK)))


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
        refresh_interval: float = 30.0,
        meter: telemetry.DetectionMetrics | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._prometheus = prometheus
        self._lister = Lister(prometheus, max_age=_LOOKBACK)
        self._interval = interval
        self._refresh_interval = refresh_interval
        self._meter = meter
        self._monotonic = monotonic
        self._random = random
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

    def check(self) -> str:
        """Report the presets for /readyz. Never raises: the previous ones are used."""
        used = ", ".join(self.names)
        if self._unread and not self._condition.problem:
            return errors.Degradation(
                f"no preset reads what is found ({', '.join(self._unread)}); {used} is used "
                "meanwhile, without series"
            )
        found = "detected" if self._absences else "no exporter is detected, so this is used"
        chosen = f"{used} ({found})"
        if self._condition.problem:
            since = utc(self._condition.began)
            return errors.Degradation(f"{self._condition.problem} since {since}; in use: {chosen}")
        return chosen

    async def detect(self, timeout: float | None = None) -> None:
        """Choose the presets anew within `timeout` seconds; log a change and a failure once."""
        await self._choose(timeout)
        if self._meter is not None:
            self._meter.chosen(self.names)

    async def _choose(self, timeout: float | None) -> None:
        try:
            async with asyncio.timeout(timeout):
                observations = await _observe(self._prometheus, self._lister)
        except (errors.BackendError, TimeoutError) as error:
            if self._condition.becomes("Prometheus cannot be queried"):
                reason = f"{self._condition.problem}: {str(error) or 'no response in time'}"
                log.warning("--preset=auto: using %s: %s", _flags(self.names), reason)
                self._logged = ()
            return
        self._condition.becomes("")
        report = detect.analyze(observations)
        self._absences = detect.absences(report, self._absences, self._monotonic())
        self._indexed = frozenset(observations.indexed)
        unread = tuple(each.generation.title for each in report.exporters if not each.presets)
        self._unread = () if report.presets else unread
        if self.names != self._logged:
            self._logged = self.names
            self._log(report, unread)

    def _log(self, report: Report, unread: Sequence[str]) -> None:
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
        retries = Backoff(_FIRST_BACKOFF, min(_MAX_BACKOFF, self._interval), random=self._random)
        while True:
            if self._condition.problem:
                pause = retries.pause()
            else:
                retries.reset()
                pause = self._interval * (1 - _JITTER * self._random())
            await self._wait(pause)
            before = self.names
            await self.detect()
            if self.names != before:
                changed()

    async def _wait(self, pause: float) -> None:
        """Wait for `pause` seconds, or until the index has a new name."""
        due = self._monotonic() + pause
        while (left := due - self._monotonic()) > 0:
            await asyncio.sleep(min(left, self._refresh_interval))
            if self._monotonic() < due and await self._has_new_names():
                return

    async def _has_new_names(self) -> bool:
        if self._condition.problem or not self._lister.has_index:
            return False
        try:
            found = await self._lister.index(_SELECTOR, ())
        except errors.BackendError:
            return False  # the next detection logs it, if it fails, too
        return not self._indexed.issuperset(found.names)


def _flags(presets: Iterable[str]) -> str:
    return " ".join(f"--preset={name}" for name in presets)


async def _observe(prometheus: Prometheus, lister: Lister) -> detect.Observations:
    """Query the present series and labels, in a dozen cheap queries."""
    targets, down = await gather_or_cancel(
        _count(prometheus, query) for query in ("count(up)", "count(up == 0)")
    )
    indexed = await lister.index(_SELECTOR, generations.LABELS)
    if not indexed.names:
        now = time.time()
        names = await prometheus.names(_ANY_SERIES, now - _LOOKBACK, now)
        return detect.Observations(targets=targets, down=down, anything=bool(names.content))
    present = frozenset[str]().union(*indexed.names.values())
    labels = [label for label in generations.LABELS if label in present]
    hostnames = [label for label in ("Hostname", "hostname") if label in present]
    names_in = await lister.names_in(
        [
            _SELECTOR,
            f"{_FOREIGN} and {_TARGETS_WITH_POD}",
            f"{_FOREIGN} unless {_TARGETS_WITH_POD}",
            _RECENTLY_FOREIGN,
            *(_HOSTNAME_IS_POD.format(label=label, selector=_SELECTOR) for label in hostnames),
        ]
    )
    live, honored, direct, recently_foreign, *hostname_is_pod = names_in.content
    # Others decide nothing: each is one more query.
    matchers = generations.matchers(indexed.names)
    conditions = [promql.matcher(label, "!=", "") for label in labels]
    carriers = await lister.live(_SELECTOR, [(each,) for each in (*conditions, *matchers)])
    having, matching = carriers.content[: len(labels)], carriers.content[len(labels) :]
    scrapes: Mapping[str, Mapping[str, int]] = {}
    if not indexed.names.keys().isdisjoint(generations.LOAD):
        scrapes = await _scrapes(prometheus)
    return detect.Observations(
        live={
            name: frozenset(
                label for label, names in zip(labels, having, strict=True) if name in names
            )
            for name in live
        },
        indexed=indexed.names,
        matching=dict(zip(matchers, matching, strict=True)),
        targets_of_pod=scrapes.get("targets", {}),
        ports_of_pod=scrapes.get("ports", {}),
        honored=honored,
        direct=direct,
        recently_foreign=recently_foreign,
        hostname_is_pod=frozenset[str]().union(*hostname_is_pod),
        targets=targets,
        down=down,
        anything=True,
    )


async def _scrapes(prometheus: Prometheus) -> Mapping[str, Mapping[str, int]]:
    """Return the most targets and ports of one pod, if several, by the names of series."""
    result = await prometheus.query(_SCRAPES)
    found: dict[str, dict[str, int]] = {}
    for each in result.samples:
        of_kind = found.setdefault(each.labels.get(_KIND, ""), {})
        of_kind[each.labels.get("__name__", "")] = int(each.value)
    return found


async def _count(prometheus: Prometheus, query: str) -> int:
    result = await prometheus.query(query)
    return int(result.samples[0].value) if result.samples else 0
