"""Each fault has its own cause, found on a real Prometheus: in answer, header and log."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rules.causes.reasons import Reason
from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real import prometheus
from tools.real.prometheus import Prometheus

PLAIN = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
QUERIES = {
    "divided": PLAIN,
    "infinite": f"{PLAIN} / 0",
    "dropped": "avg(<<.Series>>{<<.LabelMatchers>>})",
    "elsewhere": PLAIN,
    "renamed": PLAIN,
    "own_gpu": PLAIN,
    "down": PLAIN,
    "removed": PLAIN,
    "ended": PLAIN,
    "old": PLAIN,
    "few": PLAIN,
    "idle": PLAIN,
    "compared": f"{PLAIN} <= 100",
    "rated": "rate(<<.Series>>{<<.LabelMatchers>>}[1m])",
    "refused": "avg(<<.Series>>{<<.LabelMatchers>>}",
    "partial": PLAIN,
    "moved": PLAIN,
    "stopped": PLAIN,
}
RULES = "rules:\n" + "".join(
    f"- seriesQuery: {name}\n"
    "  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    f"  metricsQuery: '{query}'\n"
    for name, query in QUERIES.items()
)
AGED = """
- seriesQuery: aged
  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
  maxSampleAge: 1m
"""
MERGED = "".join(
    f"- seriesQuery: {series}\n"
    "  merge: true\n"
    "  name: {as: merged}\n"
    "  resources: {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}\n"
    f"  metricsQuery: '{query}'\n"
    for series, query in (("few", PLAIN), ("refused", QUERIES["refused"]))
)
EXTERNAL = """
externalRules:
- seriesQuery: divided
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: elsewhere
  resources: {overrides: {ns: {resource: namespace}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
BEFORE = 420.0
"""Seconds. Older than Prometheus' lookback, and within the window of a relist."""
ENDED = (
    'down{ns="default",pod="a",job="gpu",instance="down:1"} 1',
    'removed{ns="default",pod="a",job="gpu",instance="removed:1"} 1',
    'ended{ns="default",pod="a",job="gpu",instance="up:1"} 1',
    'moved{ns="default",pod="a",job="gpu",instance="up:1"} 1',
    'old{ns="default",pod="a"} 1',
    'idle{ns="default",pod="z"} 1',
    'up{job="gpu",instance="removed:1"} 1',
)
LIVE = (
    'moved{ns="gpu-operator",exported_ns="default",pod="a"} 1',
    'divided{ns="default",pod="a"} NaN',
    'infinite{ns="default",pod="a"} 1',
    'dropped{ns="default",pod="a"} 1',
    'elsewhere{ns="team-b",pod="a"} 1',
    'renamed{ns="gpu",pod="a",exported_ns="default"} 1',
    'own_gpu{ns="default",pod="dcgm-x",job="gpu",instance="own:1"} 1',
    'compared{ns="default",pod="a"} NaN',
    'few{ns="default",pod="z"} 1',
    'idle{ns="default",gpu="0"} 1',
    'rated{ns="default",pod="a"} 1',
    'refused{ns="default",pod="a"} 1',
    'partial{ns="default",pod="a"} 1',
    'up{job="gpu",instance="own:1",pod="dcgm-x"} 1',
    'up{job="gpu",instance="up:1"} 1',
    'up{job="gpu",instance="down:1"} 0',
)
CAUSES = {
    "divided": (
        Reason.NOT_FINITE,
        "divided for pods a, b in namespace default is NaN or Inf in",
    ),
    "infinite": (Reason.NOT_FINITE, "returned +Inf for pods a, b"),
    "compared": (Reason.NOT_FINITE, "compared for pods a, b in namespace default is NaN or Inf in"),
    "dropped": (Reason.LABEL_DROPPED, "has no label pod (it has no labels). Aggregate"),
    "elsewhere": (Reason.OTHER_NAMESPACE, "but has some whose label ns is team-b. If that"),
    "renamed": (Reason.OTHER_NAMESPACE, "Map exported_ns to namespace in `resources` of the rule"),
    "own_gpu": (Reason.EXPORTER_ONLY, "label pod of own_gpu has only the exporter's own pods"),
    "down": (Reason.TARGET_GONE, "target gpu/down:1 is down (up = 0); the last sample of down for"),
    "removed": (Reason.TARGET_GONE, "target gpu/removed:1 is not scraped any more; the last"),
    "ended": (Reason.SERIES_ENDED, "the target is scraped (up = 1), but ended for pods a, b in"),
    "old": (Reason.SAMPLE_TOO_OLD, "old for pods a, b in namespace default is 7m"),
    "moved": (Reason.OTHER_NAMESPACE, "Map exported_ns to namespace in `resources` of the rule"),
    "stopped": (Reason.SERIES_ENDED, "stopped for pods a, b in namespace default ended: the last"),
    "few": (Reason.NOT_SCRAPED, "1 series of few has the label pod, and none is for pods a, b"),
    "idle": (Reason.NOT_SCRAPED, "none of the 1 series of idle has the label pod now"),
    "aged": (Reason.SAMPLE_TOO_OLD, "newest sample of aged for pods a, b in namespace default is"),
    "rated": (Reason.NO_SAMPLE, "rated has 1 series for pods a, b in namespace default, but the"),
}


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    now = time.time()
    for later in range(4):
        empty_prometheus.put(*ENDED, at=now - BEFORE - 180 + 60 * later)
    empty_prometheus.end(
        *(line for line in ENDED if not line.startswith("old")), at=now - BEFORE + 1
    )
    empty_prometheus.put('aged{ns="default",pod="a"} 1', at=now - 120)
    for later in range(4):  # for the instant queries of all tests, however long they take
        empty_prometheus.put(*LIVE, at=now + 240 * later)
    stopped = 'stopped{ns="default",pod="a"} 1'
    empty_prometheus.put(stopped, at=now - 60)
    empty_prometheus.end(stopped, at=now - 45)
    return empty_prometheus


@pytest.fixture
async def served(scraped: Prometheus, tmp_path: Path) -> AsyncIterator[Api]:
    pods, flags = api.manifests(["default/a", "default/b"]), ["--metrics-max-age=1h"]
    async with api.serving(
        tmp_path, scraped.url, pods, flags, rules=RULES + AGED + MERGED + EXTERNAL
    ) as running:
        yield running


async def warning(served: Api, path: str) -> str:
    async with served.session.get(served.url + path, ssl=False) as response:
        return response.headers.get("Warning", "")


async def test_each_fault_has_its_own_cause(served: Api, caplog: pytest.LogCaptureFixture) -> None:
    answers = {}
    for metric in CAUSES:
        status, body = await served.get(f"{GROUP}/namespaces/default/pods/*/{metric}")
        assert (status, body["kind"]) == (404, "Status")
        header = await warning(served, f"{GROUP}/namespaces/default/pods/*/{metric}")
        logged = [each for each in caplog.messages if each.startswith(f"pods/{metric} in ")]
        answers[metric] = (header, logged)

    for metric, (reason, sentence) in CAUSES.items():
        header, (line,) = answers[metric]
        assert f": {reason.value}: rules[" in line
        assert sentence in line
        assert header.startswith(f'299 - "{reason.value}: rules[')
        assert header.endswith('"')
        assert header.isascii()


async def test_a_missing_object_has_the_same_cause_as_a_missing_list(served: Api) -> None:
    path = f"{GROUP}/namespaces/default/pods/a/divided"
    status, body = await served.get(path)

    (cause,) = body["details"]["causes"]
    assert (status, cause["reason"]) == (404, "NotFinite")
    assert (
        " for pod a in namespace default is NaN or Inf in Prometheus (1 series)" in cause["message"]
    )
    assert (await warning(served, path)).startswith('299 - "NotFinite: rules[0] ')


async def test_a_message_ends_with_a_sentence_without_ages_and_other_namespaces(
    served: Api,
) -> None:
    for metric, (reason, _) in CAUSES.items():
        _, body = await served.get(f"{GROUP}/namespaces/default/pods/a/{metric}")

        beginning = f"the server could not find the metric {metric} for pods a: {reason.value}: "
        assert body["message"].startswith(beginning)
        sentence = body["message"].removeprefix(beginning)
        assert not re.search(r"[0-9]|team-b|rules\[", sentence)
        assert body["details"]["causes"][0]["message"] != sentence


@pytest.mark.parametrize("errors", [True, False])
async def test_a_list_without_values_is_an_error_unless_a_flag_says_otherwise(
    scraped: Prometheus, tmp_path: Path, errors: bool
) -> None:
    pods, flags = api.manifests(["default/a"]), (f"--errors-for-empty-lists={errors}",)
    external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/elsewhere"
    rules = RULES + EXTERNAL
    async with api.serving(tmp_path, scraped.url, pods, flags, rules=rules) as served:
        of_pods = await served.get(f"{GROUP}/namespaces/default/pods/*/divided")
        of_nothing = await served.get(external)
        unmatched = await served.get(f"{GROUP}/namespaces/default/pods/*/divided?labelSelector=x")

    if errors:
        message = "the server could not find the metric divided for pods: NotFinite: "
        assert of_pods[0] == of_nothing[0] == 404
        assert of_pods[1]["message"].startswith(message)
        assert ": OtherNamespace: " in of_nothing[1]["message"]
    else:
        assert [(status, body["items"]) for status, body in (of_pods, of_nothing)] == [
            (200, [])
        ] * 2
    assert (unmatched[0], unmatched[1]["items"]) == (200, [])


async def test_a_flag_keeps_the_text_of_the_original(scraped: Prometheus, tmp_path: Path) -> None:
    flags = ("--causes-in-messages=false",)
    pods = api.manifests(["default/a"])
    async with api.serving(tmp_path, scraped.url, pods, flags, rules=RULES) as served:
        _, body = await served.get(f"{GROUP}/namespaces/default/pods/a/divided")
        _, failed = await served.get(f"{GROUP}/namespaces/default/pods/*/refused")

    assert body["message"] == "the server could not find the metric divided for pods a"
    assert failed["message"] == "Internal error occurred: unable to fetch metrics"
    assert body["details"]["causes"][0]["reason"] == "NotFinite"


async def test_a_refused_query_of_merged_rules_is_that_of_its_rule(served: Api) -> None:
    _, body = await served.get(f"{GROUP}/namespaces/default/pods/*/merged")

    message = body["details"]["causes"][1]["message"]
    assert message.startswith(f"rules[{len(QUERIES) + 2}] (")
    assert 'rendered query `avg(refused{ns="default",pod=~"a|b"}` with' in message


async def test_a_long_refused_query_is_not_shown(tmp_path: Path, scraped: Prometheus) -> None:
    pods = api.manifests([f"default/{'a' * 60}{place}" for place in range(2)])
    async with api.serving(tmp_path, scraped.url, pods, rules=RULES) as served:
        _, body = await served.get(f"{GROUP}/namespaces/default/pods/*/refused")

    message = body["details"]["causes"][1]["message"]
    assert "Prometheus refused the rendered query with bad_data: " in message


async def test_a_list_that_lacks_objects_has_a_warning_and_a_complete_one_has_none(
    served: Api,
) -> None:
    path = f"{GROUP}/namespaces/default/pods/*/partial"

    for _ in range(2):  # the second answer is remembered
        assert await warning(served, path) == (
            '299 - "NoSample: 1 of 2 pods in namespace default has no value: b. '
            '`gpu-metrics-adapter explain` says why"'
        )
        assert await warning(served, path.replace("*", "a")) == ""


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize(("up", "first"), [(1, "OtherExporter"), (0, "TargetGone")])
async def test_another_exporter_precedes_series_that_ended_unless_their_target_is_down(
    tmp_path: Path, up: int, first: str
) -> None:
    old = 'DCGM_FI_DEV_GPU_UTIL{namespace="default",pod="a",job="gpu",instance="x:1"} 20'
    with prometheus.run(tmp_path) as server:
        now = time.time()
        for earlier in range(540, -1, -60):
            server.put(old, at=now - BEFORE - earlier)
        server.end(old, at=now - BEFORE + 1)
        server.put('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="u",namespace="default",pod="a"} 0.2', at=now)
        server.put(f'up{{job="gpu",instance="x:1"}} {up}', at=now)
        pods = api.manifests(["default/a"])
        async with api.serving(tmp_path, server.url, pods, ("--preset=gpu-dcgm",)) as served:
            path = f"{GROUP}/namespaces/default/pods/a/duty_cycle_current"
            _, body = await served.get(path)

    assert body["details"]["causes"][0]["reason"] == first


@pytest.mark.usefixtures("real_servers")
async def test_another_model_server_is_named_for_its_metrics_and_not_for_those_of_gpus(
    tmp_path: Path,
) -> None:
    flags = ("--preset=gpu-dcgm", "--preset=inference-vllm")
    with prometheus.run(tmp_path) as server:
        server.put('sglang:num_queue_reqs{model_name="m",namespace="default",pod="a"} 2')
        pods = api.manifests(["default/a"])
        async with api.serving(tmp_path, server.url, pods, flags) as served:
            _, waiting = await served.get(
                f"{GROUP}/namespaces/default/pods/*/requests_waiting_current"
            )
            _, duty = await served.get(f"{GROUP}/namespaces/default/pods/*/duty_cycle_current")

    other = waiting["details"]["causes"][0]
    assert other["reason"] == "OtherExporter"
    assert other["message"].endswith(": use --preset=inference-sglang instead")
    assert {cause["reason"] for cause in duty["details"]["causes"]} == {"NoSeries"}


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize(("ago", "inexact"), [(1860, 70), (40, 20)])
async def test_a_rule_whose_exporter_vanished_says_so_and_since_when(
    tmp_path: Path, ago: int, inexact: int
) -> None:
    rules = RULES.partition("- seriesQuery: infinite")[0].replace("divided", "vanished")
    with prometheus.run(tmp_path) as server:
        series = 'vanished{ns="default",pod="a",job="gpu",instance="x:1"} 1'
        last = time.time() - ago
        for earlier in range(540, -1, -15):
            server.put(series, at=last - earlier)
        server.end(series, at=last + 1)
        server.put('up{job="gpu",instance="x:1"} 0')
        async with api.serving(
            tmp_path, server.url, api.manifests(["default/a"]), rules=rules
        ) as served:
            status, body = await served.get(f"{GROUP}/namespaces/default/pods/a/vanished")
            now = time.time()

    (cause,) = body["details"]["causes"]
    assert (status, cause["reason"]) == (404, "TargetGone")
    assert "target gpu/x:1 is down (up = 0); the last sample of" in cause["message"]
    minutes, seconds = re.search(r" is (?:(\d+)m)?(\d+)s old", cause["message"]).groups()
    age = 60 * int(minutes or 0) + int(seconds)
    assert now - last - 5 < age < now - last + inexact


async def test_a_selector_that_matches_no_object_has_a_warning(
    served: Api, caplog: pytest.LogCaptureFixture
) -> None:
    header = await warning(
        served, f"{GROUP}/namespaces/default/pods/*/partial?labelSelector=app=nope"
    )

    sentence = "no unfinished pod in namespace default matches the label selector app=nope"
    assert header.startswith(f'299 - "NoObject: {sentence}')
    assert f"pods/partial in namespace default: NoObject: {sentence}" in caplog.text
