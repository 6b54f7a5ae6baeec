"""Predictions for random HPAs, compared with the real controller.

`HPAS=600 pytest tests/rules/hpa/test_controller.py` compares more.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tools.control_plane.plane import ControlPlane
from tools.hpa import controller, random_objects

HPAS = int(os.environ.get("HPAS", "15"))


@pytest.fixture(scope="module")
def bed(control_plane: ControlPlane) -> Iterator[controller.Testbed]:
    with controller.running(control_plane) as running:
        yield running


def test_predictions_of_random_hpas_come_true(bed: controller.Testbed) -> None:
    cases = [random_objects.case(number, controller.SEED) for number in range(HPAS)]

    result = bed.compare(cases)

    assert result.wrong == [], str(result)
    assert result.numbers >= 6, str(result)


AVERAGE, VALUE = {"averageValue": "5"}, {"value": "5"}


def test_predictions_of_negative_values_sums_and_half_a_behavior_come_true(
    bed: controller.Testbed,
) -> None:
    quick = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    given = [
        ("Object", AVERAGE, ["-3"], None),
        ("Object", VALUE, ["-3"], None),
        ("Object", AVERAGE, ["-3500m"], quick),
        ("Object", AVERAGE, ["30"], {"scaleUp": {"selectPolicy": "Min"}}),
        ("External", AVERAGE, ["-3"], None),
        ("External", AVERAGE, ["-1m"], quick),
        ("External", VALUE, ["-3"], quick),
        ("External", AVERAGE, ["10", "-9"], quick),
        ("External", AVERAGE, ["-9", "10"], quick),
        ("External", AVERAGE, ["374m", "374m"], quick),
        ("External", VALUE, ["4", "4"], {"scaleUp": {"stabilizationWindowSeconds": 0}}),
    ]
    cases = [
        random_objects.chosen(1000 + number, kind, target, *values, behavior=behavior)
        for number, (kind, target, values, behavior) in enumerate(given)
    ]

    result = bed.compare(cases)

    assert result.wrong == [], str(result)
    assert result.numbers + result.ranges + result.late == len(given), str(result)
    assert result.numbers >= 6, str(result)
