"""The story of `make model-server`: requests wait, an HPA adds a server, and takes it away again.

`tell` needs a function that sets the number of clients. It is told with real servers, for which
`Service` and `Clients` are the parts, and with simulated ones in tests/walkthroughs.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import yaml

from adapter.cli.demo.engine import Model
from adapter.cli.demo.fleet import GpuPod
from tools import documents
from tools.cluster.fleet import LiveFleet
from tools.cluster.walkthrough import Walkthrough, echo
from tools.model_server.server import MAX_RUNNING
from tools.waiting import repeated

APP = "llm"
PROMPT = "Which requests wait, and for how long? " * 3
TOKENS = 96
"""Tokens of each answer: a second or two on a core."""
MANY, FEW = 4 * MAX_RUNNING, MAX_RUNNING + 2
"""Clients for two servers, on which requests wait then, too; and for one."""
LIKE_VLLM = Model(
    batch=MAX_RUNNING,
    blocks=15,  # of its sixteen, vLLM keeps one
    block_tokens=128,
    prompt_tokens=len(PROMPT),
    answer_tokens=TOKENS,
    step_seconds=0.013,
    seconds_per_request=0,
)
"""A simulated engine that is like the real server."""
_POLL_SECONDS = 0.2

_CONTAINER = {
    "name": "vllm",
    "image": "vllm/vllm-openai",
    "resources": {"limits": {"nvidia.com/gpu": 1}},
}
DEPLOYMENT = documents.workload("Deployment", APP, {"containers": [_CONTAINER]}, replicas=1)
HPA = documents.hpa(
    APP,
    documents.pods_metric("requests_waiting_current", "5"),
    documents.pods_metric("kv_cache_utilization_current", "80"),
    minReplicas=1,
    maxReplicas=2,
    behavior={"scaleDown": {"stabilizationWindowSeconds": 10}},
)


def tell(walkthrough: Walkthrough, ask: Callable[[int], None]) -> None:
    """Run the walkthrough; `ask` sets the number of clients, each with one request at a time."""
    walkthrough.apply(f"{APP}.yaml", yaml.safe_dump(DEPLOYMENT))
    walkthrough.wait_ready(APP, 1)
    walkthrough.apply(f"{APP}-hpa.yaml", yaml.safe_dump(HPA))
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting == 0)
    echo(f"# {MANY} clients ask; a server runs {MAX_RUNNING} requests at once")
    ask(MANY)
    walkthrough.wait_for_replicas(2, waiting=lambda waiting: 0 < waiting <= 5)
    walkthrough.wait_ready(APP, 2)
    echo(f"# {FEW} clients are left")
    ask(FEW)
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting > 0)
    walkthrough.wait_ready(APP, 1)
    echo("# the last client goes")
    ask(0)
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting == 0)
    code, _ = walkthrough.explain("hpa", f"default/{APP}")
    assert code == 0


class Server(Protocol):
    """What completes requests, and exposes its metrics on a port of 127.0.0.1."""

    port: int

    def complete(self, prompt: str, *, tokens: int) -> None:
        """Return when a request with this prompt has so many tokens."""


class Service:
    """Gives each ready pod of APP a server, lets Prometheus scrape it, and spreads requests."""

    def __init__(self, servers: Sequence[Server], folder: Path) -> None:
        self._free = list(servers)
        self._targets = folder / "model-servers.json"
        self._lock = threading.Lock()
        self._of_pods: dict[GpuPod, Server] = {}
        self._outstanding = dict.fromkeys(servers, 0)
        self._write()

    @property
    def scrape_job(self) -> dict[str, object]:
        """An entry of `scrape_configs`, with the labels that a PodMonitor adds."""
        discovery = {"files": [str(self._targets)], "refresh_interval": "1s"}
        return {"job_name": f"default/{APP}", "file_sd_configs": [discovery]}

    def follow(self, fleet: LiveFleet) -> None:
        """Assign servers to the pods that are ready now, and free those of pods that are gone."""
        ready = {pod for pod in fleet.pods if pod.app == APP}
        with self._lock:
            gone, new = self._of_pods.keys() - ready, ready - self._of_pods.keys()
            self._free += [self._of_pods.pop(pod) for pod in gone]
            for pod in sorted(new, key=lambda each: each.name):
                if self._free:
                    self._of_pods[pod] = self._free.pop(0)
            if gone or new:
                self._write()

    def complete(self) -> None:
        """Send one request to the server with the fewest."""
        with self._lock:
            if not self._of_pods:
                time.sleep(_POLL_SECONDS)
                return
            server = min(self._of_pods.values(), key=self._outstanding.__getitem__)
            self._outstanding[server] += 1
        try:
            server.complete(PROMPT, tokens=TOKENS)
        finally:
            with self._lock:
                self._outstanding[server] -= 1

    def _write(self) -> None:
        groups = [
            {
                "targets": [f"127.0.0.1:{server.port}"],
                "labels": {
                    "instance": f"{pod.name}:8000",
                    "namespace": pod.namespace,
                    "pod": pod.name,
                    "container": "vllm",
                },
            }
            for pod, server in self._of_pods.items()
        ]
        scratch = self._targets.with_suffix(".new")
        scratch.write_text(json.dumps(groups))
        scratch.replace(self._targets)  # Prometheus never reads half a file


def following(service: Service, fleet: LiveFleet) -> contextlib.AbstractContextManager[None]:
    """Assign servers to pods until the context ends."""
    return repeated(lambda: service.follow(fleet), every=_POLL_SECONDS)


class Clients:
    """Clients that each have one request under way at any time; none at first."""

    def __init__(self, complete: Callable[[], object]) -> None:
        self._complete = complete
        self._stack = contextlib.ExitStack()

    def close(self) -> None:
        """Wait for the last answers."""
        self._stack.close()

    def set(self, number: int) -> None:
        """Let so many clients ask; waits for the answers of those before."""
        self.close()
        for _ in range(number):
            self._stack.enter_context(repeated(self._complete))
