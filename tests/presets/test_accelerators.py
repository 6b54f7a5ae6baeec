"""What is detected of exporters of accelerators that are not NVIDIA's, and the values of presets.

A real Prometheus scrapes all of them, once and twice, with and without honor_labels; the values are
read by the HTTPS API, with the presets that the adapter detects itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from tools.presets import api, worlds
from tools.presets.table import ACCELERATED, ACCELERATORS, METRICS, SCHEMES

_SCRAPED = [(scheme, copies) for scheme in SCHEMES[:2] for copies in (1, 2)]


@pytest.fixture(scope="module")
def servers(real_servers, tmp_path_factory):
    """Yield a Prometheus for each exporter alone, and one for all exporters in each of _SCRAPED."""
    with worlds.exporters(ACCELERATED) as port:
        configs = {
            name: worlds.accelerators([name], port, scheme=SCHEMES[0]) for name in ACCELERATORS
        } | {
            (scheme, copies): worlds.accelerators(ACCELERATORS, port, scheme=scheme, copies=copies)
            for scheme, copies in _SCRAPED
        }
        with worlds.scraping(tmp_path_factory.mktemp("prometheus"), configs) as running:
            yield running


def test_the_table_has_every_exporter() -> None:
    assert {each.stem for each in ACCELERATED.iterdir()} == {*ACCELERATORS}


@pytest.mark.parametrize("scraped", _SCRAPED, ids=str)
async def test_presets_provide_the_expected_values_and_no_others(scraped, servers, tmp_path):
    expected = {
        metric: _values(metric, "pods") | _values(metric, "nodes")
        for metric in METRICS
        if any(metric in values for values in _objects("pods", "nodes").values())
    }
    objects = api.manifests(_objects("pods"), _objects("nodes"))

    url = servers[scraped].url
    async with api.serving(tmp_path, url, objects, ["--preset=auto"]) as served:
        found = {
            metric: await served.pods("ml", metric) | await served.nodes(metric)
            for metric in expected
        }

    assert found == expected


def _objects(*kinds: str) -> dict[str, dict[str, float]]:
    """Return the expected values of each object of these kinds."""
    return {
        name: values
        for case in ACCELERATORS.values()
        for kind in kinds
        for name, values in case[kind].items()
    }


def _values(metric: str, kind: str) -> dict[str, Fraction]:
    return {
        name.removeprefix("ml/"): Fraction(round(values[metric] * 1000), 1000)
        for name, values in _objects(kind).items()
        if metric in values
    }


@pytest.mark.parametrize("name", ACCELERATORS)
async def test_an_exporter_alone_is_detected_and_taken_for_no_other(name, servers):
    case = ACCELERATORS[name]

    detected = await api.detected(servers[name].url)

    [exporter] = detected.exporters
    assert detected.presets == (case["preset"],)
    assert {f"{each}_current" for each in exporter.metrics} == _metrics(case)
    assert [each.reason for each in exporter.findings] == case.get("findings", [])
    assert not detected.provisional


def _metrics(case: Mapping[str, Any]) -> set[str]:
    return {metric for kind in ("pods", "nodes") for each in case[kind].values() for metric in each}
