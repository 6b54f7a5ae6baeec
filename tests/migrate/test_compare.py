"""`migrate --compare` with the recorded answers of the original."""

from __future__ import annotations

import asyncio
import json

import pytest
import yaml
from aiohttp import web

from adapter.cli import program
from adapter.cli.doctor import comparison
from adapter.cli.doctor.client import connected
from rules.errors import UnreadableError
from rules.findings import State
from rules.hpa.reading import ApiReply
from rules.migration.comparison import differences
from tests.migrate.test_migrate import CONFIG_MAP, DEPLOYMENT, RULES
from tests.parity.test_parity import (
    CASES,
    SAME,
    _ours,
    catalog,  # noqa: F401 - a fixture
    kinds,  # noqa: F401 - a fixture
)
from tools.fakes import kubernetes

VALUES = [
    name
    for name in SAME
    if name.startswith(("values", "errors", "failures"))
    and (
        "MetricValueList" in (CASES[name].get("body") or "")
        or "could not find the metric" in (CASES[name].get("body") or "")
    )
]
PODS = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/http_requests_per_second"
PODS_METRIC = "default/web: Pods metric http_requests_per_second"
HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "http_requests_per_second"},
                    "target": {"type": "AverageValue", "averageValue": "5"},
                },
            },
            {
                "type": "External",
                "external": {
                    "metric": {"name": "queue_len"},
                    "target": {"type": "Value", "value": "5"},
                },
            },
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50},
                },
            },
        ],
    },
}


def reply(status, body):
    document = json.loads(body)
    if status == 200:
        return ApiReply(document=document)
    return ApiReply(status=status, message=document["message"])


def recorded(name):
    return reply(CASES[name]["status"], CASES[name]["body"])


def changed(name, **values):
    """Return a recorded answer with other values of some objects; None removes one."""
    answer = recorded(name)
    items = answer.document["items"]
    for item in list(items):
        object_name = item.get("describedObject", {}).get("name", "queue").replace("-", "_")
        if object_name in values:
            item["value"] = values[object_name]
            if item["value"] is None:
                items.remove(item)
    return answer


def texts(original, ours):
    return [(each.fact, each.state is State.FAILURE) for each in differences(original, ours)]


@pytest.mark.parametrize("name", VALUES)
async def test_our_answers_do_not_differ_from_the_recorded_ones(name, kinds, catalog):  # noqa: F811
    ours = await _ours(CASES[name], kinds, catalog)

    assert texts(recorded(name), reply(ours.status, ours.body)) == []


def test_many_recorded_answers_are_compared():
    assert len(VALUES) > 20


async def test_a_numbered_difference_is_named_and_does_not_matter(kinds, catalog):  # noqa: F811
    ours = await _ours(CASES["errors-004"], kinds, catalog)

    ((text, matters),) = texts(recorded("errors-004"), reply(ours.status, ours.body))
    assert text.startswith("original 404 (")
    assert text.endswith("ours 0 values: difference 1 in docs/migration.md")
    assert not matters


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (changed("values-003", pod_a="21"), ("Pod pod-a: original 20500m, ours 21", False)),
        (changed("values-003", pod_a="30"), ("Pod pod-a: original 20500m, ours 30", True)),
        (changed("values-003", pod_b=None), ("Pod pod-b: 20500m, not in ours", True)),
        (ApiReply(document={"items": [{}]}), ("an answer is not a list of values: 'value'", True)),
        (ApiReply(status=500, message="no"), ("original 2 values, ours 500 (no)", True)),
        (ApiReply(status=0, message="late"), ("original 2 values, ours no answer (late)", True)),
    ],
)
def test_each_difference_is_told(ours, expected):
    assert texts(recorded("values-003"), ours) == [expected]


def test_differences_of_external_metrics_and_failures():
    ((text, matters),) = texts(recorded("values-015"), changed("values-015", queue="0"))
    assert (text, matters) == (
        "{__name__=queue_len,namespace=default,queue=q1}: original 20500m, ours 0",
        True,
    )
    ((text, _),) = texts(ApiReply(status=404, message="a"), ApiReply(status=500, message="b"))
    assert text == "original 404 (a), ours 500 (b)"
    ((text, matters),) = texts(ApiReply(status=404, message="a"), recorded("values-003"))
    assert (text, matters) == ("original 404 (a), ours 2 values", True)
    ((text, _),) = texts(changed("values-003", pod_b=None), recorded("values-003"))
    assert text == "Pod pod-b: 20500m, not in the original"
    missing = ApiReply(status=404, message="a")
    assert texts(missing, missing) == []
    assert texts(ApiReply(document={"items": []}), missing) == [
        ("original 0 values, ours 404 (a): difference 31 in docs/migration.md", False)
    ]


@pytest.mark.parametrize("statuses", [(0, 0), (401, 401), (403, 403), (500, 503)])
def test_servers_that_both_fail_are_not_compared(statuses):
    (found,) = differences(*(ApiReply(status=each, message="no") for each in statuses))

    assert comparison.line(found).startswith("not compared: neither server answered: original ")


class Server:
    """Fake API server, or metrics server, with fixed documents and other answers by path."""

    def __init__(self, documents, answers=()):
        found = {path: ApiReply(document=each) for path, each in documents.items()}
        self.answers = {**found, **dict(answers)}
        self.tokens = set()

    def app(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self.handle)
        return app

    async def handle(self, request):
        self.tokens.add(request.headers.get("Authorization"))
        answer = self.answers.get(request.path, ApiReply(status=404, document={"message": "none"}))
        return web.json_response(answer.document, status=answer.status)


CUSTOM, EXTERNAL = (f"/apis/{group}.metrics.k8s.io" for group in ("custom", "external"))
API = {
    "/apis/autoscaling/v2/horizontalpodautoscalers": {"items": [HPA]},
    "/apis/apps/v1": {"resources": [{"name": "deployments", "kind": "Deployment"}]},
    "/apis/apps/v1/namespaces/default/deployments/web/scale": {
        "spec": {"replicas": 2},
        "status": {"replicas": 2, "selector": "app=demo"},
    },
    CUSTOM: {"preferredVersion": {"version": "v1beta1"}, "versions": [{"version": "v1beta1"}]},
    "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io": {
        "spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}
    },
}
ANSWERS = {
    PODS: recorded("values-003"),
    f"{EXTERNAL}/v1beta1/namespaces/default/queue_len": recorded("values-015"),
}


@pytest.fixture
async def servers(aiohttp_server, tmp_path):
    original = Server(API, ANSWERS)
    ours = Server({}, {**ANSWERS, PODS: changed("values-003", pod_a="30")})
    api, other = [await aiohttp_server(each.app()) for each in (original, ours)]
    token = tmp_path / "token"
    token.write_text("of-the-controller")
    return original, ours, kubernetes.kubeconfig(tmp_path, api), str(other.make_url("")), str(token)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["", "monitoring/prometheus-adapter"])
async def test_all_autoscalers_of_a_cluster_are_compared(servers, text):
    original, ours, kubeconfig, url, token = servers
    async with (
        connected(str(kubeconfig)) as api,
        comparison.server(text, api, token) as first,
        comparison.server(url, api, token) as second,
    ):
        found = await comparison.compare(api, first, second)

    assert list(map(comparison.line, found)) == [
        f"{PODS_METRIC}: differs: Pod pod-a: original 20500m, ours 30",
        "default/web: External metric queue_len: same",
    ]
    assert ours.tokens == {"Bearer of-the-controller"}
    assert "Bearer of-the-controller" not in original.tokens


async def test_the_command_fails_for_a_difference_that_matters(servers, tmp_path, capsys):
    _, ours, kubeconfig, url, token = servers
    file = tmp_path / "hpa.yaml"
    file.write_text(json.dumps({**HPA, "metadata": {"name": "web"}}))
    line = ["migrate", "--compare", str(file), f"--ours={url}", f"--token-file={token}"]
    line.append(f"--kubeconfig={kubeconfig}")

    assert await asyncio.to_thread(program.main, line) == 1
    ours.answers[PODS] = recorded("values-003")
    assert await asyncio.to_thread(program.main, line) == 0

    output = capsys.readouterr().out
    assert f"{PODS_METRIC}: differs: Pod pod-a" in output
    assert f"{PODS_METRIC}: same" in output


async def test_files_without_autoscalers_are_refused(servers, tmp_path, capsys):
    file = tmp_path / "other.yaml"
    file.write_text("{apiVersion: v1, kind: Service, metadata: {name: s}}")
    line = ["migrate", "--compare", str(file), "--ours=http://127.0.0.1:1"]

    assert await asyncio.to_thread(program.main, line) == 1
    assert "contains no HorizontalPodAutoscaler" in capsys.readouterr().out


async def test_a_cluster_is_migrated_with_the_requests_of_its_client(
    aiohttp_server, tmp_path, capsys
):
    found = {
        "/apis/apps/v1/deployments": {"items": [DEPLOYMENT]},
        "/api/v1/namespaces/monitoring/configmaps/rules": CONFIG_MAP,
    }
    api = await aiohttp_server(Server(found).app())
    line = ["migrate", "--cluster", f"--output={tmp_path / 'out'}"]
    line.append(f"--kubeconfig={kubernetes.kubeconfig(tmp_path, api)}")

    assert await asyncio.to_thread(program.main, line) == 0

    values = yaml.safe_load((tmp_path / "out" / "values.yaml").read_text())
    assert values["rules"]["custom"] == RULES["rules"]
    assert "cluster:1: same: spec.replicas" in capsys.readouterr().out


async def test_autoscalers_that_cannot_be_read_are_named(servers):
    *_, kubeconfig, url, token = servers
    gone = json.loads(json.dumps(HPA))
    gone["spec"]["scaleTargetRef"]["name"] = "gone"
    old = {"metadata": HPA["metadata"], "spec": {"minReplicas": 1}}
    async with connected(str(kubeconfig)) as api, comparison.server(url, api, token) as second:
        found = await comparison.compare(api, api, second, [gone, old])

    assert list(map(comparison.line, found)) == [
        "default/web: not compared: none",
        "default/web: not compared: it is not an HPA of autoscaling/v2 that the API server accepts",
    ]


async def test_an_autoscaler_without_a_name_is_not_compared(servers, tmp_path, capsys):
    *_, kubeconfig, url, _ = servers
    file = tmp_path / "hpa.yaml"
    file.write_text(json.dumps({key: HPA[key] for key in ("apiVersion", "kind", "spec")}))
    line = ["migrate", "--compare", str(file), f"--ours={url}", f"--kubeconfig={kubeconfig}"]

    assert await asyncio.to_thread(program.main, line) == 1
    assert "default/(without a name): not compared: " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "token", "words"),
    [
        ("monitoring/other", None, "port-forward service/other 6443:443"),
        ("https://127.0.0.1:1", "/none", "/none"),
        ("http://metrics.example", "/none", "in clear text"),
        ("https://[", None, "URL"),
        ("https://", None, "URL"),
    ],
)
async def test_servers_that_cannot_be_reached_are_explained(servers, text, token, words):
    async with connected(str(servers[2])) as api:
        with pytest.raises(UnreadableError, match=words):
            async with comparison.server(text, api, token):
                pass
