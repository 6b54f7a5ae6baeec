"""HPAs with every type of metric: the cluster is not disturbed, and outages end by themselves.

Two namespaces have pods with the same names under different load. Each HPA is at its target, so
every change of replicas is an error. A small step of the load stays within the tolerance: it shows
whether values are fresh, and does not scale anything.

`QUIET=600 OUTAGE=30 pytest -s tests/tools/faults/test_outages.py` prints the figures of the
benchmarks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import os
import re
import time
from collections.abc import Iterator

import pytest

from tools.cluster import cluster, hpa
from tools.cluster.cluster import Cluster
from tools.cluster.server import Server
from tools.control_plane import plane
from tools.control_plane.client import RefusedError
from tools.control_plane.daemon import Daemon
from tools.real.prometheus import Prometheus, wait_for

QUIET = float(os.environ.get("QUIET", "10"))
"""Seconds without a fault."""
OUTAGE = float(os.environ.get("OUTAGE", "3"))
"""Seconds of each fault."""
RECOVERY_TIMEOUT = 60.0
APP = "bert"
REPLICAS = 2
TARGETS = {"team-a": 40, "team-b": 70}
"""Utilisation of the pods and target of the HPA in each namespace, in per cent of a GPU."""
STEP = 1
"""Change of the load in per cent, which distinguishes fresh values from old ones."""
WARNING = re.compile(
    r"^[WEF]\d{4} .*(?i:custom\.metrics|external\.metrics|gpu-metrics-adapter|horizontal|aggregat"
    r"|openapi|discovery).*",
    re.MULTILINE,
)
"""Line of klog that is at least a warning, about the adapter or about parts that use it."""

RULES = """
externalRules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: gpu_utilization_avg}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>})'
"""
"""Rule of the External metric; the preset has the Pods and the Object metric."""


def workload(namespace: str, target: int) -> str:
    return f"""
apiVersion: v1
kind: Namespace
metadata: {{name: {namespace}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: {APP}, namespace: {namespace}}}
spec:
  serviceName: {APP}
  replicas: {REPLICAS}
  podManagementPolicy: Parallel
  selector: {{matchLabels: {{app: {APP}}}}}
  template:
    metadata: {{labels: {{app: {APP}}}}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: serving
        image: example.invalid/bert
        resources: {{limits: {{nvidia.com/gpu: "1"}}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {APP}, namespace: {namespace}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: StatefulSet, name: {APP}}}
  minReplicas: 1
  maxReplicas: 4
  metrics:
  - type: Pods
    pods:
      metric: {{name: duty_cycle_current}}
      target: {{type: AverageValue, averageValue: "{target}"}}
  - type: Object
    object:
      describedObject: {{apiVersion: v1, kind: Pod, name: {APP}-0}}
      metric: {{name: duty_cycle_current}}
      target: {{type: Value, value: "{target}"}}
  - type: External
    external:
      metric: {{name: gpu_utilization_avg}}
      target: {{type: Value, value: "{target}"}}
"""


@dataclasses.dataclass(kw_only=True)
class Bed:
    """The cluster, its adapter, and the current step of the load in per cent."""

    cluster: Cluster
    adapter: Server
    step: int = 0

    @property
    def components(self) -> dict[str, Prometheus | Server | Daemon]:
        control_plane = self.cluster.control_plane
        return {
            "Prometheus": self.cluster.prometheus,
            "the adapter": self.adapter,
            "kube-apiserver": control_plane.apiserver,
            "etcd": control_plane.etcd,
        }

    def step_load(self) -> None:
        """Change every value by STEP."""
        self.step = STEP - self.step
        for namespace, target in TARGETS.items():
            self.cluster.fleet.set_load(APP, REPLICAS * (target + self.step), namespace=namespace)

    def problems(self) -> list[str]:
        """Return every difference from the expected values and replicas."""
        found = []
        try:
            for namespace, target in TARGETS.items():
                state = hpa.read(self.cluster.control_plane.admin, APP, namespace)
                active = state.condition("ScalingActive").status
                actual = (active, state.metrics, state.current_replicas)
                if actual != ("True", [str(target + self.step)] * 3, REPLICAS):
                    found.append(f"{namespace}: ScalingActive, metrics, replicas: {actual}")
        except (OSError, http.client.HTTPException, RefusedError) as error:
            found.append(f"request to the API server failed: {error!r}")
        return found

    def wait_healthy(self) -> None:
        """Wait until there are no problems. Raises TimeoutError with those that remain."""
        try:
            wait_for(lambda: not self.problems(), "values are fresh", seconds=RECOVERY_TIMEOUT)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {'; '.join(self.problems())}") from error

    def rescales(self) -> list[str]:
        events = self.cluster.control_plane.admin.get("/api/v1/events")["items"]
        return [each["message"] for each in events if each["reason"] == "SuccessfulRescale"]


pytestmark = pytest.mark.skipif(
    not {"QUIET", "OUTAGE"} & os.environ.keys(), reason="takes minutes: set $QUIET or $OUTAGE"
)


@pytest.fixture(scope="module")
def testbed(programs, tmp_path_factory) -> Iterator[Bed]:
    """A control plane of its own, because these tests kill it."""
    folder = tmp_path_factory.mktemp("outages")
    with contextlib.ExitStack() as stack:
        control_plane = stack.enter_context(plane.running(folder, programs))
        c = stack.enter_context(
            cluster.running(control_plane, folder, generation="dcgm", clean_up=False)
        )
        for namespace, target in TARGETS.items():
            c.apply(workload(namespace, target))
        adapter = stack.enter_context(c.adapter("--preset=gpu-dcgm", config=RULES))
        running = Bed(cluster=c, adapter=adapter)
        running.step_load()
        running.wait_healthy()
        yield running


def test_without_faults_values_are_right_and_nothing_is_logged(testbed):
    control_plane = testbed.cluster.control_plane
    logs = {each.log: each.log.stat().st_size for each in (
        control_plane.apiserver, control_plane.controller_manager
    )}  # fmt: skip

    ends = time.monotonic() + QUIET
    while time.monotonic() < ends:
        assert testbed.problems() == []
        time.sleep(min(2.0, QUIET))

    for log, size in logs.items():
        assert WARNING.findall(log.read_bytes()[size:].decode(errors="replace")) == []


def test_a_namespace_can_be_deleted(testbed):
    """That needs a list of every API in discovery."""
    kubectl = testbed.cluster.control_plane.kubectl

    kubectl("create", "namespace", "short-lived")
    kubectl("create", "configmap", "something", "--namespace=short-lived")
    kubectl("delete", "namespace", "short-lived", "--timeout=60s")


@pytest.mark.parametrize("name", ["Prometheus", "the adapter", "kube-apiserver", "etcd"])
def test_values_are_fresh_after_an_outage_and_nothing_scales(testbed, name):
    component = testbed.components[name]
    control_plane = testbed.cluster.control_plane
    of_control_plane = name in ("kube-apiserver", "etcd")

    component.kill()
    if of_control_plane:
        # As in a real cluster, where it exits when it cannot renew its leader lease.
        control_plane.controller_manager.kill()
    time.sleep(OUTAGE)
    testbed.step_load()
    started = time.monotonic()
    component.start()
    if of_control_plane:
        control_plane.apiserver.wait_ready()
        control_plane.controller_manager.launch()
    if name != "the adapter":  # its start is part of the recovery
        started = time.monotonic()
    testbed.wait_healthy()

    print(f"\n{name}: fresh values after {time.monotonic() - started:.1f} s")
    assert testbed.rescales() == []
