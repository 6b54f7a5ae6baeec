"""The story of `make model-server`: requests wait, an HPA adds a server, and takes it away again.

It is told with real servers, and with simulated ones in tests/walkthroughs. The Prometheus of the
adapter's pod discovers and scrapes them.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

import yaml

from adapter.cli.demo.engine import Model
from adapter.cli.demo.fleet import GpuPod
from rules.metrics_apis import ALL_OBJECTS, custom_metric
from tools import documents
from tools.cluster.cluster import Cluster
from tools.cluster.fleet import LiveFleet
from tools.cluster.walkthrough import Walkthrough, echo
from tools.control_plane.client import MERGE_PATCH, Client, RefusedError
from tools.model_server.server import MAX_RUNNING, exposition, value
from tools.real.prometheus import Prometheus, wait_for
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
RUNNING = "vllm:num_requests_running"
_METRICS = {
    "requests_waiting_current": ("vllm:num_requests_waiting", 1),
    "requests_running_current": (RUNNING, 1),
    "kv_cache_utilization_current": ("vllm:kv_cache_usage_perc", 100),
}
"""Metric -> the series of its value, and the factor."""
_POLL_SECONDS = 0.2
_DIGITS = 3
"""Values are rounded to thousandths."""
_COMPARED_SECONDS = 15.0
"""Seconds for which a page is read: more than the age of a value, with a scrape every five."""

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


def tell(cluster: Cluster, servers: Sequence[Server]) -> None:
    """Run the walkthrough with two servers, which listen on addresses of their own."""
    with (
        cluster.embedded_prometheus() as prometheus,
        running(cluster, servers, prometheus) as (service, ask),
    ):
        _tell(Walkthrough(cluster, hpa=APP), service, ask)


@contextlib.contextmanager
def running(
    cluster: Cluster, servers: Sequence[Server], prometheus: Prometheus, config: str | None = None
) -> Iterator[tuple[Service, Callable[[int], None]]]:
    """Run an adapter on a Prometheus that scrapes the servers, until the context ends.

    Yields the servers' service and a function that sets the number of clients, each with one
    request at a time. `config` is the text of a rules file.
    """
    with contextlib.ExitStack() as stack:
        service = Service(servers, cluster.control_plane.admin)
        stack.enter_context(repeated(lambda: service.follow(cluster.fleet), every=_POLL_SECONDS))
        presets = ("--preset=gpu-dcgm", "--preset=inference-vllm")
        embedded = f"--embedded-prometheus-url={prometheus.url}"
        stack.enter_context(cluster.adapter(*presets, embedded, config=config))
        clients = stack.enter_context(contextlib.closing(Clients(service.complete)))
        yield service, clients.set


def _tell(walkthrough: Walkthrough, service: Service, ask: Callable[[int], None]) -> None:
    """Run the walkthrough; `ask` sets the number of clients."""
    deploy(walkthrough, HPA)
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting == 0)
    echo(f"# {MANY} clients ask; a server runs {MAX_RUNNING} requests at once")
    ask(MANY)
    walkthrough.wait_for_replicas(2, waiting=lambda waiting: 0 < waiting <= 5)
    walkthrough.wait_ready(APP, 2)
    compare(walkthrough, service)
    echo(f"# {FEW} clients are left")
    ask(FEW)
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting > 0)
    walkthrough.wait_ready(APP, 1)
    compare(walkthrough, service)
    echo("# the last client goes")
    ask(0)
    walkthrough.wait_for_replicas(1, waiting=lambda waiting: waiting == 0)
    code, _ = walkthrough.explain("hpa", f"default/{APP}", until=f"default/{APP} keeps 1 replica")
    assert code == 0


def deploy(walkthrough: Walkthrough, hpa: Mapping[str, object]) -> None:
    """Apply the workload with one replica, and an HPA."""
    walkthrough.apply(f"{APP}.yaml", yaml.safe_dump(DEPLOYMENT))
    walkthrough.wait_ready(APP, 1)
    walkthrough.apply(f"{APP}-hpa.yaml", yaml.safe_dump(hpa))


def compare(walkthrough: Walkthrough, service: Service) -> None:
    """Wait until each pod's values are within those that its server exposed in the last seconds.

    Raises TimeoutError.
    """
    wait_for(
        lambda: _equal(walkthrough, service), "the values are those of the servers", seconds=90
    )


def _equal(walkthrough: Walkthrough, service: Service) -> bool:
    exposed: dict[str, dict[str, list[float]]] = {metric: {} for metric in _METRICS}
    ends = time.monotonic() + _COMPARED_SECONDS
    while time.monotonic() < ends:
        for pod, page in service.pages():
            for metric, (series, factor) in _METRICS.items():
                found = round(factor * value(page, series), _DIGITS)
                exposed[metric].setdefault(pod, []).append(found)
        time.sleep(_POLL_SECONDS)
    equal = True
    for metric, of_pods in exposed.items():
        path = custom_metric(metric, "pods", ALL_OBJECTS, namespace="default")
        values = walkthrough.metric_values(f"{path}?labelSelector=app%3D{APP}")
        ranges = {pod: (min(found), max(found)) for pod, found in of_pods.items()}
        echo(
            "# exposed: "
            + ", ".join(f"{pod} {low:g} to {high:g}" for pod, (low, high) in ranges.items())
        )
        equal &= values.keys() == ranges.keys() and all(
            ranges[pod][0] <= each <= ranges[pod][1] for pod, each in values.items()
        )
    return equal


class Server(Protocol):
    """What completes requests, and exposes its metrics on an address of its own."""

    address: str

    def complete(self, prompt: str, *, tokens: int) -> None:
        """Return when a request with this prompt has so many tokens."""


class Service:
    """Gives each ready pod of APP the address of a server, and spreads requests."""

    def __init__(self, servers: Sequence[Server], api: Client) -> None:
        self._free = list(servers)
        self._api = api
        self._lock = threading.Lock()
        self._of_pods: dict[GpuPod, Server] = {}
        self._outstanding = dict.fromkeys(servers, 0)

    def follow(self, fleet: LiveFleet) -> None:
        """Assign servers to the pods that are ready now, and free those of pods that are gone."""
        ready = {pod for pod in fleet.pods if pod.app == APP}
        with self._lock:
            gone, new = self._of_pods.keys() - ready, ready - self._of_pods.keys()
            self._free += [self._of_pods.pop(pod) for pod in gone]
            for pod in sorted(new, key=lambda each: each.name):
                # A pod that is gone already is not in the fleet the next time.
                with contextlib.suppress(RefusedError):
                    if self._free:
                        self._set_address(pod, self._free[0].address)
                        self._of_pods[pod] = self._free.pop(0)

    def pages(self) -> Iterator[tuple[str, str]]:
        """Yield each pod's name and what its server exposes now."""
        with self._lock:
            of_pods = {pod.name: server.address for pod, server in self._of_pods.items()}
        for pod, address in of_pods.items():
            yield pod, exposition(address)

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

    def _set_address(self, pod: GpuPod, address: str) -> None:
        self._api.call(
            "PATCH",
            f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status",
            {"status": {"podIP": address, "podIPs": [{"ip": address}]}},
            content_type=MERGE_PATCH,
        )


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
