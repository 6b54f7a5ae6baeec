"""Configurations as people have them: `check` says what a live server then does, and no more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from adapter import settings
from adapter.cli.commands import check_live
from rules.findings import Finding
from rules.ruleset import CompiledRule
from tests.rules.lint import configurations, live
from tests.rules.lint.configurations import FOLDER, NAMES, SOURCES, Checked
from tests.rules.lint.live import Observed
from tools.real import prometheus
from tools.real.prometheus import Prometheus

FINDINGS = json.loads((FOLDER / "findings.json").read_text())
"""Configuration -> the beginning of each problem that `check` reports without Prometheus."""
REFUSED = (
    "chart-values-as-rules",
    "comma-after-braces",
    "dcgm-query-below-name",
    "picker-external",
    "rules-as-mapping",
    "vllm-misindented",
)
"""Those with which no server starts."""
ACCEPTED = [name for name in NAMES if name not in REFUSED]


def test_each_configuration_has_a_public_source_or_is_listed_as_our_own() -> None:
    public, own = SOURCES["public"], SOURCES["own"]

    assert sorted([*public, *own]) == NAMES
    assert len(public) >= 30
    assert all("/" in each["repository"] and each["path"] for each in public.values())
    assert set(FINDINGS) <= set(NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_gives_a_warning_for_each_real_fault_only(name: str) -> None:
    config = configurations.checked(name)
    found = [f"{each.where.path}: {each.fact}".removeprefix(": ") for each in config.problems]

    assert (config.rules is None) == (name in REFUSED)
    expected = FINDINGS.get(name, [])
    assert len(found) == len(expected), "\n".join(found)
    assert all(one.startswith(part) for part, one in zip(expected, found, strict=True))


@pytest.fixture(scope="module")
def server(empty_prometheus: Prometheus) -> Prometheus:
    accepted = (configurations.checked(name).rules for name in ACCEPTED)
    configurations.write_series(empty_prometheus, accepted)
    return empty_prometheus


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_live_server_does_what_check_says(server: Prometheus, tmp_path: Path, name: str) -> None:
    config = configurations.checked(name)

    found, usage = asyncio.run(live.observe(config.rules, server.url, tmp_path))

    for rule, each in zip(config.every_rule, found, strict=True):
        _assert_predicted(config, rule, each)
    assert usage == ({"pods": 1, "nodes": 1} if config.rules.resource_rules else {})
    _, problems = asyncio.run(
        check_live.report(config.rules, settings.PrometheusSettings(url=server.url))
    )
    assert _failing(problems) == [
        rule.config.where.path
        for rule, each in zip(config.every_rule, found, strict=True)
        if configurations.observed(each) & {"no value", "error"}
    ]


def test_prometheus_has_no_api_below_its_own_metrics(server: Prometheus) -> None:
    api = "api/v1/query?query=1"

    assert prometheus.status(f"{server.url}/{api}") == 200
    assert prometheus.status(f"{server.url}/metrics/{api}") == 404


def _assert_predicted(config: Checked, rule: CompiledRule, each: Observed) -> None:
    predicted = configurations.predictions(config.of_rule(rule))
    observed = configurations.observed(each)
    place = f"{rule.config.where}: {each}, predicted {predicted}"
    assert observed <= set().union(*predicted), f"not reported: {place}"
    seen = observed | configurations.remarkable(each)
    assert all(seen & alternatives for alternatives in predicted), f"false alarm: {place}"


def _failing(problems: Iterable[Finding]) -> list[str]:
    """Return the rules of which `check --prometheus-url` says that requests fail."""
    phrases = ("returns no value of", "fails for", "no live series has the labels")
    paths = [
        each.where.path.rpartition(".")[0]
        for each in problems
        if any(phrase in each.fact for phrase in phrases)
    ]
    return list(dict.fromkeys(paths))
