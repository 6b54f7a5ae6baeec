"""The ten complaints that users of the original repeat most: each test shows one not to hold here.

Prometheus is real, and the server is complete; only the objects of the cluster are from a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter import settings
from adapter.settings import rule_files
from rules.lint import check
from tools.presets import api
from tools.presets.api import GROUP, Api
from tools.real import prometheus
from tools.real.prometheus import Prometheus
from tools.waiting import until

pytestmark = pytest.mark.usefixtures("patience")

ROOT = Path(__file__).parents[1]
QUERY = "avg by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})"
EACH = "<<.Series>>{<<.LabelMatchers>>}"
PODS = {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
LONG = "x" * 500
"""A label value; the original reads those of every series at each relist."""
SERIES = 2_000
FLAGS = ("--query-freshness=0s",)
"""Requests of a test follow each other within a second, and must not share a query."""


def rule(series: str, metric: str = "", *, query: str = QUERY, **more: Any) -> dict[str, Any]:
    """Return a rule, by default for pods and named as its series."""
    name = {"name": {"as": metric}} if metric else {}
    resources = {"overrides": PODS}
    return {"seriesQuery": series, "resources": resources, "metricsQuery": query, **name, **more}


RULES = [
    rule("busy"),
    rule("absent"),
    rule("relabeled"),
    rule("busy", "dropped", query="avg(<<.Series>>{<<.LabelMatchers>>})"),
    rule("busy", "refused", query="avg(<<.Series>>{<<.LabelMatchers>>}"),
    rule("late"),
    rule("idle", "queue", onMissing={"value": 0}),
    rule("busy", "undefined", query=f"0 * {EACH} / 0"),
    rule("busy", "infinite", query=f"{EACH} / 0"),
    rule("boards", "mean", query=EACH),
    rule("boards", "highest", query=EACH, aggregate="max"),
    rule('{wide!=""}'),
]


@pytest.fixture(scope="module")
def scraped(empty_prometheus: Prometheus) -> Prometheus:
    for at in (time.time() - 30, *(time.time() + 240 * number for number in range(1, 5))):
        empty_prometheus.put(
            'busy{namespace="n",pod="a"} 20',
            'busy{namespace="n",pod="b"} 40',
            'relabeled{exported_namespace="n",exported_pod="a",namespace="gpu"} 5',
            'boards{namespace="n",pod="a",gpu="0"} 10',
            'boards{namespace="n",pod="a",gpu="1"} 30',
            *(f'wide{{namespace="n",pod="a",wide="{LONG}{i}"}} 1' for i in range(SERIES)),
            at=at,
        )
    return empty_prometheus


@pytest.fixture
async def served(scraped: Prometheus, tmp_path: Path) -> AsyncIterator[Api]:
    pods = api.manifests(["n/a", "n/b"])
    rules = yaml.safe_dump({"rules": RULES})
    async with api.serving(tmp_path, scraped.url, pods, FLAGS, rules=rules) as running:
        yield running


async def test_1_nobody_can_tell_which_stage_failed(served: Api) -> None:
    """An HPA shows `<unknown>`, and the 404 does not say whether series, labels or query failed."""
    causes = {}
    for metric in ("absent", "relabeled", "dropped", "refused", "bussy"):
        status, document = await served.get(f"{GROUP}/namespaces/n/pods/a/{metric}")
        assert status in {404, 500}
        cause = next(each for each in document["details"]["causes"] if "reason" in each)
        causes[metric] = cause["reason"], cause["message"]

    reasons = {metric: reason for metric, (reason, _) in causes.items()}
    assert reasons == {
        "absent": "NoSeries",
        "relabeled": "LabelsMissing",
        "dropped": "LabelDropped",
        "refused": "QueryRefused",
        "bussy": "WrongName",
    }
    assert "exported_pod" in causes["relabeled"][1]
    assert "busy" in causes["bussy"][1]


def test_2_changed_rules_have_no_effect_until_somebody_restarts_the_pods(
    programs: Any, tmp_path: Path
) -> None:
    """Files that change are read again (test_reload); by `kubectl apply -k`, the pods roll out."""
    base = os.path.relpath(ROOT / "manifests/base", tmp_path)
    files = {"name": "gpu-metrics-adapter", "behavior": "merge", "files": ["config.yaml"]}
    generator = [{"namespace": "gpu-metrics-adapter", **files}]
    kustomization = {"resources": [base], "configMapGenerator": generator}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    mounted = []
    for series in ("busy", "busier"):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"rules": [rule(series)]}))
        built = subprocess.check_output([programs.kubectl, "kustomize", tmp_path])
        documents = list(yaml.safe_load_all(built))
        (deployment,) = (each for each in documents if each["kind"] == "Deployment")
        (config,) = (each for each in documents if each["kind"] == "ConfigMap")
        assert series in config["data"]["config.yaml"]
        assert config["metadata"]["name"] in json.dumps(deployment["spec"]["template"])
        mounted.append(config["metadata"]["name"])

    assert len({*mounted}) == 2


async def test_3_all_rules_must_be_in_one_file_of_the_platform_team(
    scraped: Prometheus, tmp_path: Path
) -> None:
    """Teams cannot have files of their own: here several files and presets work together."""
    for team, metric in (("a", "of_a"), ("b", "of_b")):
        text = yaml.safe_dump({"rules": [rule("busy", metric)]})
        (tmp_path / f"{team}.yaml").write_text(text)
    flags = [f"--config={tmp_path}/{team}.yaml" for team in "ab"]
    pods = api.manifests(["n/a"])

    async with api.serving(tmp_path, scraped.url, pods, [*flags, "--preset=gpu-dcgm"]) as served:
        assert await served.pods("n", "of_a") == await served.pods("n", "of_b") == {"a": 20}


async def test_4_a_broad_rule_reads_the_labels_of_every_series(
    scraped: Prometheus, served: Api
) -> None:
    """Relists parse the label sets of all series and need gigabytes: here names are enough."""
    sizes = _response_bytes(scraped)

    assert "pods/wide" in await _listed(served)
    assert "/api/v1/label/:name/values" in sizes
    assert "/api/v1/series" not in sizes
    assert sum(sizes.values()) < SERIES * len(LONG) / 10


async def test_5_metrics_appear_late_and_disappear(scraped: Prometheus, served: Api) -> None:
    """A metric exists only after the next relist: here one with a fixed series is answered."""
    before = await served.pods("n", "late")

    scraped.put('late{namespace="n",pod="a"} 7')
    prometheus.wait_for(lambda: scraped.query("late"), "the series exists")

    assert before == {}
    assert await served.pods("n", "late") == {"a": 7}


async def test_6_one_bad_rule_or_a_short_failure_of_prometheus_empties_everything(
    real_servers: None, tmp_path: Path
) -> None:
    """A rule that fails stops the relist, and discovery is empty: here the others are served."""
    rules = yaml.safe_dump({"rules": [rule('{__name__=~"[broken"}'), rule("busy")]})
    # By default, a sample must be no older than the interval: 1 s is too short on a busy machine.
    flags = [*FLAGS, "--metrics-relist-interval=1s", "--metrics-max-age=1m"]
    pods = api.manifests(["n/a"])
    with prometheus.run(tmp_path) as server:
        server.put('busy{namespace="n",pod="a"} 20')
        async with api.serving(tmp_path, server.url, pods, flags, rules=rules) as served:
            assert await served.pods("n", "busy") == {"a": 20}
            assert "pods/busy" in await _listed(served)
            server.kill()

            async def fails() -> bool:
                return "rules[1]" in await _rules_health(served)

            await until(fails)
            assert "pods/busy" in await _listed(served)
            server.start()
            server.put('busy{namespace="n",pod="a"} 30')

            async def answers() -> bool:
                return (await served.get(f"{GROUP}/namespaces/n/pods/*/busy"))[0] == 200

            await until(answers)
            assert await served.pods("n", "busy") == {"a": 30}


async def test_7_an_idle_service_has_no_metric_and_cannot_have_a_default(served: Api) -> None:
    """Without series, scaling stops with 404: here a rule can have a value for such objects."""
    assert await served.pods("n", "queue") == {"a": 0, "b": 0}


async def test_8_nan_and_infinity_become_numbers(served: Api) -> None:
    """NaN becomes 0 and Inf a huge negative number: here both mean that there is no value."""
    for metric in ("undefined", "infinite"):
        status, document = await served.get(f"{GROUP}/namespaces/n/pods/a/{metric}")

        assert await served.pods("n", metric) == {}
        assert (status, document["details"]["causes"][0]["reason"]) == (404, "NotFinite")


async def test_9_of_several_series_of_one_object_an_arbitrary_one_is_used(served: Api) -> None:
    """A pod with two GPUs gets the value of either: here the average, or what the rule says."""
    assert await served.pods("n", "mean") == {"a": 20}
    assert await served.pods("n", "highest") == {"a": 30}


async def test_10_two_rules_with_one_name_have_undefined_results(
    scraped: Prometheus, tmp_path: Path
) -> None:
    """Nothing says which of two rules wins: here it is the later one, and the loser is reported."""
    text = yaml.safe_dump({"rules": [rule("boards", "same"), rule("busy", "same")]})
    file = tmp_path / "same.yaml"
    file.write_text(text)

    (warning,) = check.warnings(
        rule_files.load((settings.RulesSource(kind="config", name=str(file)),))
    )
    async with api.serving(tmp_path, scraped.url, api.manifests(["n/b"]), rules=text) as served:
        assert await served.pods("n", "same") == {"b": 40}
    assert "only this later rule is queried" in warning.fact


async def _listed(served: Api) -> set[str]:
    _, document = await served.get(GROUP)
    return {each["name"] for each in document["resources"]}


async def _rules_health(served: Api) -> str:
    async with served.session.get(f"{served.url}/readyz?verbose", ssl=False) as response:
        return await response.text()


def _response_bytes(server: Prometheus) -> dict[str, float]:
    """Return what Prometheus has sent so far, by path of its API, in bytes."""
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    name = 'prometheus_http_response_size_bytes_sum{handler="'
    sizes = (line.removeprefix(name).split('"} ') for line in lines if line.startswith(name))
    return {path: float(size) for path, size in sizes if path.startswith("/api/v1/")}
