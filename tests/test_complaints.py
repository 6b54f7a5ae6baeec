"""The ten most frequent complaints about prometheus-adapter, each with what a user sees here.

All tests but that of the manifests ask a running server in front of a real Prometheus.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter import __main__ as program
from tests.control_plane.build import Programs
from tests.manifests.test_manifests import MANIFESTS, Built
from tests.presets import api
from tests.presets.api import GROUP, Api
from tests.real import prometheus
from tests.real.prometheus import Prometheus

PLAIN = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
LABELS = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
NOBODY = "http://127.0.0.1:9"


def rule(series: str, *, query: str = PLAIN, **keys: str) -> str:
    more = "".join(f"\n  {key}: {value}" for key, value in keys.items())
    return f"- seriesQuery: '{series}'\n  resources: {LABELS}\n  metricsQuery: '{query}'{more}\n"


@pytest.fixture(scope="module")
def scraped(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as server:
        yield server


@asynccontextmanager
async def serving(folder: Path, url: str, *rules: str) -> AsyncIterator[Api]:
    pods = api.manifests(["default/a", "default/b"])
    async with api.serving(folder, url, pods, rules="rules:\n" + "".join(rules)) as served:
        yield served


async def causes(served: Api, metric: str, name: str = "a") -> list[dict[str, Any]]:
    """Return the causes of a 404."""
    status, document = await served.get(f"{GROUP}/namespaces/default/pods/{name}/{metric}")
    assert status == 404, document
    found: list[dict[str, Any]] = document["details"]["causes"]
    return found


async def test_1_nobody_can_tell_which_stage_failed(scraped: Prometheus, tmp_path: Path) -> None:
    scraped.put('labelled{ns="default",k8s_pod="a"} 1', 'dropped{namespace="default",pod="a"} 1')
    scraped.put('present{namespace="default",pod="b"} 1')
    async with serving(
        tmp_path,
        scraped.url,
        rule("labelled"),
        rule("dropped", query="avg(<<.Series>>{<<.LabelMatchers>>})"),
        rule("present"),
        rule("absent_series"),
    ) as served:
        stages = {
            metric: (await causes(served, metric))[0]
            for metric in ("labelled", "dropped", "present", "absent_series", "misspelt_presnt")
        }

    assert {metric: each["reason"] for metric, each in stages.items()} == {
        "labelled": "LabelsMissing",
        "dropped": "LabelDropped",
        "present": "NotScraped",
        "absent_series": "NoSeries",
        "misspelt_presnt": "NoRule",
    }
    assert "expected pod; found k8s_pod, ns" in stages["labelled"]["message"]
    assert "Aggregate by (<<.GroupBy>>)" in stages["dropped"]["message"]


def test_2_an_edit_of_the_rules_does_nothing_until_the_pod_is_restarted(
    programs: Programs, tmp_path: Path
) -> None:
    shutil.copytree(MANIFESTS / "base", tmp_path / "base")
    before = Built(programs.kubectl, tmp_path / "base")
    (tmp_path / "base" / "config.yaml").write_text(f"rules:\n{rule('x')}")
    after = Built(programs.kubectl, tmp_path / "base")

    # A pod template that differs makes `kubectl apply` roll the pods out.
    template = "spec", "template"
    pods = [each.one("Deployment")[template[0]][template[1]] for each in (before, after)]
    assert pods[0] != pods[1]
    assert before.one("ConfigMap")["metadata"]["name"] != after.one("ConfigMap")["metadata"]["name"]


async def test_3_only_one_central_file_has_rules(
    scraped: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped.put('team_a{namespace="default",pod="a"} 1', 'team_b{namespace="default",pod="a"} 2')
    files = []
    for team in ("team_a", "team_b"):
        (tmp_path / f"{team}.yaml").write_text(f"rules:\n{rule(team)}")
        files.append(f"--config={tmp_path / team}.yaml")
    pods = api.manifests(["default/a"])
    async with api.serving(tmp_path, scraped.url, pods, files) as served:
        values = [await served.pods("default", team) for team in ("team_a", "team_b")]
    assert values == [{"a": 1}, {"a": 2}]

    (tmp_path / "team_b.yaml").write_text("rules:\n- seriesQuery: x\n  metricQuery: x\n")
    assert program.main(["check", *(each.partition("=")[2] for each in files)]) == 1
    reported = [line for line in capsys.readouterr().out.splitlines() if " error: " in line]
    assert reported
    assert all("team_b.yaml:3" in line for line in reported)


async def test_4_memory_and_traffic_grow_with_the_number_of_series(
    scraped: Prometheus, tmp_path: Path
) -> None:
    labels = (
        {"__name__": "many", "namespace": "default", "pod": f"pod-{number}", "path": "x" * 100}
        for number in range(5000)
    )
    scraped.write((each, 1.0) for each in labels)
    rules = rule('{__name__=~"many|more",namespace!=""}')
    async with (
        serving(tmp_path, scraped.url, rules) as served,
        served.session.get(f"{served.url}/metrics", ssl=False) as response,
    ):
        text = await response.text()

    sizes = {
        path: float(size)
        for path, size in re.findall(
            r'prometheus_response_bytes_total\{path="([^"]*)".*\} (\S+)', text
        )
    }
    assert "/api/v1/series" not in sizes  # the label sets of all series, 1 MB here
    assert 0 < sum(sizes.values()) < 20_000


async def test_5_discovery_is_needed_before_a_metric_can_be_requested(
    scraped: Prometheus, tmp_path: Path
) -> None:
    async with serving(tmp_path, scraped.url, rule("later")) as served:
        scraped.put('later{namespace="default",pod="a"} 5')  # after the only relist

        assert await served.pods("default", "later", "a") == {"a": 5}


async def test_6_a_broken_rule_or_prometheus_blanks_everything(
    scraped: Prometheus, tmp_path: Path
) -> None:
    scraped.put('sound{namespace="default",pod="a"} 1')
    broken = rule('{__name__=~"broken.*",namespace=~"("}')
    async with serving(tmp_path, scraped.url, broken, rule("sound")) as served:
        assert await served.pods("default", "sound") == {"a": 1}
    async with serving(tmp_path, NOBODY, rule("sound")) as cold:
        _, document = await cold.get(GROUP)

    assert "pods/sound" in {each["name"] for each in document["resources"]}


async def test_7_an_idle_service_has_no_value_and_scaling_freezes(
    scraped: Prometheus, tmp_path: Path
) -> None:
    scraped.put('idle_requests{namespace="default",pod="a"} 3')
    async with serving(
        tmp_path, scraped.url, rule("idle_requests", onMissing="{value: 0}")
    ) as served:
        assert await served.pods("default", "idle_requests") == {"a": 3, "b": 0}


async def test_8_nan_becomes_zero_and_infinity_a_huge_negative_number(
    scraped: Prometheus, tmp_path: Path
) -> None:
    scraped.put('undefined{namespace="default",pod="a"} NaN')
    scraped.put('infinite{namespace="default",pod="a"} +Inf')
    async with serving(
        tmp_path, scraped.url, rule("undefined"), rule("infinite", query=f"{PLAIN} * 2")
    ) as served:
        for metric in ("undefined", "infinite"):
            assert await served.pods("default", metric) == {}
            assert (await causes(served, metric))[0]["reason"] == "NotFinite"


async def test_9_of_several_series_per_object_a_random_one_is_the_value(
    scraped: Prometheus, tmp_path: Path
) -> None:
    for gpu in range(4):
        scraped.put(f'per_gpu{{namespace="default",pod="a",gpu="{gpu}"}} {gpu * 10}')
    query = "<<.Series>>{<<.LabelMatchers>>}"
    rules = [
        rule("per_gpu", query=query, name=f"{{as: {name}}}", aggregate=name)
        for name in ("avg", "max", "min", "sum", "error")
    ]
    async with serving(tmp_path, scraped.url, *rules) as served:
        values = {
            name: (await served.pods("default", name))["a"] for name in ("avg", "max", "min", "sum")
        }
        status, _ = await served.get(f"{GROUP}/namespaces/default/pods/a/error")

    assert values == {"avg": 15, "max": 30, "min": 0, "sum": 60}
    assert status == 500


async def test_10_which_of_two_overlapping_rules_wins_is_undefined(
    scraped: Prometheus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scraped.put('first{namespace="default",pod="a"} 1', 'second{namespace="default",pod="a"} 2')
    rules = [rule(series, name="{as: same}") for series in ("first", "second")]
    for position in (0, 1):
        folder = tmp_path / str(position)
        folder.mkdir()
        ordered = rules if position == 0 else rules[::-1]
        async with serving(folder, scraped.url, *ordered) as served:
            # The last rule of the file is served, as in the original.
            assert await served.pods("default", "same") == {"a": 2 - position}
    assert program.main(["check", str(tmp_path / "0" / "rules.yaml")]) == 0
    warnings = capsys.readouterr().out
    assert "rules[1].name: produces the same metric of namespaces, pods as rules[0]" in warnings
    assert "only this later rule is queried" in warnings
