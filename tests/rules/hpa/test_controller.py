"""Predictions for random HPAs, compared with the real controller."""

from __future__ import annotations

from tests.control_plane.plane import ControlPlane
from tests.rules.hpa import controller, random_objects


def test_predictions_of_random_hpas_come_true(control_plane: ControlPlane) -> None:
    cases = [random_objects.case(number, controller.SEED) for number in range(15)]

    with controller.running(control_plane) as bed:
        result = bed.compare(cases, rounds=1)

    assert result.wrong == [], str(result)
    assert result.numbers >= 6, str(result)
