"""A fleet is upgraded to the next exporter generation, node by node, while the server runs.

A real Prometheus scrapes both generations; no request fails, and each pod always has one value.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from tests.presets import api, worlds
from tests.presets.worlds import EXPORTERS, GOLDEN
from tests.real import prometheus

_REQUESTS = 60
"""Requests for all pods after each change, 50 ms apart: a scrape is due every 500 ms."""
NODES = tuple(worlds.EXPORTER_PODS)
OLD, NEW = "c4-4.8.2-default", "d1-4.9.0-renamed"
EXPECTED = {pod: Fraction(values["duty_cycle_current"]) for pod, values in GOLDEN["pods"].items()}


@contextmanager
def fleet(folder: Path, scheme: str) -> Iterator[prometheus.Prometheus]:
    """Scrape three nodes in one job; the exporter of a node serves the file of its name."""
    (folder / "exporters").mkdir()
    for node in NODES:
        switch(folder, node, OLD)
    with worlds.exporters(folder / "exporters") as port:
        scraped = {f"{node}.prom": scheme for node in NODES}
        config = json.loads(worlds.configuration(scraped, port))
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
        with prometheus.run(folder, json.dumps(config)) as server:
            prometheus.wait_for(partial(all_up, server), "the fleet is scraped")
            yield server


def switch(folder: Path, node: str, variant: str) -> None:
    """Replace the exposition of a node atomically, so that no scrape reads half a file."""
    fresh = folder / "fresh.prom"
    fresh.write_text((EXPORTERS / variant / f"{node}.prom").read_text())
    fresh.replace(folder / "exporters" / f"{node}.prom")


def all_up(server: prometheus.Prometheus) -> bool:
    result = server.get("/api/v1/query", query="count(up == 1)")["result"]
    return bool(result) and int(result[0]["value"][1]) == len(NODES)


async def every_pod(served: api.Api) -> dict[str, Fraction]:
    namespaces = sorted({pod.split("/")[0] for pod in EXPECTED})
    results = await asyncio.gather(
        *(served.pods(namespace, "duty_cycle_current") for namespace in namespaces)
    )
    return {
        f"{namespace}/{name}": value
        for namespace, values in zip(namespaces, results, strict=True)
        for name, value in values.items()
    }


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("scheme", ["exported", "honored"])
async def test_every_pod_keeps_its_value_during_the_upgrade(scheme: str, tmp_path: Path) -> None:
    presets = ("--preset=gpu-dcgm49", "--preset=gpu-dcgm")
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    with fleet(tmp_path, scheme) as server:
        async with api.serving(tmp_path, server.url, objects, presets) as served:
            for node in (None, *NODES):
                if node is not None:
                    switch(tmp_path, node, NEW)
                for _ in range(_REQUESTS):
                    assert await every_pod(served) == EXPECTED
                    await asyncio.sleep(0.05)
            old = server.get("/api/v1/query", query="count(DCGM_FI_DEV_GPU_UTIL)")["result"]
            new = server.get("/api/v1/query", query="count(DCGM_FI_DEV_GPU_UTIL_RATIO)")["result"]

    assert not old
    assert new
