"""Compares the answers of a backend over public configurations with those of Prometheus 2.

All samples have fixed times and all queries are evaluated at one of them, so equal backends give
equal answers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.rules.lint import configurations, live
from tools.presets import worlds
from tools.presets.table import EXPORTERS
from tools.presets.worlds import World
from tools.real import prometheus
from tools.real.prometheus import Client

Answers = Mapping[str, tuple[int, tuple[object, ...]]]
"""Configuration and path -> status and values."""
_AGO = 90.0
"""Seconds before now for which queries are evaluated: VictoriaMetrics changes the time of queries
that are less than 30 s old."""
_BEFORE = 611
"""Seconds of samples before that. They fill the windows of most queries: VictoriaMetrics does not
extrapolate rates. An odd number, so that no sample is at the border of a window, where Prometheus 3
and VictoriaMetrics leave it out."""


def answers(client: Client, folder: Path) -> Answers:
    """Write the series of all configurations that start, and return what is answered."""
    accepted = {
        name: config.rules
        for name in configurations.NAMES
        if (config := configurations.checked(name)).rules is not None
    }
    at = (time.time() - _AGO) // 60 * 60  # subqueries are evaluated at multiples of their step
    count = configurations.write_series(client, accepted.values(), at=at, before=_BEFORE)
    query = {"query": f'count({{__name__=~".+"}} == {_BEFORE}) >= {count}', "time": str(at)}
    prometheus.wait_for(
        lambda: client.get("/api/v1/query", nocache="1", **query)["result"],
        f"all {count} series are found",
        seconds=30,
    )
    found: dict[str, tuple[int, tuple[object, ...]]] = {}
    for name, rules in accepted.items():
        observed, _ = asyncio.run(live.observe(rules, client.url, folder, at=at))
        for number, rule in enumerate(observed):
            found |= {f"{name}[{number}] {path}": each for path, each in rule.documents.items()}
    return found


def differences(expected: Answers, found: Answers) -> Sequence[str]:
    """Return a line for each answer that differs."""
    return [
        f"{key}: {found.get(key, 'not listed')}, Prometheus 2: {expected.get(key, 'not listed')}"
        for key in sorted({*expected, *found})
        if found.get(key) != expected.get(key)
    ]


def exposition(world: World) -> list[str]:
    """Return the samples of a world as Prometheus stores them, in the text format."""
    lines = []
    for file in worlds.files(world.variant):
        exposed = (EXPORTERS / file).read_text().splitlines()
        for labels, value in prometheus.samples(exposed):
            stored = worlds.stored(labels, file, world.scheme)
            name = stored.pop("__name__")
            pairs = ",".join(f"{label}={json.dumps(text)}" for label, text in stored.items())
            lines.append(f"{name}{{{pairs}}} {value}")
    return lines
