"""Configurations as people have them, in our own words: only real faults give a warning.

What `check` says about the files is compared with what a real Prometheus makes of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import settings
from adapter.commands import check_inputs, check_live
from adapter.settings import Source
from rules import ruleset
from rules.errors import Problem
from rules.lint import check
from rules.ruleset import RuleSet
from tests.real import prometheus
from tests.real.prometheus import Prometheus

FOLDER = Path(__file__).with_name("configurations")
SERIES = FOLDER.with_suffix(".prom")
"""Series for every configuration, with labels as exporters have them."""
CONFIGURATIONS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
FAULTS = {
    "dcgm-rate-of-gauge": ["computes a rate of DCGM_FI_DEV_GPU_UTIL, which is a gauge"],
    "dropped-group-by": ["drops the label namespace, pod"],
    "helm-default-values": ["the chart adds six rules that match nearly every series"],
    "kafka-lag-as-rate": ["computes a rate of kafka_consumergroup_lag, which is a gauge"],
    "pod-without-namespace": ["maps a label to pods but none to namespaces"],
}
LIVE_FAULTS = {
    "dropped-group-by": ["returns no value of rps of pods for 1 object in namespace n"],
    "pod-without-namespace": ["fails for queue_jobs of pods: rules[0]"],
}
"""Faults that make requests fail; rates of gauges have values, but wrong ones."""


def loaded(name: str) -> tuple[RuleSet, list[Problem]]:
    """The rules of a configuration, and everything that `check` says about them."""
    inputs = check_inputs.read([Source(kind="config", name=str(FOLDER / f"{name}.yaml"))])
    rules = ruleset.compile(inputs.parsed)
    return rules, [*inputs.problems, *rules.problems, *check.warnings(rules)]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_gives_a_warning_for_each_real_fault_only(name: str) -> None:
    _, problems = loaded(name)

    expected = FAULTS.get(name, [])
    assert len(problems) == len(expected), "\n".join(map(str, problems))
    assert all(part in str(found) for part, found in zip(expected, problems, strict=True))


@pytest.fixture(scope="module")
def server(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as running:
        now = time.time()
        for age in (60, 30, 15, 1):  # a rate needs several samples
            lines = SERIES.read_text().splitlines()
            running.put(*(f"{each.rpartition(' ')[0]} {90 - age}" for each in lines), at=now - age)
        yield running


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_real_prometheus_confirms_what_check_says(server: Prometheus, name: str) -> None:
    rules, _ = loaded(name)
    flags = settings.Prometheus(url=server.url)

    lines, problems = asyncio.run(check_live.report(rules, flags))

    expected = LIVE_FAULTS.get(name, [])
    assert len(problems) == len(expected), "\n".join(map(str, problems))
    assert all(part in str(found) for part, found in zip(expected, problems, strict=True))
    of_rules = [line for line in lines if not line.startswith(" ")]
    answers = [line for line in lines if line.startswith(" ")]
    queries = 4 if rules.resource_rules else 0
    assert len(of_rules) == len(rules.rules) + len(rules.external) + queries
    assert len(answers) + len(problems) >= len(of_rules) - queries


def test_there_are_thirty_configurations() -> None:
    assert len(CONFIGURATIONS) >= 30
    assert {*FAULTS, *LIVE_FAULTS} <= set(CONFIGURATIONS)
