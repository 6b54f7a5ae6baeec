"""The presets, fed with every exporter generation's own format, against the truth of golden.json.

Each generation is scraped by a real Prometheus in each way, and asked through the HTTPS API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.presets import api, worlds
from tests.presets.table import LACKING, METRICS, NODES, PRESETS, VARIANTS
from tests.presets.worlds import GOLDEN, SCHEMES, World
from tests.real.prometheus import Prometheus

CASES = [
    (World(variant, scheme), preset)
    for variant, presets in VARIANTS.items()
    for preset in presets
    for scheme in SCHEMES
]


HARD: Mapping[str, tuple[World, Mapping[str, Any]]] = {
    f"{case['variant']}/{scheme}-{case['preset']}": (World(case["variant"], scheme), case)
    for case in GOLDEN["cases"]
    for scheme in ([case["scheme"]] if "scheme" in case else ["exported", "honored"])
}


@pytest.fixture(scope="module")
def prometheuses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[World, Prometheus]]:
    folders = {
        World(variant, scheme): tmp_path_factory.mktemp("prometheus")
        for variant in VARIANTS
        for scheme in SCHEMES
    }
    folders |= {world: tmp_path_factory.mktemp("prometheus") for world, _ in HARD.values()}
    with worlds.scraping(folders) as servers:
        yield servers


@pytest.mark.parametrize(("world", "preset"), CASES, ids=str)
async def test_preset_gives_the_truth_of_every_pod_and_node(
    world: World, preset: str, prometheuses: Mapping[World, Prometheus], tmp_path: Path
) -> None:
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    flags = (f"--preset={preset}",)

    async with api.serving(tmp_path, prometheuses[world].url, objects, flags) as served:
        found = {metric: await _pods(served, metric) for metric in PRESETS[preset]}
        nodes = await served.nodes("duty_cycle_current")

    assert found == {
        metric: _truth(metric) if metric not in LACKING.get(world.variant, ()) else {}
        for metric in PRESETS[preset]
    }
    told = world.scheme in NODES.get(world.variant, SCHEMES)
    given = told and "duty_cycle_current" in PRESETS[preset]
    assert nodes == (_truth_of_nodes() if given else {})


@pytest.mark.parametrize("case", HARD)
async def test_hard_case_gives_its_truth(
    case: str, prometheuses: Mapping[World, Prometheus], tmp_path: Path
) -> None:
    world, truth = HARD[case]
    objects = api.manifests(truth["pods"], GOLDEN["nodes"])
    flags = (f"--preset={truth['preset']}",)

    async with api.serving(tmp_path, prometheuses[world].url, objects, flags) as served:
        pods = {pod: await _known(served, pod, values) for pod, values in truth["pods"].items()}
        nodes = {
            node: {metric: (await served.nodes(metric)).get(node) for metric in values}
            for node, values in truth["nodes"].items()
        }

    assert (pods, nodes) == (_all_thousandths(truth["pods"]), _all_thousandths(truth["nodes"]))


async def _known(served: api.Api, pod: str, metrics: Iterable[str]) -> dict[str, Fraction | None]:
    namespace, name = pod.split("/")
    return {metric: (await served.pods(namespace, metric)).get(name) for metric in metrics}


def _all_thousandths(
    truth: Mapping[str, Mapping[str, float | None]],
) -> dict[str, dict[str, Fraction | None]]:
    return {
        name: {
            metric: None if value is None else _thousandths(value)
            for metric, value in values.items()
        }
        for name, values in truth.items()
    }


async def _pods(served: api.Api, metric: str) -> dict[str, Fraction]:
    return {
        f"{namespace}/{name}": value
        for namespace in sorted({pod.split("/")[0] for pod in GOLDEN["pods"]})
        for name, value in (await served.pods(namespace, metric)).items()
    }


def _truth(metric: str) -> dict[str, Fraction]:
    key = METRICS[metric].golden
    return {pod: _thousandths(truth[key]) for pod, truth in GOLDEN["pods"].items()}


def _truth_of_nodes() -> dict[str, Fraction]:
    return {
        node: _thousandths(truth["dcgm_gpu_utilization_avg"])
        for node, truth in GOLDEN["nodes"].items()
    }


def _thousandths(value: float) -> Fraction:
    return Fraction(round(value * 1000), 1000)
