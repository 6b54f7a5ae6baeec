"""Backends of the attacked adapter, as one process: `python -m tests.attack.backends FOLDER`.

A fake API server that allows the autoscaler everything and everybody else nothing, each review
taking REVIEW_SECONDS; and a fake Prometheus whose answers to queries with `gpu!=` are large. A
request to TENANTS_PODS gives the namespace TENANT pods with large labels.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

from aiohttp import test_utils, web

from tests.bench import processes
from tests.fakes import kubernetes, prometheus

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
REVIEW_SECONDS = 0.02
NAMESPACE, POD = "default", "bert-0"
CROWD, CROWD_PODS = "crowd", 50
"""A namespace with many pods that have values."""
MANY, MANY_PODS = "many", 850
"""A namespace whose values take 250 kB. Their names still fit into the URL of a query."""
TENANT, TENANT_PODS = "tenant", 300
TENANTS_PODS = f"/api/v1/namespaces/{TENANT}/pods"
_PROBE = 'namespace=""'
"""Part of the selector by which the adapter finds out whether `match[]` is supported."""
LABELLED = "labelled"
"""A series name with 100 000 label names."""
_LABELS_OF_LABELLED = json.dumps(
    {"status": "success", "data": ["namespace", "pod", *(f"label_{n}" for n in range(100_000))]}
)
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


_CROWDS = {CROWD: _samples(CROWD, CROWD_PODS), MANY: _samples(MANY, MANY_PODS)}
_LARGE_ANSWER = (_VECTOR % ",".join([_SAMPLE] * (57 * 2**20 // len(_SAMPLE)))).encode()


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
    if received.path.endswith("/series"):
        body = f'{{"status":"success","data":[{{"__name__":"{_NAME}",{_LABELS}}}]}}'
    elif received.path.endswith("/values"):
        match = received.parameters["match[]"]
        name = LABELLED if LABELLED in match else _NAME
        body = json.dumps({"status": "success", "data": [] if _PROBE in match else [name]})
    elif received.path.endswith("/labels") and LABELLED in received.parameters["match[]"]:
        body = _LABELS_OF_LABELLED
    elif received.path.endswith("/labels"):
        body = '{"status":"success","data":["exported_namespace","exported_pod","UUID","gpu"]}'
    elif "gpu!=" in received.parameters.get("query", ""):
        return web.Response(body=_LARGE_ANSWER, content_type="application/json")
    elif "label_replace(" in received.parameters.get("query", ""):
        body = _VECTOR % ""  # which of several labels are in use: nothing is known
    else:
        query = received.parameters.get("query", "")
        body = _VECTOR % next((_CROWDS[each] for each in _CROWDS if each in query), _SAMPLE)
    return web.Response(text=body, content_type="application/json")


async def main(folder: Path) -> None:
    """Serve until the process ends; write the ports into the folder."""
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    cluster.put(*kubernetes.TRUST, data=processes.trust(folder))
    cluster.add("pods", NAMESPACE, POD, labels={"app": "bert"}, phase="Running")
    for namespace, pods in ((CROWD, CROWD_PODS), (MANY, MANY_PODS)):
        for number in range(pods):
            cluster.add("pods", namespace, f"p{number}", phase="Running")
    cluster.decide = _decide
    app = cluster.app()
    app.middlewares.extend((web.middleware(_slow_reviews), _tenant(cluster), _large_labels))
    api_server = test_utils.TestServer(app)
    await api_server.start_server()
    kubernetes.kubeconfig(folder, api_server)
    fake = test_utils.TestServer(prometheus.Prometheus(_answer).app())
    await fake.start_server()
    processes.write_result(folder, "prometheus", fake.port or 0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
