"""Exporter of simulated GPUs for one node, which runs in a pod of the cluster with our image.

Each container of a pod with the label `app=$APP` in the exporter's namespace has one GPU of its
node. The ready pods share the load that the annotation `load` of the Deployment $APP says, in per
cent of one GPU. `/metrics` is what dcgm-exporter writes, `/node/metrics` what the resource rules
need of node-exporter. It reads the API server at each scrape.
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from adapter.cli.demo import fleet
from adapter.cli.demo.fleet import Gpu, GpuPod, GpuReading
from adapter.cli.demo.generations import DEFAULT, GENERATIONS

PORT = 9400
LOAD = "load"
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MOMENTS = fleet.recording()
_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Columns of /proc/stat."""

Object = Mapping[str, Any]


def readings(
    node: str, pods: Iterable[Object], deployment: Object
) -> Iterator[tuple[Gpu, GpuReading]]:
    """Yield the GPUs of the ready pods on `node`, each with its share of the load."""
    ready = sorted((pod for pod in pods if _ready(pod)), key=lambda pod: pod["metadata"]["name"])
    load = float(deployment["metadata"].get("annotations", {}).get(LOAD, 0))
    used = ((pod, each) for pod in ready for each in pod["spec"]["containers"])
    here = (each for each in used if each[0]["spec"]["nodeName"] == node)
    for index, (pod, container) in enumerate(here):
        user = GpuPod(
            namespace=pod["metadata"]["namespace"],
            name=pod["metadata"]["name"],
            container=container["name"],
            app=deployment["metadata"]["name"],
            node=node,
        )
        gpu = Gpu(node=node, index=index, pod=user)
        utilization = min(100.0, load / len(ready))
        moment = min(_MOMENTS, key=lambda each: abs(each.utilization - utilization))
        yield (
            gpu,
            fleet.reading(gpu, utilization=utilization, moment=moment, idle=_MOMENTS[0]),
        )


def node_page(stat: str, meminfo: str) -> str:
    """Return CPU and memory of the node from the text of /proc/stat and /proc/meminfo."""
    lines = []
    for line in stat.splitlines():
        cpu, *ticks = line.split()
        if cpu.startswith("cpu") and cpu != "cpu":
            for mode, value in zip(_MODES, ticks, strict=False):
                labels = f'cpu="{cpu.removeprefix("cpu")}",mode="{mode}"'
                lines.append(f"node_cpu_seconds_total{{{labels}}} {int(value) / 100}")
    for line in meminfo.splitlines():
        name, value, *_ = line.split()
        if name in ("MemTotal:", "MemAvailable:"):
            lines.append(f"node_memory_{name.rstrip(':')}_bytes {int(value) * 1024}")
    return "\n".join(lines) + "\n"


def _ready(pod: Object) -> bool:
    """Return whether a pod is Ready; one that is being deleted still uses its GPU."""
    conditions: Sequence[Object] = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = urllib.parse.urlsplit(self.path).path
        if path == "/node/metrics":
            page = node_page(Path("/proc/stat").read_text(), Path("/proc/meminfo").read_text())
        else:
            page = _gpu_page()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        pass


def _gpu_page() -> str:
    app, namespace = os.environ["APP"], os.environ["POD_NAMESPACE"]
    selector = urllib.parse.quote(f"app={app}")
    pods = _get(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")["items"]
    deployment = _get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{app}")
    return GENERATIONS[DEFAULT].render(readings(os.environ["NODE_NAME"], pods, deployment))


def _get(path: str) -> Any:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    request = urllib.request.Request(
        f"https://{host}:{port}{path}",
        headers={"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text()}"},
    )
    context = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, context=context, timeout=5) as response:
        return json.load(response)


if __name__ == "__main__":
    print(f"serving on port {PORT}", flush=True)
    ThreadingHTTPServer(("", PORT), _Handler).serve_forever()
