"""Loads the rules: connects to the Prometheus servers, detects presets, and follows changes."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from adapter import telemetry
from adapter.clients import sources
from adapter.clients.prometheus import Prometheus
from adapter.server.app.host import Host
from adapter.server.app.reload import Reload
from adapter.server.series.detected_presets import DetectedPresets
from adapter.settings import AUTO
from rules import findings
from rules.document.sources import DEFAULT
from rules.lint import check
from rules.ruleset import RuleSet

log = logging.getLogger(__name__)

_DETECTION_TIMEOUT = 10.0
"""Seconds; the server listens only once it has its rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The rules, and the Prometheus servers that they name."""

    rules: Reload
    clients: Mapping[str, Prometheus]
    """By source: that of the flags, and those of `sources` in the rules files."""
    presets: DetectedPresets | None
    """None without --preset=auto."""

    def follow(self, host: Host, adopt: Callable[[RuleSet], Awaitable[None]]) -> None:
        """Start to pass changed rules to `adopt`."""
        host.start("reload", self.rules.run(adopt))
        if self.presets is not None:
            host.start("detection", self.presets.run(self.rules.request))


async def load(host: Host) -> Loaded:
    """Load the rules. Raises ConfigError, and StartError if a client cannot be created."""
    settings = host.settings
    prometheus = await host.connect(
        sources.connect_prometheus(settings.prometheus, host.requests, held=host.held)
    )
    host.check("prometheus", prometheus.reachability.check)
    given = settings.rules.sources or (AUTO,)
    presets = DetectedPresets(
        prometheus,
        interval=settings.relist.interval,
        meter=telemetry.DetectionMetrics(host.registry),
    )
    if AUTO in given:
        await presets.detect(_DETECTION_TIMEOUT)
    rules = Reload(given, lambda: presets.names, meter=telemetry.ReloadMetrics(host.registry))
    named = await host.connect(
        sources.connect_sources(rules.ruleset.sources, host.requests, held=host.held)
    )
    for name, client in named.items():
        host.check(f"prometheus-{name}", client.reachability.check)
    for problem in (*rules.ruleset.problems, *check.warnings(rules.ruleset)):
        log.warning("%s", findings.for_log(problem))
    host.check("reload", rules.check)
    if AUTO in given:
        host.check("presets", presets.check)
    return Loaded(
        rules=rules,
        clients={DEFAULT: prometheus, **named},
        presets=presets if AUTO in given else None,
    )
