"""Backends of the attacked adapter, as one process: `python -m tests.attack.backends FOLDER`.

A fake API server that allows the autoscaler everything and everybody else nothing, each review
taking REVIEW_SECONDS; and a fake Prometheus whose answers to queries with `gpu!=` are large.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from aiohttp import test_utils, web

from tests.bench import processes
from tests.fakes import kubernetes, prometheus

AUTOSCALER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
REVIEW_SECONDS = 0.02
NAMESPACE, POD = "default", "bert-0"

_LABELS = f'"exported_namespace":"{NAMESPACE}","exported_pod":"{POD}","UUID":"u","gpu":"0"'
_NAME = "DCGM_FI_DEV_GPU_UTIL"
_SAMPLE = f'{{"metric":{{{_LABELS}}},"value":[1790000000.0,"22"]}}'
_VECTOR = '{"status":"success","data":{"resultType":"vector","result":[%s]}}'
_LARGE = (_VECTOR % ",".join([_SAMPLE] * (57 * 2**20 // len(_SAMPLE)))).encode()


def _decide(spec: dict[str, Any]) -> dict[str, Any]:
    return {"allowed": spec.get("user") == AUTOSCALER}


async def _slow_reviews(request: web.Request, handler: Any) -> web.StreamResponse:
    if request.path == kubernetes.ACCESS_REVIEWS:
        await asyncio.sleep(REVIEW_SECONDS)
    response: web.StreamResponse = await handler(request)
    return response


async def _answer(request: web.Request, received: prometheus.Received) -> web.StreamResponse:
    if received.path.endswith("/series"):
        body = f'{{"status":"success","data":[{{"__name__":"{_NAME}",{_LABELS}}}]}}'
    elif received.path.endswith("/values"):
        body = f'{{"status":"success","data":["{_NAME}"]}}'
    elif received.path.endswith("/labels"):
        body = '{"status":"success","data":["exported_namespace","exported_pod","UUID","gpu"]}'
    elif "gpu!=" in received.parameters.get("query", ""):
        return web.Response(body=_LARGE, content_type="application/json")
    elif "label_replace(" in received.parameters.get("query", ""):
        body = _VECTOR % ""  # which of several labels are in use: nothing is known
    else:
        body = _VECTOR % _SAMPLE
    return web.Response(text=body, content_type="application/json")


async def main(folder: Path) -> None:
    """Serve until the process ends; write the ports into the folder."""
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    cluster.put(*kubernetes.TRUST, data=processes.trust(folder))
    cluster.add("pods", NAMESPACE, POD, labels={"app": "bert"}, phase="Running")
    cluster.decide = _decide
    app = cluster.app()
    app.middlewares.append(web.middleware(_slow_reviews))
    api_server = test_utils.TestServer(app)
    await api_server.start_server()
    kubernetes.kubeconfig(folder, api_server)
    fake = test_utils.TestServer(prometheus.Prometheus(_answer).app())
    await fake.start_server()
    processes.write_result(folder, "prometheus", fake.port or 0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
