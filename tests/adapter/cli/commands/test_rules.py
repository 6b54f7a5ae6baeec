"""`rules`: those of files, and those that the Deployments in a fake cluster have."""

from __future__ import annotations

import asyncio
import json

import pytest
from aiohttp import web

from tools.fakes import kubernetes

RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  name: {as: util}
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: queue_length
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""
DEPLOYMENT = {
    "metadata": {"namespace": "gpu", "name": "adapter"},
    "spec": {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "adapter",
                        "image": "gpu-metrics-adapter:1",
                        "args": [
                            "--prometheus-url=http://p:9090",
                            "--config=/etc/adapter/config.yaml",
                            "--preset=gpu-node",
                            "--team-rules-selector=rules=team",
                        ],
                        "volumeMounts": [{"name": "rules", "mountPath": "/etc/adapter"}],
                    }
                ],
                "volumes": [{"name": "rules", "configMap": {"name": "adapter"}}],
            }
        }
    },
}
OTHER = json.loads(json.dumps(DEPLOYMENT).replace("gpu-metrics", "prometheus"))
TEAMS = [
    {"metadata": {"namespace": "team-a", "name": "mine"}, "data": {"rules.yaml": RULES}},
    {"metadata": {"namespace": "team-b", "name": "empty"}, "data": {"notes.txt": ""}},
]


@pytest.fixture
async def run(aiohttp_server, tmp_path, cli):
    """Run the command against a cluster with these Deployments; return code, output and error."""
    adapter = {"metadata": {"name": "adapter"}, "data": {"config.yaml": RULES}}

    async def run(deployments, *arguments):
        async def answer(request: web.Request) -> web.Response:
            if request.path.endswith("/deployments"):
                return web.json_response({"items": deployments})
            if request.path == "/api/v1/configmaps":
                assert request.query["labelSelector"] == "rules=team"
                return web.json_response({"items": TEAMS})
            assert request.path == "/api/v1/namespaces/gpu/configmaps/adapter"
            return web.json_response(adapter)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(app))
        arguments = ("rules", *arguments, f"--kubeconfig={kubeconfig}")
        return await asyncio.to_thread(cli, *arguments)

    return run


async def test_the_rules_of_an_adapter_have_file_preset_team_and_series(run):
    code, output, _ = await run([OTHER, DEPLOYMENT], "-o", "json")

    found = json.loads(output)
    assert code == 0
    rows = [tuple(each.values()) for each in found["rules"]]
    util, *presets, queue, team_util, _ = rows
    assert util[1:] == ("", "custom", "util", "DCGM_FI_DEV_GPU_UTIL")
    assert queue[1:] == ("", "external", "queue_length", "queue_length")
    assert {source.partition(":")[0] for source, *_ in presets} == {"preset gpu-node"}
    confined = '{__name__="DCGM_FI_DEV_GPU_UTIL",namespace="team-a"}'
    assert team_util[1:] == ("team-a", "custom", "util", confined)
    assert found["notes"][-1].startswith("ConfigMap team-b/empty is refused: ")


async def test_without_an_adapter_it_says_where_none_is(run):
    error = "namespace gpu has no Deployment of gpu-metrics-adapter; name a FILE\n"

    assert await run([OTHER], "-n", "gpu") == (1, "", error)


def test_the_rules_of_files_are_a_table(tmp_path, cli):
    (tmp_path / "rules.yaml").write_text(RULES)

    assert [line.split() for line in cli("rules", "rules.yaml").lines] == [
        ["SOURCE", "TEAM", "API", "METRIC", "SERIES"],
        ["rules.yaml:2", "custom", "util", "DCGM_FI_DEV_GPU_UTIL"],
        ["rules.yaml:7", "external", "queue_length", "queue_length"],
    ]


def test_invalid_rules_are_named(tmp_path, cli):
    (tmp_path / "rules.yaml").write_text("rule: []\n")

    code, _, error = cli("rules", tmp_path)

    assert (code, "error: rule" in error) == (1, True)
