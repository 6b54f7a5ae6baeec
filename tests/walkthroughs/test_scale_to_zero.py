"""Scale from and to zero on the requests that wait at a gateway, with a plain HPA.

A vanished gateway is not an idle one: its metric is missing, and the number of replicas stays.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from adapter.cli.local_prometheus.remote_write import STALE
from tools.cluster import cluster
from tools.cluster.walkthrough import Walkthrough, echo, example
from tools.control_plane.client import Client
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import Prometheus
from tools.waiting import repeated

MODEL = "llm"
PICKER = {
    "job": "llm-epp",
    "instance": "10.0.0.9:9090",
    "namespace": "default",
    "service": "llm-epp",
}
TARGETS = ("0/5 (avg), <unknown>/20", "-9223372036854775808m/5 (avg), <unknown>/20")
"""For the status, the controller divides by the replicas: without one, this is the least number."""
INFO = {"__name__": "llm_d_epp_info", **PICKER}
QUEUE = {"__name__": "llm_d_epp_flow_control_queue_size", **PICKER, "fairness_id": "a"}
RUNNING = {"__name__": "vllm:num_requests_running", "namespace": "default", "model_name": MODEL}
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENT = f"""\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {MODEL}
spec:
  replicas: 1
  selector:
    matchLabels: {{app: {MODEL}}}
  template:
    metadata:
      labels: {{app: {MODEL}}}
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai
        resources: {{limits: {{nvidia.com/gpu: 1}}}}
"""


class Picker:
    """Series of an endpoint picker and of the pods behind it, written every half second."""

    def __init__(self, prometheus: Prometheus, api: Client) -> None:
        self._prometheus = prometheus
        self._api = api
        self._lock = threading.Lock()
        self._waiting: float | None = None
        self._gone = False
        self.running = 0.0
        """Requests that run in each pod."""

    def hold(self, waiting: float) -> None:
        """Let requests wait. The series of the queue begins with the first of them."""
        with self._lock:
            self._waiting, self._gone = waiting, False
        self.write()

    def vanish(self) -> None:
        """End all series, as when the picker cannot be scraped."""
        with self._lock:
            self._gone = True
            self._prometheus.write([(INFO, STALE), (QUEUE, STALE)])

    def write(self) -> None:
        """Write a sample of each series."""
        with self._lock:
            pods = self._api.get(f"{PODS}?labelSelector=app%3D{MODEL}")["items"]
            for name in (each["metadata"]["name"] for each in pods):
                self._prometheus.write([(RUNNING | {"pod": name, "instance": name}, self.running)])
            if self._gone:
                return
            self._prometheus.write([(INFO, 1.0)])
            if self._waiting is not None:
                self._prometheus.write([(QUEUE, self._waiting)])


@contextlib.contextmanager
def picker(prometheus: Prometheus, api: Client) -> Iterator[Picker]:
    """Write the series of a picker until the context ends."""
    running = Picker(prometheus, api)
    with repeated(running.write, every=0.5):
        yield running


def test_scale_to_zero(control_plane: ControlPlane, tmp_path: Path) -> None:
    with (
        cluster.running(control_plane, tmp_path, generation="dcgm", nodes=4, gpus=1) as c,
        picker(c.prometheus, control_plane.admin) as gateway,
        c.adapter("--preset=gateway-inference-pool", "--preset=inference-vllm"),
    ):
        walkthrough = Walkthrough(c, hpa=MODEL)
        walkthrough.apply(f"{MODEL}.yaml", DEPLOYMENT)
        walkthrough.wait_ready(MODEL, 1)
        walkthrough.apply(f"{MODEL}-hpa.yaml", example("scale-to-zero"))
        echo("# nobody asks")
        walkthrough.wait_until_settled(*TARGETS, replicas=0)
        walkthrough.explain("hpa", f"default/{MODEL}", until="keeps 0 replicas")
        echo("# the first request waits at the gateway")
        gateway.hold(1)
        walkthrough.wait_until_settled("1/5 (avg), 0/20", replicas=1)
        echo("# it runs, and none waits")
        gateway.running = 1
        gateway.hold(0)
        walkthrough.wait_for_row("0/5 (avg), 1/20", replicas=1)
        walkthrough.assert_stable("0/5 (avg), 1/20", replicas=1, seconds=6)
        echo("# seventeen requests wait")
        gateway.hold(17)
        walkthrough.wait_until_settled("4250m/5 (avg), 1/20", replicas=4)
        echo("# the gateway cannot be scraped, and no request runs")
        gateway.running = 0
        gateway.vanish()
        rows = "<unknown>/5 (avg), 0/20", "4250m/5 (avg), 0/20"
        hpa = walkthrough.wait_for_row(*rows, replicas=4)
        walkthrough.assert_stable(*rows, replicas=4, seconds=6)
        code, line = walkthrough.explain("hpa", f"default/{MODEL}", until="TargetGone")
        assert code == 1
        assert "keeps 4 replicas" in line
        echo("# it is back, and idle")
        gateway.hold(0)
        hpa = walkthrough.wait_until_settled(*TARGETS, replicas=0)
        assert hpa.condition("ScalingActive").status == "True"
        echo("# it vanishes while there is no replica, and is back with a request")
        gateway.vanish()
        walkthrough.assert_stable(
            "<unknown>/5 (avg), <unknown>/20", *TARGETS, replicas=0, seconds=6
        )
        gateway.hold(3)
        walkthrough.wait_until_settled("3/5 (avg), 0/20", replicas=1)
