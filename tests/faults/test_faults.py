"""Twelve faults on a real control plane: the last line that each tool shows names the fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

import pytest

from tests.control_plane.plane import ControlPlane
from tests.faults import seeds, testbed
from tests.faults.seeds import FAULTS, Fault
from tests.faults.testbed import Outputs


@pytest.fixture(scope="module")
def observed(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[Fault, Outputs]:
    with testbed.running(control_plane, tmp_path_factory.mktemp("faults")) as bed:
        return dict(bed.observe(FAULTS))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.title)
def test_the_last_line_of_each_tool_names_the_fault(
    observed: Mapping[Fault, Outputs], fault: Fault
) -> None:
    outputs = {tool: line for tool, line in asdict(observed[fault]).items() if line}

    assert outputs.keys() >= {"answer", "kubectl", "doctor"}
    for tool, line in outputs.items():
        assert all(word in line for word in fault.words), f"{tool}: {line}"
    for tool in ("answer", "kubectl"):
        assert f"{fault.reason}: " in outputs[tool]


def test_a_healthy_autoscaler_is_no_failure(observed: Mapping[Fault, Outputs]) -> None:
    """Each fault was the only failure; so nothing that is healthy is reported as one."""
    doubled = {"rights", "url", "credentials"}
    for fault, outputs in observed.items():
        assert outputs.doctor.startswith(
            "2 failures, " if fault.place in doubled else "1 failure, "
        ), outputs.doctor


def test_there_are_twelve_faults() -> None:
    seeded = {fault.reason for fault in seeds.FAULTS}
    assert len(seeded) == 12
