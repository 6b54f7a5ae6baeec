"""A fleet moves from one exporter generation to the next, node by node, under a running server.

Old and new are scraped at once by a real Prometheus; no question may fail, and each pod has one
value throughout, from the exporter that its node has.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest

from tests.presets import api, worlds
from tests.presets.worlds import EXPORTERS, GOLDEN
from tests.real import prometheus

NODES = tuple(worlds.EXPORTER_PODS)
OLD, NEW = "c4-4.8.2-default", "d1-4.9.0-renamed"
TRUTH = {pod: Fraction(truth["duty_cycle_current"]) for pod, truth in GOLDEN["pods"].items()}


@contextmanager
def fleet(folder: Path, scheme: str) -> Iterator[prometheus.Prometheus]:
    """Three nodes under one job; what a node's exporter speaks is the file of its name."""
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
    """Replace what the node's exporter says, at once, so that no scrape sees half a file."""
    fresh = folder / "fresh.prom"
    fresh.write_text((EXPORTERS / variant / f"{node}.prom").read_text())
    fresh.replace(folder / "exporters" / f"{node}.prom")


def all_up(server: prometheus.Prometheus) -> bool:
    found = server.get("/api/v1/query", query="count(up == 1)")["result"]
    return bool(found) and int(found[0]["value"][1]) == len(NODES)


async def every_pod(served: api.Api) -> dict[str, Fraction]:
    namespaces = sorted({pod.split("/")[0] for pod in TRUTH})
    found = await asyncio.gather(
        *(served.pods(namespace, "duty_cycle_current") for namespace in namespaces)
    )
    return {
        f"{namespace}/{name}": value
        for namespace, values in zip(namespaces, found, strict=True)
        for name, value in values.items()
    }


@pytest.mark.parametrize("scheme", ["exported", "honored"])
async def test_every_pod_keeps_its_value_while_the_nodes_switch(
    scheme: str, tmp_path: Path
) -> None:
    presets = ("--preset=gpu-dcgm49", "--preset=gpu-dcgm")
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    asked = 0
    with fleet(tmp_path, scheme) as server:
        async with api.serving(tmp_path, server.url, objects, presets) as served:
            for node in (None, *NODES):
                if node is not None:
                    switch(tmp_path, node, NEW)
                until = time.monotonic() + 3
                while time.monotonic() < until:
                    assert await every_pod(served) == TRUTH
                    asked += 1
                    await asyncio.sleep(0.05)
            old = server.get("/api/v1/query", query="count(DCGM_FI_DEV_GPU_UTIL)")["result"]
            new = server.get("/api/v1/query", query="count(DCGM_FI_DEV_GPU_UTIL_RATIO)")["result"]

    assert asked > 40
    assert not old
    assert new
