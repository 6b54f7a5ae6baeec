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
from tools.real import prometheus

_SCRAPED = [(scheme, copies) for scheme in SCHEMES[:2] for copies in (1, 2)]


def test_the_table_has_every_exporter() -> None:
    assert {each.stem for each in ACCELERATED.iterdir()} == {*ACCELERATORS}


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize(("scheme", "copies"), _SCRAPED)
async def test_presets_provide_the_expected_values_and_no_others(scheme, copies, tmp_path):
    expected = {
        metric: _values(metric, "pods") | _values(metric, "nodes")
        for metric in METRICS
        if any(metric in values for values in _objects("pods", "nodes").values())
    }
    objects = api.manifests(_objects("pods"), _objects("nodes"))

    with worlds.exporters(ACCELERATED) as port:
        config = worlds.accelerators(ACCELERATORS, port, scheme=scheme, copies=copies)
        with prometheus.run(tmp_path, config) as server:
            worlds.wait_until_scraped(server, len(ACCELERATORS) * copies)
            async with api.serving(tmp_path, server.url, objects, ["--preset=auto"]) as served:
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


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize("name", ACCELERATORS)
async def test_an_exporter_alone_is_detected_and_taken_for_no_other(name, tmp_path):
    case = ACCELERATORS[name]
    with worlds.exporters(ACCELERATED) as port:
        config = worlds.accelerators([name], port, scheme=SCHEMES[0])
        with prometheus.run(tmp_path, config) as server:
            worlds.wait_until_scraped(server, 1)
            detected = await api.detected(server.url)

    [exporter] = detected.exporters
    assert detected.presets == (case["preset"],)
    assert {f"{each}_current" for each in exporter.metrics} == _metrics(case)
    assert [each.reason for each in exporter.findings] == case.get("findings", [])
    assert not detected.provisional


def _metrics(case: Mapping[str, Any]) -> set[str]:
    return {metric for kind in ("pods", "nodes") for each in case[kind].values() for metric in each}
