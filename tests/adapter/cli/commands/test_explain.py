"""`explain`: what it requests, prints and returns. tests/walkthroughs has a real control plane."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from aiohttp import web

from rules.hpa.reading import ApiReply
from tests.rules.hpa import test_reading
from tests.rules.hpa.documents import pods_metric
from tools.fakes import kubernetes

CUSTOM = test_reading.CUSTOM
METRIC = f"{CUSTOM}/v1beta2/namespaces/default/pods/*/util"
EXPLANATION = {
    "kind": "Explanation",
    "request": {
        "metric": "util",
        "resource": "pods",
        "namespace": "default",
        "name": "*",
        "labelSelector": "",
        "metricLabelSelector": "",
    },
    "rules": {"count": 0, "items": []},
    "objects": None,
    "queries": [],
    "values": {"count": 0, "items": []},
    "causes": [],
    "outcome": "noValue",
    "verdict": "util of pods/* in namespace default has no value: NotScraped: no GPU",
}


@pytest.fixture
def api_documents():
    """Documents by path; with `?explain=true`, those whose path ends in it."""
    return test_reading.documents(pods_metric()) | {f"{METRIC}?explain=true": EXPLANATION}


@pytest.fixture
async def run(api_documents, aiohttp_server, tmp_path, cli):
    """Run the command against a server of these documents; return exit code and output."""

    async def answer(request: web.Request) -> web.Response:
        suffix = "?explain=true" if request.query.get("explain") == "true" else ""
        missing = ApiReply(status=404, message="the server could not find the requested resource")
        reply = api_documents.get(request.path + suffix, missing)
        if isinstance(reply, ApiReply):
            status = {"kind": "Status", "message": reply.message}
            return web.json_response(status, status=reply.status)
        return web.json_response(reply)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    kubeconfig = kubernetes.kubeconfig(tmp_path, await aiohttp_server(app))

    async def run(*arguments):
        arguments = ("explain", *arguments, f"--kubeconfig={kubeconfig}")
        return (await asyncio.to_thread(cli, *arguments))[:2]

    return run


def last_line(output: str) -> str:
    return output.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "flags", "path"),
    [
        ("nodes/n1", (), f"{CUSTOM}/v1beta2/nodes/n1/util"),
        ("namespaces/team-a", (), f"{CUSTOM}/v1beta2/namespaces/team-a/metrics/util"),
        (
            "default",
            ("--metric-selector=queue=a",),
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/util",
        ),
    ],
)
async def test_the_path_is_that_of_the_metric(run, api_documents, where, flags, path):
    api_documents[f"{path}?explain=true"] = EXPLANATION | {"outcome": "values"}

    code, output = await run(where, "util", "--output=json", *flags)

    assert (code, json.loads(output)["outcome"]) == (0, "values")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "reply", "verdict"),
    [
        (CUSTOM, None, "has no APIService for custom.metrics.k8s.io: the adapter, or this part of"),
        (
            METRIC,
            ApiReply(status=503, message="the server is currently unable to handle the request"),
            (
                "the APIService for custom.metrics.k8s.io is not available: the server is "
                "currently unable to handle the request. Run: gpu-metrics-adapter doctor"
            ),
        ),
        (
            METRIC,
            ApiReply(status=403, message="it also needs X"),
            "you lack a right: it also needs X",
        ),
        (METRIC, {"kind": "MetricValueList"}, "a program that does not explain: another adapter"),
        (
            METRIC,
            ApiReply(status=504, message="timeout"),
            "timeout. Run: gpu-metrics-adapter doctor",
        ),
        (METRIC, EXPLANATION | {"outcome": "unknown", "verdict": "see the log"}, "see the log"),
    ],
)
async def test_what_cannot_be_told_is_not_no_value(run, api_documents, path, reply, verdict):
    if reply is None:
        del api_documents[path]
    else:
        api_documents[path if path == CUSTOM else f"{path}?explain=true"] = reply

    code, output = await run("default/pods/*", "util")

    assert code == 2
    assert last_line(output).startswith("VERDICT: ")
    assert verdict in last_line(output)


async def test_too_many_at_a_time_is_said(run, api_documents):
    # The client repeats a request only if the response has Retry-After.
    api_documents[f"{METRIC}?explain=true"] = ApiReply(status=429, message="Too many requests")

    code, output = await run("default/pods/*", "util")

    assert (code, "explains only two requests at a time" in output) == (2, True)


async def test_an_hpa_without_a_value_has_the_verdict_of_its_metric(run, api_documents):
    path = test_reading.VALUES
    api_documents |= {path: {"items": []}, f"{path}?explain=true": EXPLANATION}

    code, output = await run("hpa", "default/gpu-hpa")

    assert code == 1
    assert "Why metric 1 has no value\nmetric    util of pods/*\n" in output
    assert last_line(output) == (
        "VERDICT: default/gpu-hpa keeps 1 replica of deployment/serving: util of pods/* in "
        "namespace default has no value: NotScraped: no GPU"
    )
    code, output = await run("hpa", "default/gpu-hpa", "-o", "json")
    document = json.loads(output)
    assert (code, document["desiredReplicas"]) == (1, 1)
    assert document["explanations"] == [EXPLANATION]


async def test_an_hpa_whose_pods_are_not_ready_has_no_verdict_of_its_metric(run, api_documents):
    api_documents[test_reading.PODS] = {"items": [test_reading.pod("p0", "Pending")]}
    api_documents[f"{test_reading.VALUES}?explain=true"] = EXPLANATION | {"outcome": "values"}

    code, output = await run("hpa", "default/gpu-hpa")

    assert code == 1
    assert "did not receive metrics for targeted pods" in last_line(output)
    assert last_line(output).endswith("once it is ready: `kubectl describe` those of the target")


async def test_an_hpa_is_of_the_given_namespace_or_that_of_the_context(run):
    """The fake server has `default/gpu-hpa` only."""
    of_context, _ = await run("hpa", "gpu-hpa")
    given, _ = await run("hpa", "gpu-hpa", "--namespace=default")
    other, _ = await run("hpa", "gpu-hpa", "-n", "team-a")

    assert (of_context, given, other) == (0, 0, 2)


async def test_an_hpa_that_does_not_exist_cannot_be_told(run):
    code, output = await run("hpa", "default/nope")

    assert code == 2
    assert output == (
        "VERDICT: cannot tell: the server could not find the requested resource. Correct namespace "
        "and name: `kubectl get hpa -A` lists them\n"
    )


async def test_an_hpa_without_its_deployment_names_it_and_its_reference(run, api_documents):
    (scale,) = [each for each in api_documents if each.endswith("/scale")]
    api_documents[scale] = ApiReply(status=404, message='deployments.apps "serving" not found')

    code, output = await run("hpa", "default/gpu-hpa")

    assert code == 2
    assert last_line(output) == (
        'VERDICT: cannot tell: deployments.apps "serving" not found. Correct scaleTargetRef in the '
        "HPA"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("a//b", "util"),
        ("a/b/c/d", "util"),
        ("hpa", "a/b/c"),
        ("hpa",),
        ("default/pods/*",),
        ("hpa", "web", "-n", "a/b"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(arguments, cli):
    code, _, error = cli("explain", *arguments)

    assert code == 2
    assert re.search(": (expected NAMESPACE/|is missing|must be the name of a namespace)", error)


def test_without_a_cluster_it_says_what_to_set(monkeypatch, tmp_path, cli):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    code, output, _ = cli("explain", "default", "util")

    assert code == 2
    assert output.endswith(". Set --kubeconfig or --context\n")


async def test_kubeconfig_is_found_as_by_kubectl(run, monkeypatch, tmp_path, cli):
    files = (tmp_path / "absent", tmp_path / "kubeconfig")
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, files)))

    assert (await asyncio.to_thread(cli, "explain", "default/pods/*", "util")).code == 1
