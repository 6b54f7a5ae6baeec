"""Configurations as people have them, in our own words: only real faults give a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapter.commands import check_inputs
from adapter.settings import Source
from rules import ruleset
from rules.lint import check

FOLDER = Path(__file__).with_name("configurations")
CONFIGURATIONS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
FAULTS = {
    "dcgm-rate-of-gauge": ["computes a rate of DCGM_FI_DEV_GPU_UTIL, which is a gauge"],
    "dropped-group-by": ["drops the label namespace, pod"],
    "helm-default-values": ["the chart adds six rules that match nearly every series"],
    "kafka-lag-as-rate": ["computes a rate of kafka_consumergroup_lag, which is a gauge"],
    "kube-prometheus-configmap": ["has no effect, because metrics.k8s.io is not served"],
    "pod-without-namespace": ["maps a label to pods but none to namespaces"],
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_gives_a_warning_for_each_real_fault_only(name: str) -> None:
    inputs = check_inputs.read([Source(kind="config", name=str(FOLDER / f"{name}.yaml"))])
    loaded = ruleset.compile(inputs.parsed)

    problems = (*inputs.problems, *loaded.problems, *check.warnings(loaded))

    expected = FAULTS.get(name, [])
    assert len(problems) == len(expected), "\n".join(map(str, problems))
    assert all(part in str(found) for part, found in zip(expected, problems, strict=True))


def test_there_are_thirty_configurations() -> None:
    assert len(CONFIGURATIONS) >= 30
    assert FAULTS.keys() <= set(CONFIGURATIONS)
