"""A fleet is upgraded to the next exporter generation while the server runs.

A real Prometheus scrapes both generations. With both presets named, each pod always has one value;
with detected presets, a value is never wrong, and is back after the next detection.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.presets.test_variants import every_pod, expected_pods
from tools.presets import api, worlds
from tools.presets.api import Api
from tools.presets.table import EXPORTERS, GOLDEN, METRICS, VARIANTS
from tools.real import prometheus

_REQUESTS = 10
"""Requests for all pods before the first change, and after the scrape that shows a change."""
OLD, NEW = "c4-4.8.2-default", "d1-4.9.0-renamed"
NODES = tuple(worlds.EXPORTER_PODS)
KEPT = VARIANTS[OLD].metrics & VARIANTS[NEW].metrics & METRICS.keys()
"""Metrics of which each pod has a value before and after the upgrade."""
WATCHED = (VARIANTS[OLD].metrics | VARIANTS[NEW].metrics) & METRICS.keys()


@contextlib.contextmanager
def fleet(folder: Path, scheme: str) -> Iterator[prometheus.Prometheus]:
    """Scrape three nodes in one job each two seconds; none has an exporter yet."""
    (folder / "exporters").mkdir(parents=True)
    with worlds.exporters(folder / "exporters", dated=False) as port:
        config = worlds.configuration({f"{node}.prom": scheme for node in NODES}, port)
        with prometheus.run(folder, config) as server:
            yield server


def switch(folder: Path, node: str, variant: str) -> None:
    """Replace the exposition of a node atomically, so that no scrape reads half a file."""
    fresh = folder / "fresh.prom"
    fresh.write_text((EXPORTERS / variant / f"{node}.prom").read_text())
    fresh.replace(folder / "exporters" / f"{node}.prom")


def start(folder: Path, server: prometheus.Prometheus) -> None:
    """Give each node an exporter of the old generation, and wait until all are scraped."""
    for node in NODES:
        switch(folder, node, OLD)
    worlds.wait_until_scraped(server, len(NODES))


def failed_scrapes(server: prometheus.Prometheus, since: float) -> list[dict[str, Any]]:
    """Return the nodes of which a scrape failed after `since`, a time of time.monotonic()."""
    return server.query(f"min_over_time(up[{(time.monotonic() - since) * 1000 + 1:.0f}ms]) == 0")


@dataclass(kw_only=True)
class Watch:
    """What an adapter answers for the metrics in WATCHED."""

    served: Api
    wrong: list[str] = field(default_factory=list)

    async def complete(self) -> None:
        """Ask until each metric in KEPT had all values once.

        The limit only ends a test that would wait forever.
        """
        lacking = {*KEPT}
        async with asyncio.timeout(90):
            while lacking:
                for metric in sorted(WATCHED):
                    if await self._ask(metric):
                        lacking.discard(metric)
                await asyncio.sleep(0.1)

    async def _ask(self, metric: str) -> bool:
        """Request the values of a metric once; return whether none is missing."""
        values = await every_pod(self.served, metric)
        expected = expected_pods(metric)
        for pod in expected.keys() & values.keys():
            if values[pod] != expected[pod]:
                wrong = f"{metric} of {pod}: {values[pod]} instead of {expected[pod]}"
                self.wrong.append(wrong)
        return expected.keys() <= values.keys()


@contextlib.asynccontextmanager
async def upgraded(folder: Path) -> AsyncIterator[tuple[prometheus.Prometheus, list[Watch]]]:
    """Run a fleet of the old generation, and two adapters: one started before it, one after it.

    All values have been there once.
    """
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    flags = ("--metrics-relist-interval=1s", "--preset=auto")
    async with contextlib.AsyncExitStack() as stack:
        server = await asyncio.to_thread(stack.enter_context, fleet(folder, "exported"))
        watches = []
        for when in ("before", "after"):
            own = folder / when
            own.mkdir()
            served = await stack.enter_async_context(api.serving(own, server.url, objects, flags))
            watches.append(Watch(served=served))
            if when == "before":
                await asyncio.to_thread(start, folder, server)
        for watch in watches:
            await watch.complete()
            assert not watch.wrong, watch.wrong[:3]
        yield server, watches


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("scheme", ["exported", "honored"])
async def test_every_pod_keeps_its_value_during_the_upgrade(scheme: str, tmp_path: Path) -> None:
    presets = ("--preset=gpu-dcgm49", "--preset=gpu-dcgm")
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    expected = expected_pods("duty_cycle_current")
    with fleet(tmp_path, scheme) as server:
        start(tmp_path, server)
        started = time.monotonic()
        async with api.serving(tmp_path, server.url, objects, presets) as served:
            for count, node in enumerate((None, *NODES)):
                if node is not None:
                    switch(tmp_path, node, NEW)
                left = _REQUESTS
                async with asyncio.timeout(90):
                    while left:
                        left -= scraped(server, count)
                        values = await every_pod(served, "duty_cycle_current")
                        assert {**expected, **values} == expected
                        # A scrape that times out, as on a busy machine, ends series.
                        assert values == expected or failed_scrapes(server, started)

            assert not server.query("DCGM_FI_DEV_GPU_UTIL")


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("rolling", [False, True], ids=["at once", "rolling"])
async def test_detected_presets_follow_an_upgrade(rolling: bool, tmp_path: Path) -> None:
    async with upgraded(tmp_path) as (server, watches):
        for count, node in enumerate(NODES, 1):
            switch(tmp_path, node, NEW)
            if rolling or node == NODES[-1]:
                ended = partial(scraped, server, count)
                await asyncio.to_thread(prometheus.wait_for, ended, "the node is scraped")
                await asyncio.gather(*(each.complete() for each in watches))
        # All values are there, and no series has the old name: they are those of the new presets.
        assert not server.query("DCGM_FI_DEV_GPU_UTIL")

    assert not [wrong for watch in watches for wrong in watch.wrong]


def scraped(server: prometheus.Prometheus, count: int) -> bool:
    """Return whether as many nodes have the new exporter, and no other series."""
    new = server.query("DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    old = server.query("DCGM_FI_DEV_GPU_TEMP")
    nodes = [{each["metric"]["instance"] for each in found} for found in (new, old)]
    return list(map(len, nodes)) == [count, len(NODES) - count]
