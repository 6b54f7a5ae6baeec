"""Advice from a real Prometheus: the command, its page, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from adapter.cli.commands import advise
from adapter.clients.prometheus import Prometheus
from rules.hpa import autoscaler
from tests.adapter.cli.console.conftest import VALUES, Start, World, status
from tests.adapter.cli.console.test_replay import explanation
from tests.rules.hpa.documents import pods_metric, resource_metric
from tools.fakes import kubernetes
from tools.real import prometheus as real

pytestmark = pytest.mark.usefixtures("real_servers")

API = "/apis/custom.metrics.k8s.io/v1beta2"
ACTIVE, TTFT = "requests_active_current", "time_to_first_token_p95_milliseconds_over_time"
ACTIVE_PATH, TTFT_PATH = (f"{API}/namespaces/default/pods/*/{each}" for each in (ACTIVE, TTFT))
HOURS = 5
OBJECTIVE = "--objective=time_to_first_token_p95 < 500ms"


@pytest.fixture(scope="module")
def filled(empty_prometheus: real.Prometheus) -> real.Prometheus:
    """A Prometheus with the load of two pods, which are slower than 500 ms above 20 requests."""
    now, luck = time.time() // 300 * 300, random.Random(1)
    rows = []
    for window in range(-HOURS * 12, 0):
        active = luck.uniform(16, 22) if window % 5 else luck.uniform(1, 5)
        latency = 100 if active <= 20 else 900
        for second in range(0, 300, 30):
            at = now + 300 * window + second
            for pod in ("bbbbb", "ccccc"):
                labels = f'{{namespace="default",pod="serving-5c9f-{pod}"}}'
                rows.append((at, f"active{labels} {active}", f"ttft{labels} {latency}"))
                rows.append((at, f"util{labels} 90"))
    for at, *lines in rows:
        empty_prometheus.put(*lines, at=at)
    return empty_prometheus


@pytest.fixture
def explained(world: World) -> World:
    world.add("default", "gpu-hpa", pods_metric(), **status("63"))
    names = ("duty_cycle_current", ACTIVE, TTFT)
    world.documents[API] = {
        "resources": [{"name": f"pods/{name}", "namespaced": True} for name in names]
    }
    world.documents[f"{VALUES}?explain=true"] = explanation("util")
    world.documents[f"{ACTIVE_PATH}?explain=true"] = explanation("active")
    of_workload = f"{API}/namespaces/default/deployments.apps/serving/{TTFT}"
    world.documents[f"{TTFT_PATH}?explain=true"] = explanation("ttft")
    world.documents[f"{of_workload}?explain=true"] = {**explanation("ttft"), "plan": None}
    return world


@pytest.fixture
async def arguments(
    explained: World, aiohttp_server: Any, tmp_path: Path, filled: real.Prometheus
) -> list[str]:
    kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(explained.app()))
    flags = [f"--kubeconfig={kubeconfig}", f"--prometheus-url={filled.url}"]
    return [*flags, f"--since={HOURS}h", "--sync-period=30s"]


async def run(*argv: str) -> int:
    """Run the command in a thread, because it has an event loop of its own."""
    return await asyncio.to_thread(advise.main, ["hpa", "default/gpu-hpa", *argv])


async def test_the_command_prints_the_hpa_with_its_evidence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(*arguments, OBJECTIVE) == 0
    text = capsys.readouterr().out
    assert await run(*arguments, OBJECTIVE, "--output=json") == 0
    document = json.loads(capsys.readouterr().out)

    manifest = yaml.safe_load(text)  # the evidence is in comments
    (metric,) = autoscaler.autoscaler(manifest).metrics
    assert metric.name == ACTIVE
    assert 17_000 <= metric.value <= 20_000
    assert manifest == document["hpa"]
    assert document["metric"] == ACTIVE
    assert {each["name"] for each in document["metrics"]} == {ACTIVE, "duty_cycle_current"}
    was, present, target = document["variants"]
    assert present["replicas"][-1][1] == 5  # of which each has 36 %
    assert was["podHours"] < target["podHours"] < present["podHours"]
    assert target["aboveObjectiveSeconds"] < was["aboveObjectiveSeconds"] / 4
    assert document["findings"][0]["fact"].startswith("its target 40 % is below the value without")
    assert f"# {document['verdict']}\n" in text
    assert f"# {document['summary']}\n" in text


async def test_an_hpa_on_cpu_gets_a_target_beside_it(
    explained: World, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    explained.add("default", "gpu-hpa", resource_metric(averageUtilization=80), **status(None))

    assert await run(*arguments, OBJECTIVE, "-o", "json") == 0

    document = json.loads(capsys.readouterr().out)
    assert [each["type"] for each in document["hpa"]["spec"]["metrics"]] == ["Pods", "Resource"]
    assert len(document["variants"]) == 2  # what was, and the target
    assert document["notes"][-1].startswith(
        "Not replayed, because it comes from metrics.k8s.io: cpu"
    )


async def test_a_past_without_the_limit_is_refused_with_what_to_do(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(*arguments, "--objective=time_to_first_token_p95 < 5s") == 1

    captured = capsys.readouterr()
    assert "cannot advise: it never came near the limit" in captured.err
    assert yaml.safe_load(captured.out) is None


@pytest.mark.parametrize(
    ("objective", "problem"),
    [
        (
            "duty_cycles_current < 5",
            "serves no metric duty_cycles_current; did you mean duty_cycle_current? If a rule or",
        ),
        (f"{TTFT} < 5parsecs", "unknown unit"),
    ],
)
async def test_an_objective_that_cannot_be_read_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str], objective: str, problem: str
) -> None:
    assert await run(*arguments, f"--objective={objective}") == 1

    error = capsys.readouterr().err
    assert error.startswith(f"cannot advise: the objective '{objective}'")
    assert problem in error


async def test_windows_are_as_long_as_the_query_of_the_objective(
    explained: World, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    query = "avg by (<<.GroupBy>>) (avg_over_time(<<.Series>>{<<.LabelMatchers>>}[10m]))"
    explained.documents[f"{TTFT_PATH}?explain=true"] = explanation("ttft", query)

    await run(*arguments, OBJECTIVE, "-o", "json")

    document = json.loads(capsys.readouterr().out)
    assert document["windowSeconds"] == 600
    assert document["notes"][-1] == (
        f"Windows have 10 min instead of 5 min: the query of {TTFT} covers so much"
    )


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (explanation("nothing"), f"Prometheus has no history of {TTFT} for this period. Look"),
        (
            {**explanation("ttft"), "plan": None},
            f"{TTFT} has no value for Deployment/serving, for its pods or as an ext",
        ),
    ],
)
async def test_an_objective_without_a_past_is_named(
    explained: World,
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    found: Any,
    problem: str,
) -> None:
    explained.documents[f"{TTFT_PATH}?explain=true"] = found

    assert await run(*arguments, OBJECTIVE) == 1

    assert capsys.readouterr().err.startswith(f"cannot advise: {problem}")


async def test_the_page_shows_the_curve_and_its_twins_say_the_same(
    explained: World, start: Start, filled: real.Prometheus
) -> None:
    async with aiohttp.ClientSession() as session:
        client = await start(explained, prometheus=Prometheus(session, filled.url))
        address = f"/autoscalers/default/gpu-hpa/advise{{}}?since={HOURS}h&objective="
        address += "time_to_first_token_p95 < 500ms"

        document = await (await client.get(address.format(".json"))).json()
        text = await (await client.get(address.format(".txt"))).text()
        html = await (await client.get(address.format(""))).text()
        refused = await client.get("/autoscalers/default/gpu-hpa/advise.txt?objective=ttft")
        problem = await refused.text()
        page = await (await client.get("/autoscalers/default/gpu-hpa")).text()

    assert document["metric"] == ACTIVE
    assert text.splitlines()[0] == document["summary"]
    assert yaml.safe_load(text[text.index("apiVersion:") :]) == document["hpa"]
    assert f"{TTFT} &lt; 500 ms, by {ACTIVE}" in html
    assert "kept, in %: " in html
    assert f"The horizontal axis is {ACTIVE} of each pod" in html
    assert html.count("<svg") == 3  # the curve, and the replicas of two variants
    assert "averageValue: 1" in html
    assert refused.status == 400
    assert "must be METRIC < LIMIT" in problem
    assert 'action="/autoscalers/default/gpu-hpa/advise"' in page


async def test_the_command_writes_a_page_that_needs_no_other_file(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(*arguments, OBJECTIVE, "--output=html") == 0

    html = capsys.readouterr().out
    assert html.startswith("<!doctype html>")
    assert "src=" not in html
    assert "href=" not in html
    assert html.count("<svg") == 3
