"""`python -m tests.presets.switches`: upgrade exporters while the adapter detects its presets.

A real Prometheus scrapes a fleet of three nodes, whose exporters change to the next generation, all
at once or node by node. One adapter was started before the first exporter, and one after it. Each
is asked for every metric of all pods, once a second; the longest time without a value is printed.
Fails if a value is wrong, or missing for longer than one relist and one scrape.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from pathlib import Path

from tools.presets import api, worlds
from tools.presets.api import Api
from tools.presets.table import EXPORTERS, GOLDEN, METRICS, VARIANTS
from tools.real import prometheus

NODES = tuple(worlds.EXPORTER_PODS)
GENERATIONS = (
    "b1-dcgm-1x",
    "b3-compat-oldns",
    "b2-compat-2x",
    "c1-2.4.0-default",
    "c2-2.6-default",
    "c3-3.6.1-dcp",
    "c4-4.8.2-default",
    "c5-4.8.3-hostname",
    "d1-4.9.0-renamed",
)
"""Variants of dcgm-exporter from old to new."""
RELIST, SCRAPE = 60.0, 0.5
STEP = 1.0
"""Seconds between two requests for the same values; a gap is measured that much too long."""
STARTS = ("before", "after")
"""When an adapter starts, compared with the first exporter."""
_PAUSE = 5
"""Steps between two nodes, and with all values until a switch counts as complete."""
_NAMESPACES = sorted({pod.split("/")[0] for pod in GOLDEN["pods"]})


def metrics(variant: str) -> frozenset[str]:
    """Return the metrics that the presets of a variant provide."""
    return VARIANTS[variant].metrics & METRICS.keys()


def expected(metric: str) -> Mapping[str, Fraction]:
    """Return the value of each pod, which is the same with every generation."""
    key = METRICS[metric].golden
    return {
        pod: Fraction(round(values[key] * 1000), 1000) for pod, values in GOLDEN["pods"].items()
    }


@contextlib.contextmanager
def fleet(folder: Path, scheme: str, variant: str = "") -> Iterator[prometheus.Prometheus]:
    """Scrape three nodes in one job; without `variant`, no node has an exporter yet."""
    (folder / "exporters").mkdir(parents=True)
    if variant:
        for node in NODES:
            switch(folder, node, variant)
    with worlds.exporters(folder / "exporters") as port:
        config = json.loads(worlds.configuration({f"{node}.prom": scheme for node in NODES}, port))
        interval = f"{SCRAPE * 1000:.0f}ms"
        config["global"] = {"scrape_interval": interval, "scrape_timeout": interval}
        with prometheus.run(folder, json.dumps(config)) as server:
            if variant:
                prometheus.wait_for(partial(all_up, server), "the fleet is scraped")
            yield server


def switch(folder: Path, node: str, variant: str) -> None:
    """Replace the exposition of a node atomically, so that no scrape reads half a file."""
    fresh = folder / "fresh.prom"
    fresh.write_text((EXPORTERS / variant / f"{node}.prom").read_text())
    fresh.replace(folder / "exporters" / f"{node}.prom")


def all_up(server: prometheus.Prometheus) -> bool:
    """Return whether all nodes are scraped."""
    result = server.query("count(up == 1)")
    return bool(result) and int(result[0]["value"][1]) == len(NODES)


@dataclass(kw_only=True)
class Watch:
    """What an adapter answers for the metrics in `watched`; all but `kept` may be missing."""

    served: Api
    watched: frozenset[str]
    kept: frozenset[str]
    wrong: list[str] = field(default_factory=list)
    longest: float = 0.0
    """Longest time in seconds between two values of a pod, if it was missing in between."""
    _last: dict[tuple[str, str], float] = field(default_factory=dict)
    _missing: set[tuple[str, str]] = field(default_factory=set)

    async def ask(self) -> bool:
        """Request all values once; return whether none is missing."""
        for metric in sorted(self.watched):
            now = time.monotonic()
            values = await every_pod(self.served, metric)
            for pod, value in expected(metric).items():
                if values.get(pod, value) != value:
                    self.wrong.append(f"{metric} of {pod}: {values[pod]} instead of {value}")
                if metric in self.kept:
                    self._note((metric, pod), now, there=pod in values)
        return not self._missing

    def _note(self, key: tuple[str, str], now: float, *, there: bool) -> None:
        if key in self._missing or not there:
            self.longest = max(self.longest, now - self._last.setdefault(key, now))
        if there:
            self._last[key] = now
            self._missing.discard(key)
        else:
            self._missing.add(key)


async def complete(watch: Watch) -> None:
    """Ask until no value is missing; the limit only ends a test that would wait forever."""
    async with asyncio.timeout(60):
        while not await watch.ask():  # noqa: ASYNC110 - the adapter says so over HTTP only
            await asyncio.sleep(0.1)


async def every_pod(served: Api, metric: str) -> dict[str, Fraction]:
    """Return the value of each pod in all namespaces."""
    results = await asyncio.gather(*(served.pods(each, metric) for each in _NAMESPACES))
    return {
        f"{namespace}/{name}": value
        for namespace, values in zip(_NAMESPACES, results, strict=True)
        for name, value in values.items()
    }


@contextlib.asynccontextmanager
async def upgraded(
    folder: Path, old: str, new: str, scheme: str = "exported", *, relist: float = RELIST
) -> AsyncIterator[tuple[prometheus.Prometheus, Mapping[str, Watch]]]:
    """Run a fleet of the generation `old`, and a watch of an adapter for each of STARTS.

    All values have been there once.
    """
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    flags = (f"--metrics-relist-interval={relist}s", "--preset=auto")
    kept = metrics(old) & metrics(new)
    async with contextlib.AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, fleet(folder, scheme))
        watches = {}
        for start in STARTS:
            own = folder / start
            own.mkdir()
            served = await stack.enter_async_context(api.serving(own, server.url, objects, flags))
            watches[start] = Watch(served=served, watched=metrics(old) | metrics(new), kept=kept)
            if start == "before":
                for node in NODES:
                    switch(folder, node, old)
                waiting = partial(all_up, server), "the fleet is scraped"
                await asyncio.to_thread(prometheus.wait_for, *waiting)
        for start, watch in watches.items():
            await complete(watch)
            watches[start] = Watch(served=watch.served, watched=watch.watched, kept=kept)
            assert not watch.wrong, watch.wrong[:3]
        yield server, watches


async def measure(old: str, new: str, *, rolling: bool) -> Mapping[str, Watch]:
    """Upgrade a fleet from `old` to `new` and watch until all values are there for a while."""
    with tempfile.TemporaryDirectory() as created:
        folder = Path(created)
        async with upgraded(folder, old, new) as (_, watches):
            for node in NODES:
                switch(folder, node, new)
                if rolling:
                    await _ask(watches, _PAUSE)
            complete = 0
            while complete < _PAUSE:
                complete = complete + 1 if await _ask(watches, 1) else 0
            return watches


async def _ask(watches: Mapping[str, Watch], steps: int) -> bool:
    """Ask all adapters once per STEP; return whether no value was missing in the last one."""
    for _ in range(steps):
        due = time.monotonic() + STEP
        there = await asyncio.gather(*(watch.ask() for watch in watches.values()))
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return all(there)


def report(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Print a row for each switch and adapter; yield what is wrong."""
    limit = RELIST + SCRAPE + STEP
    print(f"allowed: {limit:g} s, one relist, one scrape and the step between two requests")
    print(f"{'from':<20}{'to':<20}{'switch':<10}{'adapter':<9}{'wrong':>6}{'missing s':>11}")
    for (old, new), rolling in itertools.product(pairs, (False, True)):
        for start, watch in asyncio.run(measure(old, new, rolling=rolling)).items():
            row = f"{old:<20}{new:<20}{'rolling' if rolling else 'at once':<10}{start:<9}"
            print(f"{row}{len(watch.wrong):>6}{watch.longest:>11.1f}", flush=True)
            yield from (f"{row}{text}" for text in watch.wrong[:1])
            if watch.longest > limit:
                yield f"{row}missing for {watch.longest:.1f} s"


def main() -> int:
    """Print the table of all switches; return 1 if a value was wrong or missing for too long."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.presets.switches", description=main.__doc__
    )
    parser.add_argument("generations", nargs="*", default=GENERATIONS, help="from old to new")
    arguments = parser.parse_args()
    problems = list(report(itertools.pairwise(arguments.generations)))
    print("\n".join(problems) or "no value was wrong, and none was missing for longer")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
