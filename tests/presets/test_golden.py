"""Values of every preset for every exporter generation, compared with golden.json.

A real Prometheus scrapes each generation in each scheme; the values are read by the HTTPS API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tools.presets import api, worlds
from tools.presets.table import GOLDEN, METRICS, PRESETS, SCHEMES, VARIANTS
from tools.presets.worlds import World
from tools.real.prometheus import Prometheus

CASES = [
    (World(variant, scheme), preset)
    for variant, recorded in VARIANTS.items()
    for preset in recorded.presets
    for scheme in SCHEMES
]


SPECIAL_CASES: Mapping[str, tuple[World, Mapping[str, Any]]] = {
    f"{case['variant']}/{scheme}-{case['preset']}": (World(case["variant"], scheme), case)
    for case in GOLDEN["cases"]
    for scheme in ([case["scheme"]] if "scheme" in case else ["exported", "honored"])
}


@pytest.fixture(scope="module")
def prometheuses(
    real_servers: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[World, Prometheus]]:
    folders = {
        World(variant, scheme): tmp_path_factory.mktemp("prometheus")
        for variant in VARIANTS
        for scheme in SCHEMES
    }
    folders |= {world: tmp_path_factory.mktemp("prometheus") for world, _ in SPECIAL_CASES.values()}
    with worlds.scraping(folders) as servers:
        yield servers


@pytest.mark.parametrize(("world", "preset"), CASES, ids=str)
async def test_a_preset_provides_the_expected_value_of_every_pod_and_node(
    world: World, preset: str, prometheuses: Mapping[World, Prometheus], tmp_path: Path
) -> None:
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    flags = (f"--preset={preset}",)

    async with api.serving(tmp_path, prometheuses[world].url, objects, flags) as served:
        pods = {metric: await _pods(served, metric) for metric in PRESETS[preset]}
        nodes = await served.nodes("duty_cycle_current")

    recorded = VARIANTS[world.variant]
    assert pods == {
        metric: _expected_pods(metric) if metric in recorded.metrics else {}
        for metric in PRESETS[preset]
    }
    expected = world.scheme in recorded.schemes and "duty_cycle_current" in PRESETS[preset]
    assert nodes == (_expected_nodes() if expected else {})


@pytest.mark.parametrize("case", SPECIAL_CASES)
async def test_a_special_case_has_its_expected_values(
    case: str, prometheuses: Mapping[World, Prometheus], tmp_path: Path
) -> None:
    world, expected = SPECIAL_CASES[case]
    objects = api.manifests(expected["pods"], GOLDEN["nodes"])
    flags = (f"--preset={expected['preset']}",)

    async with api.serving(tmp_path, prometheuses[world].url, objects, flags) as served:
        pods = {pod: await _values(served, pod, values) for pod, values in expected["pods"].items()}
        nodes = {
            node: {metric: (await served.nodes(metric)).get(node) for metric in values}
            for node, values in expected["nodes"].items()
        }

    assert (pods, nodes) == (_round_all(expected["pods"]), _round_all(expected["nodes"]))


async def _values(served: api.Api, pod: str, metrics: Iterable[str]) -> dict[str, Fraction | None]:
    namespace, name = pod.split("/")
    return {metric: (await served.pods(namespace, metric)).get(name) for metric in metrics}


def _round_all(
    expected: Mapping[str, Mapping[str, float | None]],
) -> dict[str, dict[str, Fraction | None]]:
    return {
        name: {metric: None if value is None else _round(value) for metric, value in values.items()}
        for name, values in expected.items()
    }


async def _pods(served: api.Api, metric: str) -> dict[str, Fraction]:
    return {
        f"{namespace}/{name}": value
        for namespace in sorted({pod.split("/")[0] for pod in GOLDEN["pods"]})
        for name, value in (await served.pods(namespace, metric)).items()
    }


def _expected_pods(metric: str) -> dict[str, Fraction]:
    key = METRICS[metric].golden
    return {pod: _round(values[key]) for pod, values in GOLDEN["pods"].items()}


def _expected_nodes() -> dict[str, Fraction]:
    return {
        node: _round(values["dcgm_gpu_utilization_avg"]) for node, values in GOLDEN["nodes"].items()
    }


def _round(value: float) -> Fraction:
    return Fraction(round(value * 1000), 1000)
