"""Choice of the rules that read the Prometheus in the adapter's own pod.

Its data begin at its start, so a rule reads it only once it has data of the whole window of the
rule's query. The choice is part of the rule set, so no generation mixes values of both sources.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

from adapter import errors
from adapter.background import Condition, utc
from adapter.clients import detection
from adapter.clients.prometheus import Prometheus
from adapter.clients.prometheus_result import QueryResult, Reduce
from rules import promql, teams
from rules.document.sources import DEFAULT, EMBEDDED, FILLING
from rules.exporters import detect
from rules.findings import Finding, degraded, passes
from rules.query import window
from rules.ruleset import CompiledRule, RuleSet, Team

log = logging.getLogger(__name__)

_INTERVAL = 2.0
"""Seconds between two requests for the time of its start, which take 1 ms of CPU time."""
_FAILURES = 3
"""Consecutive failures of these after which its earlier data no longer count."""
_DETECTION = 20.0
"""Seconds between two detections of the presets that it has series of: a dozen cheap queries."""
_LACKING = 300.0
"""Seconds for which a preset still reads it although the other Prometheus has more targets: the
other one may show a target for longer after its end."""
_DISCOVERY = 10.0
"""Seconds after its start in which Prometheus discovers all targets: it applies changes every 5 s,
first those of the API server, then those of the configuration of the scrapes."""


class Embedded:
    """Decides which rules read `client`, the Prometheus in the pod, while `run` runs.

    `interval` is its scrape interval in seconds. `other` is that of --prometheus-url; without one,
    all rules read `client`, and FILLING while their windows are not full. `clock` returns Unix
    seconds.
    """

    def __init__(
        self,
        client: Prometheus,
        *,
        interval: float,
        other: Prometheus | None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self.alone = other is None
        self._other = other
        self._settling = _DISCOVERY + 2 * interval
        names = (DEFAULT, teams.SOURCE) if self.alone else (EMBEDDED,)
        self.intervals = dict.fromkeys(names, interval)
        """Source that it answers -> its scrape interval."""
        self._clock = clock
        self._since: float | None = None
        """When its data begin, in Unix seconds; None while it does not respond."""
        self._failures = 0
        self._lister = detection.lister_of(client)
        self._fitting: Mapping[str, float | None] = {}
        """The presets whose series it has, as of `detect.absences`."""
        self._complete: dict[str, float] = {}
        """The presets that read it, and when it last had as many targets as the other one."""
        self._lacking: Mapping[str, str] = {}
        """Preset that does not read it for lack of targets -> their number, and the other one's."""
        self._detected = 0.0
        self._condition = Condition(clock)
        self._routed: tuple[RuleSet, tuple[str, ...], RuleSet] | None = None
        """The last rule set that was routed, the sources of its rules, and the result."""

    @property
    def presets(self) -> tuple[str, ...]:
        """The presets whose series it has, in order."""
        return tuple(self._fitting)

    def route(self, ruleset: RuleSet) -> RuleSet:
        """Return the rules with the sources that they read now; the same object if unchanged."""
        sources = tuple(map(self._source, ruleset.every))
        if self._routed is None or self._routed[:2] != (ruleset, sources):
            by_rule = {
                id(rule): source for rule, source in zip(ruleset.every, sources, strict=True)
            }
            routed = ruleset.reading(lambda rule: by_rule[id(rule)])
            self._routed = ruleset, sources, routed
        return self._routed[2]

    def check(self) -> Finding:
        """Return its state for /readyz. It never fails: rules may read the other Prometheus."""
        if not self._condition.problem and self._since is None:
            return passes("not queried yet")
        rules = self._routed[0].every if self._routed else ()
        waiting = [each for each in rules if self._reads(each) and not self._covers(each)]
        lacking = [f"{preset}: {targets}" for preset, targets in self._lacking.items()]
        if not waiting and lacking:
            return degraded(
                f"lacks targets ({'; '.join(lacking)}), so these presets read --prometheus-url "
                "(annotate the pods, or trust their namespaces: see `presets scrape --help`)"
            )
        if not waiting:
            return self.client.reachability.check()
        consequence = "have no value" if self.alone else "read --prometheus-url"
        affected = f"{len(waiting)} rules that would read it {consequence}"
        if self._since is None:
            since = utc(self._condition.began)
            return degraded(f"does not respond since {since} (see the log); {affected}")
        full = max(map(self._full, waiting))
        return degraded(f"has data since {utc(self._since)}; {affected} until {utc(full)} at most")

    async def run(self, changed: Callable[[], None]) -> NoReturn:
        """Observe it until cancelled; call `changed` when the source of a rule changes."""
        while True:
            await asyncio.sleep(_INTERVAL)
            await self.observe()
            if self._routed and self._routed[1] != tuple(map(self._source, self._routed[0].every)):
                changed()

    async def observe(self) -> None:
        """Update since when it has data, and of which presets; log a change."""
        try:
            started = await self.client.started()
        except errors.BackendError as error:
            # This request waits while Prometheus applies discovered changes: a pod with 10 000
            # ports lets it wait for seconds. Queries do not.
            answers = self._since is not None and await self._answers()
            self._failures = 0 if answers else self._failures + 1
            if self._failures >= _FAILURES:
                self._since = None
                if self._condition.becomes("does not respond"):
                    log.warning("the embedded Prometheus does not respond: %s", error)
            return
        self._failures = 0
        # While it did not respond, it may not have scraped either.
        since = self._clock() if self._condition.problem else started
        if self._since is None or since > self._since:
            self._since = since
            log.info("the embedded Prometheus has data since %s", utc(since))
        self._condition.becomes("")
        due = max(self._settled_at, self._detected + _DETECTION)
        if self._other is not None and self._clock() >= due:
            await self._detect(self._other)

    async def _answers(self) -> bool:
        with contextlib.suppress(errors.BackendError, TimeoutError):
            await asyncio.wait_for(self.client.query("vector(1)"), _INTERVAL)
            return True
        return False

    async def _detect(self, other: Prometheus) -> None:
        self._detected = self._clock()
        try:
            report = detect.analyze(await detection.observe(self.client, self._lister))
        except errors.BackendError as error:
            log.info("the exporters in the embedded Prometheus are not known: %s", error)
            return
        self._fitting = detect.absences(report, self._fitting, time.monotonic())
        await self._compare(other)

    async def _compare(self, other: Prometheus) -> None:
        """Choose the presets that read it: those of which it has as many targets as `other`."""
        before, now = {*self._complete}, self._clock()
        names: dict[str, set[str]] = {preset: set() for preset in self._fitting}
        for rule in self._routed[0].all if self._routed else ():
            if rule.pinned_series and rule.preset in names:
                names[rule.preset].add(rule.pinned_series)
        try:
            own = await _targets(self.client, {name for those in names.values() for name in those})
        except errors.BackendError:
            return
        read = {
            preset: max(sorted(those), key=lambda name: own.get(name, 0))
            for preset, those in names.items()
            if those
        }
        others: Mapping[str, int] = {}
        with contextlib.suppress(errors.BackendError):  # then it serves what it can
            others = await _targets(other, {*read.values()})
        lacking = {
            preset: f"{own.get(name, 0)} of {others[name]}"
            for preset, name in read.items()
            if others.get(name, 0) > own.get(name, 0)
        }
        self._complete |= {preset: now for preset in read if preset not in lacking}
        self._complete = {
            preset: last
            for preset, last in self._complete.items()
            if preset in read and now - last < _LACKING
        }
        self._lacking = {
            preset: targets for preset, targets in lacking.items() if preset not in self._complete
        }
        if {*self._complete} != before:
            log.info(
                "presets that read the embedded Prometheus: %s", ", ".join(self._complete) or "none"
            )

    def _source(self, rule: CompiledRule) -> str:
        """Return the source that a rule reads now."""
        if not self._reads(rule):
            return rule.config.source
        if self.alone:
            return rule.config.source if self._covers(rule) else FILLING
        return EMBEDDED if self._covers(rule) else rule.config.source

    def _reads(self, rule: CompiledRule) -> bool:
        """Return whether a rule reads the Prometheus in the pod once that has its data."""
        if self.alone:
            return rule.config.source in {DEFAULT, teams.SOURCE}
        return rule.preset in self._complete

    def _covers(self, rule: CompiledRule) -> bool:
        return self._since is not None and self._clock() >= self._full(rule)

    def _full(self, rule: CompiledRule) -> float:
        """Return when it has data of the whole window of a rule's query, in Unix seconds."""
        return self._settled_at + window.seconds(rule.config.metrics_query)

    @property
    def _settled_at(self) -> float:
        """When all targets have been scraped twice, in Unix seconds."""
        return (self._since or 0.0) + self._settling

    def reason(self, query: str) -> str:
        """Return why a query has no result, to follow the word Prometheus."""
        if self._since is None:
            return "in the pod does not respond"
        full = self._settled_at + window.seconds(query)
        return (
            f"in the pod has data since {utc(self._since)}, and the query reads "
            f"{window.seconds(query):g} s: it has values from {utc(full)} on"
        )


async def _targets(prometheus: Prometheus, names: Collection[str]) -> Mapping[str, int]:
    """Return how many targets have each of these series. Raises BackendError."""
    if not names:
        return {}
    series = promql.of_names(sorted(names))
    query = f"count by (__name__) (count by (__name__, instance) ({series}))"
    result = await prometheus.query(query)
    return {each.labels["__name__"]: int(each.value) for each in result.samples}


class Filling:
    """Client of rules whose windows are not full yet: each query fails with the reason."""

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    async def query(self, query: str, reduce: Reduce | None = None) -> QueryResult:  # noqa: ARG002
        """Raise WindowNotFull."""
        raise errors.WindowNotFull(self._embedded.reason(query))

    def for_team(self, team: Team | None) -> Filling:  # noqa: ARG002
        """Return this client."""
        return self
