"""Memory and time of a watch cache with 1 000, 10 000 and 50 000 pods.

    python -m tools.bench.watch

A stand-in API server lists the pods of Deployments (ten each), or of StatefulSets, whose pods have
labels of their own. Each row is measured in a new process: the growth of its resident memory until
all pods are watched and the selector of every workload was answered once; the seconds until the
pods are watched; the time for one selector after a pod of its namespace has changed; and the
longest stall of the event loop until then.

Fails if a pod needs more than 400 bytes at 10 000 or more pods.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from aiohttp import test_utils, web
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.background import watch_stalls
from adapter.clients.kubernetes import Kube
from adapter.clients.watch_cache import WatchCaches
from adapter.server.cluster import contents
from adapter.server.cluster.object_index import Object
from adapter.server.http.limits import return_freed_buffers
from rules.kinds import Kinds
from rules.selectors import selectors
from tools.bench import processes
from tools.fakes import kubernetes

SIZES = (1_000, 10_000, 50_000)
WORKLOADS = ("Deployment", "StatefulSet")
LIMIT = 400
"""Bytes per pod."""

_PODS_PER_WORKLOAD = 10
_WORKLOADS_PER_NAMESPACE = 50
_NODES = 500
_REPETITIONS = 200


def main(argv: list[str]) -> int:
    """Run the benchmark and print its results; return 1 if the limit is exceeded.

    With the arguments SIZE WORKLOAD, measure one row and print it as JSON; with FOLDER besides,
    serve the pods.
    """
    if argv:
        size, workload, *folder = argv
        if folder:
            asyncio.run(_serve(int(size), workload, Path(folder[0])))
        print(json.dumps(asyncio.run(_measure(int(size), workload))))
        return 0
    _, problems = run()
    return 1 if problems else 0


def run() -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all rows, print them, and return them and which exceed the limit."""
    print(
        f"{'pods':>7} {'of':>11} {'bytes per pod':>13} {'s to watch':>10} {'us a selector':>13}"
        f" {'stall ms':>9}"
    )
    rows, problems = [], []
    for size in SIZES:
        for workload in WORKLOADS:
            command = (sys.executable, "-m", "tools.bench.watch", str(size), workload)
            row = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            print(
                f"{size:>7} {workload:>11} {row['bytes']:>13.0f} {row['seconds']:>10.1f}"
                f" {row['selector']:>13.0f} {row['stall'] * 1000:>9.1f}",
                flush=True,
            )
            rows.append({"pods": size, "of": workload, **row})
            if size >= 10_000 and row["bytes"] > LIMIT:
                problems.append(f"{size} pods: {row['bytes']:.0f} bytes per pod, limit {LIMIT}")
    print("\n".join(problems) or f"a watched pod needs at most {LIMIT} bytes")
    return rows, problems


async def _measure(size: int, workload: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = ("-m", "tools.bench.watch", str(size), workload, str(folder))
        with processes.start_python(folder, *arguments):
            processes.read_result(folder, "pods")
            api = await Kube.connect(str(folder / "kubeconfig"), qps=1e6, burst=10**6)
            try:
                return await _watch(api, size)
            finally:
                await api.close()


async def _watch(api: Kube, size: int) -> dict[str, float]:
    return_freed_buffers()
    pods = Kinds.builtin().first("pods")
    caches = WatchCaches(
        api, contents.OBJECTS, metrics=telemetry.WatchCacheMetrics(CollectorRegistry())
    )
    running = asyncio.create_task(caches.run())
    await asyncio.sleep(0)
    # Whatever the first watch of a process allocates once, the buffers for a page among it.
    caches.index(Kinds.builtin().first("nodes"))
    await _until_watched(caches, "nodes")
    gc.collect()
    stalls: list[float] = []
    watching = asyncio.create_task(watch_stalls(stalls.append))
    before, started = processes.mebibytes(os.getpid(), "VmRSS"), time.monotonic()
    caches.index(pods)
    await _until_watched(caches, "pods")
    seconds = time.monotonic() - started
    watching.cancel()
    index = caches.index(pods)
    assert index is not None
    assert len(index) == size
    for number in range(0, size, _PODS_PER_WORKLOAD):
        selector = selectors.parse(f"app.kubernetes.io/name={_workload(number)}")
        names = index.names(selector, namespace=_namespace(number))
        assert len(names) == _PODS_PER_WORKLOAD
    growth = processes.mebibytes(os.getpid(), "VmRSS") - before
    selector = selectors.parse(f"app.kubernetes.io/name={_workload(0)}")
    changed = Object(_namespace(0), "changed", ())
    started = time.monotonic()
    for _ in range(_REPETITIONS):
        index.put(changed)
        index.names(selector, namespace=_namespace(0))
        index.remove(changed.namespace, changed.name)
    microseconds = (time.monotonic() - started) / _REPETITIONS * 1e6
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return {
        "bytes": growth * (1 << 20) / size,
        "seconds": seconds,
        "selector": microseconds,
        "stall": max(stalls, default=0.0),
    }


async def _until_watched(caches: WatchCaches[Any], resource: str) -> None:
    async with asyncio.timeout(300):
        while f"{resource} watched" not in caches.status().fact:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0.01)


def _namespace(number: int) -> str:
    return f"team-{number // _PODS_PER_WORKLOAD // _WORKLOADS_PER_NAMESPACE}"


def _workload(number: int) -> str:
    return f"inference-{number // _PODS_PER_WORKLOAD}"


def _pod(number: int, workload: str) -> dict[str, Any]:
    """Return the metadata of a pod, with labels as Helm charts and controllers give them."""
    app, ordinal = _workload(number), number % _PODS_PER_WORKLOAD
    labels = {
        "app.kubernetes.io/name": app,
        "app.kubernetes.io/instance": f"{app}-{_namespace(number)}",
        "app.kubernetes.io/managed-by": "Helm",
    }
    if workload == "Deployment":
        name = f"{app}-5c9f7b6d4c-x7k{ordinal}q"
        labels["pod-template-hash"] = f"5c9f7b{number // _PODS_PER_WORKLOAD:04x}"
    else:
        name = f"{app}-{ordinal}"
        labels["controller-revision-hash"] = f"{app}-5c9f7b6d4c"
        labels["statefulset.kubernetes.io/pod-name"] = name
        labels["apps.kubernetes.io/pod-index"] = str(ordinal)
    return {
        "name": name,
        "namespace": _namespace(number),
        "uid": f"a1002f3a-6c1d-4e5b-9f00-{number:012x}",
        "resourceVersion": "1",
        "labels": labels,
        "annotations": {"checksum/config": "0" * 64},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": "x" * 1500}}],
    }


async def _serve(size: int, workload: str, folder: Path) -> None:
    """Serve the pods in pages, and watches in which nothing happens."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        if request.query.get("watch") == "true":
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.Event().wait()
        total = size if request.path == "/api/v1/pods" else _NODES
        start, limit = int(request.query.get("continue", "0")), int(request.query["limit"])
        numbers = range(start, min(start + limit, total))
        metadata = {"resourceVersion": "1"}
        if start + limit < total:
            metadata["continue"] = str(start + limit)
        items = [{"metadata": _pod(number, workload)} for number in numbers]
        return web.json_response({"metadata": metadata, "items": items})

    fake = test_utils.RawTestServer(respond)
    await fake.start_server()
    kubernetes.kubeconfig(folder, fake)
    processes.write_result(folder, "pods", fake.port or 0)
    await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
