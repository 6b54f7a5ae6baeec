"""Loads the rules, and replaces them when files, ConfigMaps or the detected presets change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import NoReturn

from adapter import telemetry
from adapter.clients import sources
from adapter.clients.prometheus import Prometheus
from adapter.files import FileWatcher
from adapter.server.app.host import Host
from adapter.server.series.detected_presets import REFRESH, DetectedPresets
from adapter.server.series.embedded import Embedded
from adapter.server.teams.rules import InUse, TeamRules
from adapter.settings import AUTO, RulesSource, rule_files
from rules import findings, teams
from rules.connection import PrometheusConnection
from rules.document.sources import DEFAULT, EMBEDDED, FILLING
from rules.errors import ConfigError
from rules.exporters import detect
from rules.findings import Finding, State, degraded, in_file, passes
from rules.lint import check
from rules.ruleset import RuleSet

log = logging.getLogger(__name__)

_INTERVAL = 10.0
"""Seconds between looks at the files: the kubelet takes a minute to bring a changed ConfigMap."""
_DETECTION_TIMEOUT = 10.0
"""Seconds; the server listens only once it has its rules."""
_KEPT = "the previous rules stay in use"
_NO_TEAMS = InUse(version=0, rulesets={})


async def load(host: Host) -> tuple[Reload, dict[str, Prometheus], Embedded | None]:
    """Return the rules, the clients of Prometheus by source, and which rules read that in the pod.

    Raises ConfigError, and StartError if a client cannot be created.
    """
    settings = host.settings
    prometheus = await host.connections.enter_async_context(
        sources.connect_prometheus(settings.prometheus, host.requests, held=host.held)
    )
    host.check("prometheus", prometheus.reachability.check)
    clients = {DEFAULT: prometheus}
    embedded = await _embedded(host, clients)
    alone = embedded is not None and embedded.alone
    given = settings.rules.sources or (AUTO,)
    presets = DetectedPresets(
        prometheus,
        interval=settings.relist.interval,
        refresh_interval=settings.embedded.interval if alone else REFRESH,
        meter=telemetry.DetectionMetrics(host.registry),
    )
    if AUTO in given:
        await presets.detect(_DETECTION_TIMEOUT)

    def detected() -> tuple[str, ...]:
        return detect.in_order((*presets.names, *(embedded.presets if embedded else ())))

    rules = Reload(
        given,
        detected,
        route=embedded.route if embedded else None,
        meter=telemetry.ReloadMetrics(host.registry),
    )
    named = await host.connections.enter_async_context(
        sources.connect_sources(rules.ruleset.sources, host.requests, held=host.held)
    )
    for name, client in named.items():
        host.check(f"prometheus-{name}", client.reachability.check)
    for problem in (*rules.ruleset.problems, *check.warnings(rules.ruleset)):
        log.warning("%s", findings.for_log(problem))
    host.check("reload", rules.check)
    if AUTO in given:
        host.check("presets", presets.check)
        host.start("detection", presets.run(rules.request))
    if embedded is not None:
        host.start("embedded Prometheus", embedded.run(rules.request))
    return rules, {**clients, **named}, embedded


async def _embedded(host: Host, clients: dict[str, Prometheus]) -> Embedded | None:
    """Connect the Prometheus in the pod, if there is one, and add its sources to `clients`."""
    settings = host.settings
    if (url := settings.embedded.url) is None:
        return None
    alone = settings.prometheus.url == url
    client = clients[DEFAULT]
    if not alone:
        connection = PrometheusConnection(url=url, timeout=settings.prometheus.timeout)
        client = clients[EMBEDDED] = await host.connections.enter_async_context(
            sources.connect_prometheus(connection, host.requests, name=EMBEDDED, held=host.held)
        )
    clients[FILLING] = client
    other = None if alone else clients[DEFAULT]
    embedded = Embedded(client, interval=settings.embedded.interval, other=other)
    host.check("prometheus-embedded", embedded.check)
    await embedded.observe()
    return embedded


class Reload:
    """The rules of `sources`, where `auto` means `detected()`; `adopt` gets new ones once valid.

    `route` returns rules with the Prometheus that each reads now, the same object if unchanged.

    The files may be replaced while they are read: what does not load is read again when it changes.
    """

    def __init__(
        self,
        sources: tuple[RulesSource, ...],
        detected: Callable[[], tuple[str, ...]] = tuple,
        *,
        route: Callable[[RuleSet], RuleSet] | None = None,
        meter: telemetry.ReloadMetrics | None = None,
    ) -> None:
        """Load the rules. Raises ConfigError."""
        self._sources = sources
        self._route = route or (lambda ruleset: ruleset)
        self._detected = detected
        self._teams: TeamRules | None = None
        self._presets = detected()
        """The detected presets that are loaded, or about to be."""
        self._meter = meter
        self._failure = ""
        """Why the last load failed."""
        self._reported = ""
        """The same, until rules that loaded are in use."""
        self._requested = asyncio.Event()
        self._fixed: dict[str, object] = {}
        """Keys of the rules files whose first value counts until a restart, and that value."""
        self._watcher = FileWatcher(
            *rule_files.paths(sources), load=self._load, failure=ConfigError, fallback=_KEPT
        )
        self._report()

    def add(self, team_rules: TeamRules) -> None:
        """Follow the rules of teams, too."""
        self._teams = team_rules

    @property
    def ruleset(self) -> RuleSet:
        """The rules that were loaded last, without those of teams."""
        return self._watcher.value

    @property
    def routed(self) -> RuleSet:
        """The same, each with the Prometheus that it reads now."""
        return self._route(self.ruleset)

    def check(self) -> Finding:
        """Report the files for /readyz. Never raises: the previous rules are served."""
        if self._reported:
            return degraded(f"{self._reported}; {_KEPT}")
        return passes("the files are unchanged since they were loaded")

    def request(self) -> None:
        """Look at the files, the detected presets and the ConfigMaps soon."""
        self._requested.set()

    async def run(
        self, adopt: Callable[[RuleSet], Awaitable[None]], adopted: RuleSet | None = None
    ) -> NoReturn:
        """Look at the files until cancelled, and pass changed rules to `adopt`.

        `adopted` are those of `routed` that are in use, if there is a route.
        """
        version = _NO_TEAMS.version
        merged, adopted = self.ruleset, adopted or self.ruleset
        with self._on_signal():
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL):
                        await self._requested.wait()
                self._requested.clear()
                before, self._presets = self._presets, self._detected()
                detected = self._presets != before
                # In a thread: large files take seconds.
                loaded = await asyncio.to_thread(self._watcher.poll, changed=detected)
                in_use = _NO_TEAMS if self._teams is None else self._teams.in_use
                if loaded or in_use.version != version:
                    version = in_use.version
                    merged = await asyncio.to_thread(teams.merge, self.ruleset, in_use.rulesets)
                if (routed := self._route(merged)) is not adopted:
                    await adopt(routed)
                    adopted = routed
                    if self._teams is not None:
                        self._teams.adopted(version)
                if loaded and not detected:
                    await self._log(self.ruleset)
                self._report()

    async def _log(self, ruleset: RuleSet) -> None:
        log.info("the files of the rules have changed: %d rules are in use", len(ruleset.all))
        # In a thread: each rule takes 30 ms.
        for problem in (*ruleset.problems, *await asyncio.to_thread(check.warnings, ruleset)):
            log.warning("%s", findings.for_log(problem))

    def _load(self) -> RuleSet:
        try:
            ruleset = rule_files.load(self._sources, self._presets)
            self._check_fixed(ruleset)
        except ConfigError as error:
            self._failure = _first_error(error)
            raise
        self._failure = ""
        return ruleset

    def _check_fixed(self, ruleset: RuleSet) -> None:
        """Raise ConfigError for a change of what is connected or registered at the start."""
        fixed = {"sources": ruleset.sources, "resourceRules": bool(ruleset.resource_rules)}
        changed = [
            key for key, value in fixed.items() if self._fixed.setdefault(key, value) != value
        ]
        if changed:
            message = "a change takes effect after a restart of the adapter"
            raise ConfigError([in_file(State.FAILURE, message, path=each) for each in changed])

    def _report(self) -> None:
        self._reported = self._failure
        if self._meter is not None:
            self._meter.successful.set(not self._reported)

    @contextlib.contextmanager
    def _on_signal(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        try:
            loop.add_signal_handler(signal.SIGHUP, self.request)
        except (ValueError, RuntimeError):  # not in the main thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            ignore_signal()


def ignore_signal() -> None:
    """Ignore SIGHUP, which would end the process, while no reload can follow it."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _first_error(error: ConfigError) -> str:
    """Return the first error in one line, without the warnings; the log has all of them."""
    first, *others = (each for each in error.problems if each.state is State.FAILURE)
    line = str(first).partition("\n")[0]
    return f"{line}; {len(others)} more in the log" if others else line
