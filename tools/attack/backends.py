"""Backends of the attacked adapter, two processes: `python -m tools.attack.backends NAME FOLDER`.

A fake API server that allows the autoscaler everything and everybody else nothing, each review
taking REVIEW_SECONDS; and a fake Prometheus, in a process of its own, whose answers to queries with
`gpu!=` are large. A request to TENANTS_PODS gives the namespace TENANT pods with large labels; one
below OBJECTS creates the objects of a case of `tools.attack.hostile`, or removes them all.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import ssl
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aiohttp import test_utils, web

from tools.attack import hostile
from tools.attack.hostile import CASES, HOSTILE
from tools.bench import processes
from tools.documents import Document
from tools.fakes import kubernetes, prometheus

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
REVIEW_SECONDS = 0.02
NAMESPACE, POD = "default", "bert-0"
CROWD, CROWD_PODS = "crowd", 50
"""A namespace with many pods that have values."""
MANY, MANY_PODS = "many", 850
"""A namespace whose values take 250 kB. Their names still fit into the URL of a query."""
TENANT, TENANT_PODS = "tenant", 300
TENANTS_PODS = f"/api/v1/namespaces/{TENANT}/pods"
TEAMS = 40
"""Other teams, team-0 and so on, each with a rule for the metric TEAM_METRIC of its pod."""
TEAM_METRIC = "team_load"
TEAM_VALUE = 1001
"""Value of the first team; the others' are one more each."""
OBJECTS = "/objects/"
_HOSTILE_PODS = 100
_LISTS = {
    "/api/v1/configmaps": ("configmaps", "ConfigMap"),
    "/apis/autoscaling/v2/horizontalpodautoscalers": (
        "horizontalpodautoscalers",
        "HorizontalPodAutoscaler",
    ),
}
"""Path -> the resource and the kind of hostile objects."""
_RESOURCES = {kind: resource for resource, kind in _LISTS.values()}
_CHANGE_SECONDS = 0.01
_SLOW_SECONDS = 60.0
_PROBE = 'namespace=""'
"""Part of the selector by which the adapter finds out whether `match[]` is supported."""
LABELLED = "labelled"
"""A series name with 100 000 label names."""
_LABEL_BYTES = 900_000
_LARGE = re.compile(rb'"large": "([0-9]+)"')
"""What stands for the labels of one of the tenant's pods, none of which two pods share."""

_LABELS = f'"exported_namespace":"{NAMESPACE}","exported_pod":"{POD}","UUID":"u","gpu":"0"'
_NAME = "DCGM_FI_DEV_GPU_UTIL"
_SAMPLE = f'{{"metric":{{{_LABELS}}},"value":[1790000000.0,"22"]}}'
_VECTOR = '{"status":"success","data":{"resultType":"vector","result":[%s]}}'


def _samples(namespace: str, pods: int) -> str:
    """Return a sample for each pod of a namespace, after that of POD: one query may be for both."""
    sample = _SAMPLE.replace(NAMESPACE, namespace)
    return ",".join([_SAMPLE, *(sample.replace(POD, f"p{number}") for number in range(pods))])


@cache
def _labels_of_labelled() -> str:
    names = ["namespace", "pod", *(f"label_{n}" for n in range(100_000))]
    return json.dumps({"status": "success", "data": names})


@cache
def _crowds() -> Mapping[str, str]:
    return {CROWD: _samples(CROWD, CROWD_PODS), MANY: _samples(MANY, MANY_PODS)}


@cache
def _large_answer_of_a_team() -> str:
    return _VECTOR % ",".join(
        json.dumps(
            {"metric": _OF_A_TEAM | {"other": f"{number:0100}"}, "value": [1790000000.0, "1"]}
        )
        for number in range(70_000)
    )


@cache
def _large_answer() -> bytes:
    return (_VECTOR % ",".join([_SAMPLE] * (57 * 2**20 // len(_SAMPLE)))).encode()


_TEAM = re.compile(r'namespace="(team-([0-9]+))"')
_OWN_NAME = re.compile(rf"\b(?:{TEAM_METRIC}|hostile_[a-z0-9_]+|h{{99,}})")
"""Name of a series of a team, in a query or a selector."""
_OF_A_TEAM = {"namespace": HOSTILE, "pod": "p0"}
_FALLBACK = "/apis/external.metrics.k8s.io/v1beta1"
_FALLBACK_ITEM = {
    "metricName": "jobs",
    "metricLabels": {"queue": "x" * 900},
    "timestamp": "2026-11-01T00:00:00Z",
    "value": "1",
}


def _decide(spec: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": spec.get("user") == AUTOSCALER}


@web.middleware
async def _large_labels(request: web.Request, handler: Any) -> web.StreamResponse:
    response: web.StreamResponse = await handler(request)
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        response.body = _LARGE.sub(_labels, response.body)
    return response


def _labels(found: re.Match[bytes]) -> bytes:
    texts = (
        b'"%b-%d-%b":"v"' % (found[1], number, b"x" * 200) for number in range(_LABEL_BYTES // 216)
    )
    return b",".join(texts)


def _tenant(cluster: kubernetes.Cluster) -> Any:
    """Return the middleware that adds or removes the tenant's pods, and makes clients list."""

    @web.middleware
    async def change(request: web.Request, handler: Any) -> web.StreamResponse:
        if request.path != TENANTS_PODS or request.method == "GET":
            response: web.StreamResponse = await handler(request)
            return response
        pods = cluster.objects["pods"]
        pods[:] = [each for each in pods if each["metadata"]["namespace"] != TENANT]
        for number in range(TENANT_PODS if request.method == "POST" else 0):
            labels = {"app": "bert", "large": f"{number}"}
            cluster.add("pods", TENANT, f"pod-{number}", labels=labels, phase="Running")
        cluster.forget()
        cluster.end_watches()
        return web.Response()

    return change


async def _slow_reviews(request: web.Request, handler: Any) -> web.StreamResponse:
    if request.path == kubernetes.ACCESS_REVIEWS:
        await asyncio.sleep(REVIEW_SECONDS)
    response: web.StreamResponse = await handler(request)
    return response


async def _answer(request: web.Request, received: prometheus.Received) -> web.StreamResponse:
    match, query = (received.parameters.get(each, "") for each in ("match[]", "query"))
    own = _OWN_NAME.search(match or query)
    if received.path.endswith("/series"):
        body = f'{{"status":"success","data":[{{"__name__":"{_NAME}",{_LABELS}}}]}}'
    elif received.path.endswith("/values"):
        name = own[0] if own else LABELLED if LABELLED in match else _NAME
        body = json.dumps({"status": "success", "data": [] if _PROBE in match else [name]})
    elif received.path.endswith("/labels") and LABELLED in match:
        body = _labels_of_labelled()
    elif received.path.endswith("/labels") and own:
        body = '{"status":"success","data":["namespace","pod"]}'
    elif received.path.endswith("/labels"):
        body = '{"status":"success","data":["exported_namespace","exported_pod","UUID","gpu"]}'
    elif "gpu!=" in query:
        return web.Response(body=_large_answer(), content_type="application/json")
    elif query.startswith("group by (__name__)"):
        name = own[0] if own else _NAME
        body = _VECTOR % json.dumps({"metric": {"__name__": name}, "value": [1790000000.0, "1"]})
    elif hostile.SLOW in query:
        await asyncio.sleep(_SLOW_SECONDS)
        body = _VECTOR % ""
    elif hostile.LARGE in query:
        body = _large_answer_of_a_team()
    elif found := _TEAM.search(query):
        sample = {"namespace": found[1], "pod": POD}
        value = [1790000000.0, str(TEAM_VALUE + int(found[2]))]
        body = _VECTOR % json.dumps({"metric": sample, "value": value})
    elif "label_replace(" in query:
        body = _VECTOR % ""  # which of several labels are in use: nothing is known
    else:
        body = _VECTOR % next((text for name, text in _crowds().items() if name in query), _SAMPLE)
    return web.Response(text=body, content_type="application/json")


class _Objects:
    """Serves the objects of a case beside those of the cluster, and changes them all the time."""

    def __init__(self, cluster: kubernetes.Cluster) -> None:
        self._cluster = cluster
        self._objects: dict[str, Document] = {}
        """By path, such as hostile/configmaps/rules-0."""
        self._changes: asyncio.Task[None] | None = None

    @web.middleware
    async def serve(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Answer requests below OBJECTS, those for hostile objects, and for a token."""
        if request.path.startswith(OBJECTS):
            self._set(CASES.get(request.path.removeprefix(OBJECTS)))
            return web.Response()
        if request.path.endswith("/external-metrics/token"):
            requested = await request.json()
            return web.json_response({**requested, "status": {"token": "x"}}, status=201)
        if request.method == "GET" and "watch" not in request.query and request.path in _LISTS:
            return await self._list(request)
        name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
        found = self._objects.get(f"{request.path.partition('/namespaces/')[2]}/{name}")
        if request.method == "GET" and found is not None:
            return web.json_response({"metadata": {}, "items": [found]})
        response: web.StreamResponse = await handler(request)
        return response

    def _set(self, case: hostile.Case | None) -> None:
        kept = self._cluster.objects["configmaps"]
        if self._changes is not None:
            self._changes.cancel()
            self._changes = None
            kept[:] = [each for each in kept if each["metadata"]["namespace"] != HOSTILE]
        objects = [] if case is None else list(case.objects())
        if case is not None and case.changing:
            kept += objects
            self._changes = asyncio.create_task(self._change())
            objects = []
        self._objects = {
            f"{HOSTILE}/{_RESOURCES[each['kind']]}/{each['metadata']['name']}": each
            for each in objects
        }
        self._cluster.forget()
        self._cluster.end_watches()

    async def _list(self, request: web.Request) -> web.StreamResponse:
        resource, kind = _LISTS[request.path]
        objects = [each for each in self._cluster.objects.get(resource, ()) if "kind" in each]
        objects += [each for each in self._objects.values() if each["kind"] == kind]
        partial = "as=PartialObjectMetadataList" in request.headers["Accept"]
        start = int(request.query.get("continue", "0"))
        end = start + (int(request.query.get("limit", "0")) or len(objects))
        metadata = {"resourceVersion": str(self._cluster.version)}
        if end < len(objects):
            metadata["continue"] = str(end)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            await response.write(b'{"metadata": %b, "items": [' % json.dumps(metadata).encode())
            for number, each in enumerate(objects[start:end]):
                item = {"metadata": each["metadata"]} if partial else each
                await response.write(b"," * bool(number) + json.dumps(item).encode())
            await response.write(b"]}")
        return response

    async def _change(self) -> None:
        for number in itertools.count():
            name = f"rules-{number % 100}"
            changed = hostile.config_map(name, hostile.rule(f"hostile_load_{number}"))
            self._cluster.put("configmaps", HOSTILE, name, data=changed["data"])
            await asyncio.sleep(_CHANGE_SECONDS)


async def _fallback(request: web.Request) -> web.StreamResponse:
    """Answer as another server of external metrics: with 57 MB."""
    if request.path == _FALLBACK:
        resource = {"name": "jobs", "namespaced": True, "kind": "ExternalMetricValueList"}
        return web.json_response({"kind": "APIResourceList", "resources": [resource]})
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    item = json.dumps(_FALLBACK_ITEM).encode() + b","
    with contextlib.suppress(ConnectionError):
        await response.write(b'{"kind": "ExternalMetricValueList", "items": [')
        for _ in range(57):
            await response.write(item * 1000)
        await response.write(item[:-1] + b"]}")
    return response


def _add_teams(cluster: kubernetes.Cluster) -> None:
    for number in range(TEAMS):
        namespace = f"team-{number}"
        cluster.add("pods", namespace, POD, phase="Running")
        rules = hostile.config_map("rules", hostile.rule(TEAM_METRIC), namespace=namespace)
        cluster.objects.setdefault("configmaps", []).append(rules)
    for number in range(_HOSTILE_PODS):
        cluster.add("pods", HOSTILE, f"p{number}", phase="Running")


async def serve_prometheus(folder: Path) -> None:
    """Serve the fake Prometheus until the process ends; write its port into the folder."""
    fake = test_utils.TestServer(prometheus.Prometheus(_answer).app())
    await fake.start_server()
    processes.write_result(folder, "prometheus", fake.port or 0)
    other = web.Application()
    other.router.add_get("/{path:.*}", _fallback)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server = test_utils.TestServer(other, scheme="https")
    await server.start_server(ssl=context)
    processes.write_result(folder, "fallback", server.port or 0)
    await asyncio.Event().wait()


async def serve_api(folder: Path) -> None:
    """Serve the fake API server until the process ends; write its kubeconfig into the folder."""
    cluster = kubernetes.Cluster()
    cluster.resources += (kubernetes.CONFIGMAPS, kubernetes.HPAS)
    cluster.put(*kubernetes.TRUST, data=processes.trust(folder))
    cluster.add("pods", NAMESPACE, POD, labels={"app": "bert"}, phase="Running")
    for namespace, pods in ((CROWD, CROWD_PODS), (MANY, MANY_PODS)):
        for number in range(pods):
            cluster.add("pods", namespace, f"p{number}", phase="Running")
    _add_teams(cluster)
    cluster.decide = _decide
    app = cluster.app()
    app.middlewares.extend(
        (web.middleware(_slow_reviews), _tenant(cluster), _large_labels, _Objects(cluster).serve)
    )
    api_server = test_utils.TestServer(app)
    await api_server.start_server()
    kubernetes.kubeconfig(folder, api_server)
    processes.write_result(folder, "api", api_server.port or 0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run({"prometheus": serve_prometheus, "api": serve_api}[sys.argv[1]](Path(sys.argv[2])))
