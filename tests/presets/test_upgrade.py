"""A fleet is upgraded to the next exporter generation while the server runs.

A real Prometheus scrapes both generations. With both presets named, each pod always has one value;
with detected presets, a value is never wrong, and is back after the next detection.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from tests.presets import switches
from tests.presets.switches import NODES
from tools.presets import api
from tools.presets.table import GOLDEN
from tools.real import prometheus

_REQUESTS = 60
"""Requests for all pods after each change, 50 ms apart: a scrape is due every 500 ms."""
OLD, NEW = "c4-4.8.2-default", "d1-4.9.0-renamed"


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("scheme", ["exported", "honored"])
async def test_every_pod_keeps_its_value_during_the_upgrade(scheme: str, tmp_path: Path) -> None:
    presets = ("--preset=gpu-dcgm49", "--preset=gpu-dcgm")
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    expected = switches.expected("duty_cycle_current")
    with switches.fleet(tmp_path, scheme, OLD) as server:
        async with api.serving(tmp_path, server.url, objects, presets) as served:
            for node in (None, *NODES):
                if node is not None:
                    switches.switch(tmp_path, node, NEW)
                for _ in range(_REQUESTS):
                    assert await switches.every_pod(served, "duty_cycle_current") == expected
                    await asyncio.sleep(0.05)

            assert not server.query("DCGM_FI_DEV_GPU_UTIL")
            assert server.query("DCGM_FI_DEV_GPU_UTIL_RATIO")


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("rolling", [False, True], ids=["at once", "rolling"])
async def test_detected_presets_follow_an_upgrade(rolling: bool, tmp_path: Path) -> None:
    async with switches.upgraded(tmp_path, OLD, NEW, relist=1) as (server, watches):
        for count, node in enumerate(NODES, 1):
            switches.switch(tmp_path, node, NEW)
            if rolling or node == NODES[-1]:
                ended = partial(scraped, server, count)
                await asyncio.to_thread(prometheus.wait_for, ended, "the node is scraped")
                await asyncio.gather(*map(switches.complete, watches.values()))
        # All values are there, and no series has the old name: they are those of the new presets.
        assert not server.query("DCGM_FI_DEV_GPU_UTIL")

    assert not [wrong for watch in watches.values() for wrong in watch.wrong]


def scraped(server: prometheus.Prometheus, count: int) -> bool:
    """Return whether as many nodes have the new exporter, and no other series."""
    new = server.query("DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    old = server.query("DCGM_FI_DEV_GPU_TEMP")
    nodes = [{each["metric"]["instance"] for each in found} for found in (new, old)]
    return list(map(len, nodes)) == [count, len(NODES) - count]
