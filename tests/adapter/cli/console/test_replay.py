"""Replay from a real Prometheus: the command, its page, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.cli.commands import replay
from adapter.cli.console import pages
from adapter.cli.doctor import ranges
from adapter.clients.prometheus import Prometheus
from adapter.settings.command_line import UsageError
from rules import ruleset
from rules.hpa.replay_ahead import Week
from rules.query import entry_document
from rules.query.catalog import ExternalEntry, Source
from rules.query.label_binding import LabelBinding
from tests.adapter.cli.console.conftest import VALUES, Start, World, status
from tests.adapter.cli.console.test_pages import HOSTILE
from tests.adapter.server.evaluation.support import entry_of
from tests.rules.hpa import test_reading
from tests.rules.hpa import test_replay as replays_of
from tests.rules.hpa.documents import external_metric, pods_metric, resource_metric
from tools.fakes import kubernetes
from tools.real import prometheus as real

pytestmark = pytest.mark.usefixtures("real_servers")

MINUTES = 40
HPA = "/autoscalers/default/gpu-hpa/replay"
QUERY = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"


def explanation(series: str = "util", query: str = QUERY, more: str = "") -> Any:
    entry = entry_of(series, query, more)
    return {
        "kind": "Explanation",
        "verdict": "it is explained",
        "request": {"metric": "duty_cycle_current"},
        "queries": [
            {
                "promql": "up",
                "wantedLabels": ["pod", "namespace"],
                "rule": "rules[0]",
                "oldestSampleSeconds": 12.0,
                "intervalSeconds": 15.0,
                "delaySeconds": 180.0,
                "delayedBy": "avg_over_time",
                "freshnessSeconds": 1.0,
            }
        ],
        "plan": entry_document.document(entry),
    }


def external(series: str) -> Any:
    text = f"externalRules: [{{seriesQuery: {series}, metricsQuery: {series}}}]"
    (rule,) = ruleset.load([("rules.yaml", text)]).external
    source = Source(rule=rule, series=series, bindings=(LabelBinding(resource=""),))
    entry = ExternalEntry(metric="queue_length", namespaced=False, source=source)
    return {**explanation(), "plan": entry_document.document(entry)}


@pytest.fixture(scope="module")
def filled(empty_prometheus: real.Prometheus) -> Any:
    """A Prometheus with 40 minutes of two pods, and of four pods in the second half."""
    now = time.time()
    for ago in range(MINUTES * 4, -MINUTES, -1):  # also ten minutes for the tests
        late = ago <= MINUTES * 2
        names = ("bbbbb", "ccccc", "ddddd", "fffff")[: 4 if ago < MINUTES * 2 - 4 else 2]
        empty_prometheus.put(
            *(f'util{{namespace="default",pod="serving-5c9f-{each}"}} 40' for each in names),
            'util{namespace="default",pod="other-5c9f-aaaaa"} 99',
            'util{namespace="default",pod="serving-too-5c9f-bbbbb"} 99',
            'util{namespace="default",pod="serving-train-x8k2p"} 99',
            "kube_horizontalpodautoscaler_status_desired_replicas"
            '{namespace="default",horizontalpodautoscaler="gpu-hpa"} '
            f"{4 if late else 2}",
            at=now - 15 * ago,
        )
    return empty_prometheus


@pytest.fixture
async def connected(filled: Any) -> AsyncIterator[Prometheus]:
    async with aiohttp.ClientSession() as session:
        yield Prometheus(session, filled.url)


@pytest.fixture
def explained(world: World) -> World:
    world.healthy()
    world.documents[f"{VALUES}?explain=true"] = explanation()
    return world


async def test_the_page_shows_each_variant_and_its_twins_say_the_same(
    explained: World, start: Start, connected: Prometheus
) -> None:
    client = await start(explained, prometheus=connected)
    address = f"{HPA}{{}}?since=30m&target=20,80"

    document = await (await client.get(address.format(".json"))).json()
    text = await (await client.get(address.format(".txt"))).text()
    html = await (await client.get(address.format(""))).text()

    titles = ["as it was", "present settings", "target 20", "target 80"]
    assert [each["title"] for each in document["variants"]] == titles
    was, present, lower, higher = document["variants"]
    assert [number for _, number in was["replicas"]] == [2, 4]  # without pods of other workloads
    assert (present["replicas"][0][1], present["replicas"][-1][1]) == (2, 4)
    assert (lower["replicas"][-1][1], higher["replicas"][-1][1]) == (8, 2)
    assert "names are of Deployment/serving, because Prometheus has no" in document["notes"][0]
    assert "the replicas are those that kube-state-metrics recorded" in document["notes"][0]
    assert "duty_cycle_current of all pods together was what it was" in document["notes"][1]
    assert document["fit"]["different"] <= 6  # until the new pods had values
    assert re.fullmatch(
        "A new pod has a value after (60|75) s, the median of 1 scale-up", document["notes"][2]
    )
    assert text.splitlines()[0] == document["summary"]
    assert html.count("<svg") == 4
    assert "Replicas: target 80" in html
    page = await (await client.get("/autoscalers/default/gpu-hpa")).text()
    assert f'action="{HPA}"' in page
    assert "211 s at most, 196 s on average, by the slowest metric: 15 s interval between" in page
    assert page.count('<rect class="term"') >= 4


async def test_a_replay_is_computed_once_for_a_page_that_updates_itself(
    explained: World, start: Start, connected: Prometheus
) -> None:
    client = await start(explained, prometheus=connected)
    for _ in range(2):
        await client.get(f"{HPA}?since=10m")

    # Others may be of the watch.
    assert explained.requests.count(test_reading.HPA) == 1


@pytest.mark.parametrize(
    ("metrics", "document", "problem"),
    [
        (pods_metric(), explanation("absent_util"), "has no history of"),
        (pods_metric(), explanation(query="sum("), "Prometheus did not answer"),
        (pods_metric(), explanation(more="minPodAge: 1m"), "a rule has `minPodAge`"),
        (pods_metric(), {**explanation(), "plan": None}, "no query: it is explained"),
        (pods_metric(), {"kind": "Explanation"}, "update it to this program's version"),
        (resource_metric(averageUtilization=50), None, "not from a rule"),
        (external_metric(value="1"), external("absent_series"), "has no history of"),
    ],
)
async def test_what_cannot_be_known_is_refused_with_the_cause(
    world: World, start: Start, connected: Prometheus, metrics: Any, document: Any, problem: str
) -> None:
    world.add("default", "gpu-hpa", metrics, **status("63"))
    for path in (VALUES, "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_length"):
        world.documents[f"{path}?explain=true"] = document
    client = await start(world, prometheus=connected)

    reply = await client.get(f"{HPA}.txt?since=30m")

    assert reply.status == 502
    assert problem in await reply.text()


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("since=7", "must be a duration such as 7d"),
        ("since=1s", "must be from 1m to 31d"),
        ("since=1y", "must be from 1m to 31d"),
        ("since=10m&target=abc", "target: 'abc' is not a quantity: write a number such as 37.5"),
        ("since=10m&target=0", "not above 0"),
        ("since=10m&ahead=week", "ahead=week: must be SEASON or SEASON:HORIZON, such as 7d:4m"),
        ("since=10m&target=1,2,3,4,5,6,7,8,9", "more than 8 targets"),
    ],
)
async def test_a_wrong_question_says_what_is_wrong(
    explained: World, start: Start, connected: Prometheus, query: str, problem: str
) -> None:
    client = await start(explained, prometheus=connected)

    reply = await client.get(f"{HPA}.txt?{query}")

    assert reply.status == 400
    assert problem in await reply.text()


async def test_a_past_that_is_too_large_is_refused_with_what_to_do(
    explained: World, start: Start, connected: Prometheus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "_MAX_POINTS", 100)
    client = await start(explained, prometheus=connected)

    text = await (await client.get(f"{HPA}.txt?since=30m")).text()

    assert "this is too much" in text
    assert "Choose a shorter --since or a longer --sync-period" in text


async def test_without_prometheus_it_says_how_to_name_it(explained: World, start: Start) -> None:
    client = await start(explained)

    assert "--prometheus-url" in await (await client.get(f"{HPA}.txt")).text()


@pytest.fixture
async def arguments(explained: World, aiohttp_server: Any, tmp_path: Path, filled: Any) -> Any:
    kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(explained.app()))
    return [f"--kubeconfig={kubeconfig}", f"--prometheus-url={filled.url}", "--since=30m"]


async def run(*argv: str) -> int:
    """Run the command in a thread, because it has an event loop of its own."""
    import asyncio

    return await asyncio.to_thread(replay.main, ["hpa", *argv])


async def test_the_command_prints_text_json_and_a_page_that_needs_no_other_file(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    behavior = tmp_path / "behavior.yaml"
    behavior.write_text("behavior: {scaleUp: {selectPolicy: Disabled}}")
    changes = [f"--behavior={behavior}", "--min-replicas=2", "--startup=30s"]

    assert await run("default/gpu-hpa", *arguments, *changes) == 0
    text = capsys.readouterr().out
    assert await run("default/gpu-hpa", *arguments, *changes, "--output=json") == 0
    document = json.loads(capsys.readouterr().out)
    assert await run("default/gpu-hpa", *arguments, "--output=html") == 0
    html = capsys.readouterr().out

    assert text.splitlines()[0] == document["summary"]
    assert "\nother behavior, min 2  " in text
    assert [each["title"] for each in document["variants"]][2] == "other behavior, min 2"
    assert document["variants"][2]["replicas"] == [[0, 2]]
    assert html.startswith("<!doctype html>")
    assert "src=" not in html
    assert "href=" not in html
    assert html.count("<svg") == 2


async def test_the_command_replays_a_forecast_which_needs_a_longer_past(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--ahead=1h:4m", "--output=json")
    assert await run("default/gpu-hpa", *arguments, *flags) == 0
    document = json.loads(capsys.readouterr().out)

    _, present, ahead = document["variants"]
    assert (present["title"], ahead["title"]) == ("present settings", "ahead")
    assert ahead["replicas"] == present["replicas"]
    assert document["weeks"] == []
    assert document["notes"][-1] == (
        "Row `ahead`: the present settings, with a forecast for 240 s later, from the load of "
        "1 h 00 min before. At the end, the present value is served: Prometheus has no value of "
        "one season ago; it must keep values for a season and a week"
    )


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("week", "must be SEASON or SEASON:HORIZON, such as 7d:4m: "),
        ("7d:4m:1m", "must be SEASON or SEASON:HORIZON, such as 7d:4m"),
        ("5m", "the season must be from 1h to 35d"),
        ("1h:40m", "the horizon must be at most 1h, and half of the season"),
    ],
)
def test_a_forecast_that_cannot_be_made_is_refused(value: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        replay.main(["hpa", "default/gpu-hpa", f"--ahead={value}"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", " is empty"),
        ("scaleUp: {tolerance: 10%}", ":1: behavior.scaleUp.tolerance must be a quantity"),
        ("behavior:\n  scaleUp: {policies: []}", ":2: behavior.scaleUp.policies must be a list"),
        ("{behavior: {}, scaleUp: {}}", ":1: behavior.behavior is none of scaleUp, scaleDown"),
        ("scaleUp: [", "b.yaml:2:1: error: invalid YAML"),
    ],
)
async def test_behavior_that_the_api_server_refuses_is_refused(
    arguments: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    text: str,
    problem: str,
) -> None:
    file = tmp_path / "b.yaml"
    file.write_text(text)

    assert await run("default/gpu-hpa", *arguments, f"--behavior={file}") == 1
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (["--behavior=/absent.yaml"], "/absent.yaml: No such file"),
        (["--max-replicas=0"], "must not be above"),
        (["--target=1", "--metric=other"], "give one of the metrics duty_cycle_current"),
    ],
)
async def test_the_command_says_why_it_cannot_replay(
    arguments: list[str], capsys: pytest.CaptureFixture[str], extra: list[str], problem: str
) -> None:
    assert await run("default/gpu-hpa", *arguments, *extra) == 1

    error = capsys.readouterr().err
    assert error.startswith("cannot replay: ")
    assert problem in error


async def test_an_autoscaler_that_does_not_exist_is_named(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("default/absent", *arguments) == 1
    assert "absent" in capsys.readouterr().err


def test_the_page_has_a_row_for_each_week_of_a_forecast() -> None:
    week = Week(
        begin=1_800_000_000.0,
        forecast=3600.0,
        error=0.25,
        above=600.0,
        above_ahead=60.0,
        pod_hours=12.0,
        pod_hours_ahead=12.5,
    )

    html = pages.replay_file(dataclasses.replace(replays_of.report(), weeks=(week,)))

    row = html.split("2027-01-15 08:00</th>")[1].split("</tr>")[0]
    cells = re.findall(r'<span class="number">(.*?)</span>', row)
    assert cells == ["1 h 00 min", "25%", "10 min", "1 min", "12.0", "12.5"]


def test_hostile_names_are_text_in_the_file() -> None:
    replayed = replays_of.report()
    hpa = dataclasses.replace(replayed.hpa, name=HOSTILE)
    shown = dataclasses.replace(replayed, hpa=hpa, notes=(HOSTILE,))

    html = pages.replay_file(shown)

    assert "<script>alert" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 3
    assert "\x1b" not in html
