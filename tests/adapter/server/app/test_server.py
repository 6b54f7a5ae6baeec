"""The whole server over HTTPS with a real Prometheus: one bad rule or query affects no other."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter import settings
from adapter.settings import rule_files
from rules.errors import ConfigError
from tests.adapter.clients.credentials import BASIC, HASHED, USER
from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real import prometheus
from tools.real.prometheus import Prometheus

GOOD = """
- seriesQuery: gpu_util
  resources: &pod {overrides: {ns: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})'
"""
RULES = f"""
rules:
{GOOD}
- seriesQuery: gpu_util
  name: {{as: refused}}
  resources: *pod
  metricsQuery: 'avg(<<.Series>>{{<<.LabelMatchers>>}}'
- seriesQuery: '{{__name__=~"[invalid"}}'
  resources: *pod
  metricsQuery: '<<.Series>>'
"""
PODS = ("default/a",)


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    now = time.time()
    for at in (now - 30, now, now + 120):
        empty_prometheus.put('gpu_util{ns="default",pod="a"} 20', at=at)
    return empty_prometheus


@pytest.fixture
async def served(scraped: Prometheus, tmp_path: Path) -> AsyncIterator[Api]:
    async with api.serving(tmp_path, scraped.url, api.manifests(PODS), rules=RULES) as running:
        yield running


async def test_a_query_that_is_refused_fails_alone(
    served: Api, caplog: pytest.LogCaptureFixture
) -> None:
    status, document = await served.get(f"{GROUP}/namespaces/default/pods/*/refused")

    assert status == 500
    assert document["message"].startswith("Internal error occurred: unable to fetch metrics")
    assert await served.pods("default", "gpu_util") == {"a": 20}
    assert len([each for each in caplog.records if each.levelname == "ERROR"]) <= 1


async def test_a_rule_that_cannot_be_listed_is_reported_and_affects_no_other(served: Api) -> None:
    status, text = await verbose(served)
    async with served.session.get(f"{served.url}/metrics", ssl=False) as answer:
        metrics = await answer.text()

    assert status == 200
    assert "[+]prometheus ok: answers\n" in text
    (line,) = re.findall(r"\[!\]rules degraded: (.*)\n", text)
    listed = "2 of 3 rules listed by their last relist"
    assert re.fullmatch(
        rf"{listed}; cannot list rules\[2\] \(.*\.yaml:\d+\) since 20\S*\+00:00", line
    )
    assert 'gpu_metrics_adapter_health_check_state{check="rules",state="degraded"} 1.0' in metrics
    assert 'gpu_metrics_adapter_health_check_state{check="prometheus",state="ok"} 1.0' in metrics


RULES_ONLY = f"rules:\n{GOOD}".replace("gpu_util", "no_series")
EXTERNAL_ONLY = "externalRules: []\n"
RESOURCE_RULES = "resourceRules: {window: 1m}\n"


@pytest.mark.parametrize(
    ("rules", "remark"),
    [
        (RULES_ONLY, "1 of 1 rules listed by .*; no rule selects a series that Prometheus has: .*"),
        (EXTERNAL_ONLY, "0 of 0 rules .*; no rule is loaded"),
    ],
)
async def test_rules_that_do_nothing_are_degraded(
    scraped: Prometheus, tmp_path: Path, rules: str, remark: str
) -> None:
    async with api.serving(tmp_path, scraped.url, api.manifests(PODS), rules=rules) as served:
        status, text = await verbose(served)

    assert status == 200
    assert re.search(rf"\[!\]rules degraded: {remark}\n", text)


@pytest.mark.parametrize(("rules", "served"), [(RULES_ONLY, False), (RESOURCE_RULES, True)])
async def test_metrics_k8s_io_is_served_with_resource_rules_only(
    scraped: Prometheus, tmp_path: Path, rules: str, served: bool
) -> None:
    async with api.serving(tmp_path, scraped.url, api.manifests(PODS), rules=rules) as running:
        _, discovered = await running.get("/apis")
        _, v3 = await running.get("/openapi/v3")
        status, _ = await running.get("/apis/metrics.k8s.io/v1beta1/nodes")
        _, text = await verbose(running)

    assert ("metrics.k8s.io" in {each["name"] for each in discovered["groups"]}) is served
    assert ("apis/metrics.k8s.io/v1beta1" in v3["paths"]) is served
    assert status == (200 if served else 404)
    assert ("[+]rules ok: 0 of 0 rules listed" in text) is served


@pytest.mark.usefixtures("real_servers")
async def test_a_prometheus_that_refuses_the_credentials_is_degraded(tmp_path: Path) -> None:
    web = f"basic_auth_users: {{{USER}: {HASHED}}}\n"
    with prometheus.run(tmp_path, web=web, headers={"Authorization": BASIC}) as server:
        async with api.serving(
            tmp_path, server.url, api.manifests(PODS), rules=RULES_ONLY
        ) as served:
            status, text = await verbose(served)

    assert status == 200
    assert "[!]prometheus degraded: refuses the credentials (status 401; set --prometheus-" in text


async def verbose(served: Api) -> tuple[int, str]:
    async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as answer:
        return answer.status, await answer.text()


async def test_a_server_without_prometheus_is_ready_and_reports_its_rules(tmp_path: Path) -> None:
    async with api.serving(
        tmp_path, "http://127.0.0.1:9", api.manifests(PODS), rules=f"rules:\n{GOOD}"
    ) as served:
        ready, text = await verbose(served)
        listed = await served.get(GROUP)
        status, _ = await served.get(f"{GROUP}/namespaces/default/pods/*/gpu_util")

    assert ready == 200
    assert "[!]prometheus degraded: cannot be reached (check --prometheus-url), since 20" in text
    assert "[!]rules degraded: 0 of 1 rules listed by their last relist; cannot list" in text
    assert "127.0.0.1" not in text
    assert [entry["name"] for entry in listed[1]["resources"]] == [
        "namespaces/gpu_util",
        "pods/gpu_util",
    ]
    assert status == 500


def test_all_unreadable_files_are_reported(tmp_path: Path) -> None:
    sources = tuple(
        settings.RulesSource(kind="config", name=str(tmp_path / name))
        for name in ("a.yaml", "b.yaml")
    )

    with pytest.raises(ConfigError) as caught:
        rule_files.load(sources)

    assert [problem.fact for problem in caught.value.problems] == [
        "cannot be read: No such file or directory"
    ] * 2


@pytest.mark.usefixtures("real_servers")
@pytest.mark.parametrize(
    ("lines", "chosen"),
    [
        (
            ['DCGM_FI_DEV_GPU_UTIL{UUID="u",pod="a",namespace="default",hostname="n"} 20'],
            "using --preset=gpu-dcgm:",
        ),
        (['nvidia_gpu_duty_cycle{uuid="u",pod_name="a",namespace_name="default"} 20'], "alibaba"),
        (['up{job="node"} 1'], "using --preset=gpu-dcgm:"),
    ],
    ids=["dcgm", "alibaba", "no GPUs"],
)
async def test_without_rules_matching_presets_are_chosen_and_logged(
    lines: list[str], chosen: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with prometheus.run(tmp_path) as server:
        server.put(*lines)
        async with api.serving(tmp_path, server.url, api.manifests(["default/a"]), ()) as served:
            values = await served.pods("default", "duty_cycle_current")

    (warning,) = [each.message for each in caplog.records if "--preset=auto: using" in each.message]
    assert chosen in warning
    assert values == ({"a": 20} if "pod" in lines[0] else {})


async def test_without_rules_and_prometheus_the_default_preset_is_chosen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with api.serving(tmp_path, "http://127.0.0.1:9", api.manifests(PODS), ()) as served:
        status, _ = await served.get(GROUP)

    assert status == 200
    assert "using --preset=gpu-dcgm: Prometheus cannot be queried" in caplog.text
