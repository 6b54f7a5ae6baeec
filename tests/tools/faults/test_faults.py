"""Faults on a real control plane are named: `python -m tools.faults` seeds all of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tools.control_plane.plane import ControlPlane
from tools.faults import page, testbed
from tools.faults.seeds import FAULTS, Fault
from tools.faults.testbed import Outputs

QUICK = tuple(each for each in FAULTS if each.quick)


@pytest.fixture(scope="module")
def observed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[Fault, Outputs]:
    with testbed.running(control_plane, tmp_path_factory.mktemp("faults")) as bed:
        return dict(bed.observe(QUICK))


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.title)
def test_the_condition_or_the_last_line_of_doctor_names_cause_and_cure(
    observed: Mapping[Fault, Outputs], fault: Fault
) -> None:
    outputs = observed[fault]

    assert fault.is_named(outputs.condition, outputs.doctor), outputs
    assert outputs.explain.startswith("VERDICT: default/web keeps ")


def test_a_healthy_autoscaler_is_no_failure(observed: Mapping[Fault, Outputs]) -> None:
    """Each fault was the only failure; so nothing that is healthy is reported as one."""
    for outputs in observed.values():
        assert outputs.doctor.startswith("1 failure, "), outputs.doctor


def test_the_page_has_a_row_of_each_of_the_45_faults() -> None:
    rows = page.table()

    assert len(rows) == 45
    assert list(rows) == [fault.title for fault in FAULTS]
    for fault in FAULTS:
        assert ("| neither: " in rows[fault.title]) == bool(fault.why_not)
