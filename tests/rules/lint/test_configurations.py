"""Configurations as people have them, in our own words: only real faults give a warning.

What `check` says about the files is compared with what a real Prometheus makes of them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import settings
from adapter.api.groups import custom, external
from adapter.app import rule_files
from adapter.commands import check_inputs, check_live
from adapter.settings import Source
from rules import ruleset
from rules.errors import ConfigError, Problem
from rules.lint import check
from rules.ruleset import RuleSet
from tests.presets import api
from tests.presets.api import Api
from tests.real import prometheus
from tests.real.prometheus import Prometheus

FOLDER = Path(__file__).with_name("configurations")
SERIES = FOLDER.with_suffix(".prom")
"""Series for every configuration, with labels as exporters have them."""
CONFIGURATIONS = sorted(file.stem for file in FOLDER.glob("*.yaml"))
_DROPPED = "aggregates without <<.GroupBy>> and drops the label"
_UNMATCHED = "does not use <<.LabelMatchers>>"
_NO_QUERY = "has no metricsQuery: every request for the rule's metrics fails"
FAULTS = {
    "agents-without-aggregation": [_DROPPED],
    "cadvisor-old-labels": [_DROPPED],
    "cpu-by-fixed-labels": [_UNMATCHED],
    "dcgm-rate-of-gauge": ["computes a rate of DCGM_FI_DEV_GPU_UTIL, which is a gauge"],
    "dropped-group-by": ["drops the label namespace, pod"],
    "everything-and-external-queue": ["matches nearly every series", "names every series"],
    "external-maximum-of-everything": [_UNMATCHED],
    "external-ratio-of-totals": [_UNMATCHED],
    "flink-lag-trend": [_UNMATCHED],
    "gpu-average-by-service": [_DROPPED],
    "gpu-by-template-without-query": [_NO_QUERY],
    "helm-default-values": ["the chart adds six rules that match nearly every series"],
    "ingress-by-path-without-matchers": [_UNMATCHED, _UNMATCHED, _UNMATCHED],
    "kafka-lag-as-rate": ["computes a rate of kafka_consumergroup_lag, which is a gauge"],
    "llm-delay-of-everything": [_DROPPED],
    "mqtt-connections-without-namespace": ["maps a label to pods but none", _UNMATCHED],
    "pod-without-namespace": ["maps a label to pods but none to namespaces"],
    "sessions-external-by-template": [_UNMATCHED],
}
REFUSED = {
    "gpu-average-with-query-in-name": [_NO_QUERY, "unknown key 'metricsQuery'"],
    "quotes-in-quotes": ["invalid YAML"],
}
"""Files with which the server does not start."""
FIXED_NAMESPACE = frozenset({"mesh-latency-of-one-namespace"})
"""Files whose queries name one namespace; its values in other namespaces are intended."""
BROAD = frozenset({"everything-and-external-queue", "helm-default-values"})
"""Files that serve whatever there is."""
LIVE_FAULTS = {
    "agents-without-aggregation": ["returns no value of task_backlog_now of pods for 1 object"],
    "cadvisor-old-labels": ["returns no value of orders of pods for 1 object in namespace n"],
    "dropped-group-by": ["returns no value of rps of pods for 1 object in namespace n"],
    "gpu-average-by-service": ["returns no value of gpu_average of pods for 1 object"],
    "gpu-by-template-without-query": ["fails for dcgm_gpu_busy of pods: "],
    "llm-delay-of-everything": ["returns no value of llm_delay_seconds of namespaces"],
    "mqtt-connections-without-namespace": ["fails for mqtt_connections of pods: rules[1]"],
    "pod-without-namespace": ["fails for queue_jobs of pods: rules[0]"],
}
"""Faults that make requests fail; rates of gauges have values, but wrong ones."""


def loaded(name: str) -> tuple[RuleSet, list[Problem]]:
    """Return the rules of a configuration, and everything that `check` says about them."""
    inputs = check_inputs.read([Source(kind="config", name=str(FOLDER / f"{name}.yaml"))])
    rules = ruleset.compile(inputs.parsed)
    return rules, [*inputs.problems, *rules.problems, *check.warnings(rules)]


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_gives_a_warning_for_each_real_fault_only(name: str) -> None:
    try:
        _, problems = loaded(name)
        assert name not in REFUSED
    except ConfigError as error:
        problems = list(error.problems)

    expected = REFUSED.get(name) or FAULTS.get(name, [])
    assert len(problems) == len(expected), "\n".join(map(str, problems))
    assert all(part in str(found) for part, found in zip(expected, problems, strict=True))


@pytest.fixture(scope="module")
def server(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as running:
        now = time.time()
        # A rate needs several samples; those of the next minutes keep the series alive.
        for age in range(60, -300, -15):
            lines = SERIES.read_text().splitlines()
            running.put(*(f"{each.rpartition(' ')[0]} {90 - age}" for each in lines), at=now - age)
        yield running


@pytest.mark.parametrize("name", sorted({*CONFIGURATIONS} - REFUSED.keys()))
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


@pytest.mark.parametrize("name", sorted({*CONFIGURATIONS} - REFUSED.keys() - BROAD))
async def test_a_live_server_does_what_check_says(
    server: Prometheus, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, problems = loaded(name)
    monkeypatch.setattr(rule_files, "load", lambda _: rules)
    objects = api.manifests(["n/a"], ["m"])
    async with api.serving(tmp_path, server.url, objects, ("--config=x",)) as served:
        listed = [path for each in (custom, external) for path in await _listed(served, each.NAME)]
        listed = [path for path in listed if not _is_shared(rules, path)]
        without, elsewhere = [], []
        for path in listed:
            if not await _has_value(served, path.format(namespace="n")):
                without.append(path)
            if "{namespace}" in path and await _has_value(served, path.format(namespace="other")):
                elsewhere.append(path)

    faults = " ".join(LIVE_FAULTS.get(name, ()))
    metrics = {path.rpartition("/")[2] for path in without}
    assert all(f" {metric} of" in faults for metric in metrics), without
    assert bool(metrics) == bool(faults)
    if not metrics and name not in FIXED_NAMESPACE:
        assert bool(elsewhere) == any(_UNMATCHED in str(each) for each in problems), elsewhere


def _is_shared(rules: RuleSet, path: str) -> bool:
    """Return whether every namespace is to have the same values of an external metric."""
    return "external" in path and any(
        each.config.resources.namespaced is False for each in rules.external
    )


async def _listed(served: Api, group: str) -> list[str]:
    """Return the paths of the metrics in the discovery of a group, for the object `a`."""
    root = f"/apis/{group}/v1beta1"
    _, document = await served.get(root)
    names = [each["name"].rpartition("/") for each in document["resources"]]
    of_objects = {metric for resource, _, metric in names if resource not in {"", "namespaces"}}
    paths = []
    for resource, _, metric in names:
        if not resource:
            paths.append(f"{root}/namespaces/{{namespace}}/{metric}")
        elif resource == "namespaces":  # a rule may map it only to select series
            paths += [f"{root}/namespaces/n/metrics/{metric}"] if metric not in of_objects else []
        elif resource == "nodes":
            paths.append(f"{root}/nodes/m/{metric}")
        else:
            paths.append(f"{root}/namespaces/{{namespace}}/{resource}/a/{metric}")
    return paths


async def _has_value(served: Api, path: str) -> bool:
    status, document = await served.get(path)
    return status == 200 and bool(document["items"])


def test_thirty_configurations_have_a_public_source() -> None:
    table = (FOLDER / "README.md").read_text()
    sources = re.findall(r"^\| `([\w-]+)` \| [\w.-]+/[\w.-]+ \| `[^`]+` \|", table, re.MULTILINE)

    assert len(set(sources)) >= 30
    assert set(sources) <= set(CONFIGURATIONS)
    assert {*FAULTS, *REFUSED, *LIVE_FAULTS, *BROAD} <= set(CONFIGURATIONS)
