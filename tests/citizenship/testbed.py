"""Testbed: a cluster in which HPAs read Pods, Object and External metrics.

Two namespaces have pods with the same names under different load. Each HPA is at its target, so
every change of replicas is an error. A small step of the load stays within the tolerance: it shows
whether values are fresh, and does not scale anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import cluster, hpa
from tests.cluster.cluster import Cluster
from tests.cluster.hpa import Hpa
from tests.cluster.server import Server
from tests.control_plane.client import RefusedError
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for

APP = "bert"
REPLICAS = 2
TARGETS = {"team-a": 40, "team-b": 70}
"""Utilisation of the pods and target of the HPA in each namespace, in per cent of a GPU."""
STEP = 1
"""Change of the load in per cent, which distinguishes fresh values from old ones."""

RULES = """
externalRules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: gpu_utilization_avg}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>})'
"""
"""Rule of the External metric; the preset has the Pods and the Object metric."""


def _workload(namespace: str, target: int) -> str:
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


@dataclasses.dataclass(slots=True, kw_only=True)
class Testbed:
    """The cluster, its adapter, and the current step of the load in per cent."""

    cluster: Cluster
    adapter: Server
    step: int = 0

    @property
    def control_plane(self) -> ControlPlane:
        """Control plane of the cluster."""
        return self.cluster.control_plane

    def step_load(self) -> None:
        """Change every value by STEP, so that fresh values differ from cached ones."""
        self.step = STEP - self.step
        self.set_loads()

    def set_loads(self) -> None:
        """Set the load of every namespace to its target plus the step."""
        for namespace, target in TARGETS.items():
            load = REPLICAS * (target + self.step)
            self.cluster.fleet.set_load(APP, load, namespace=namespace)

    def hpa(self, namespace: str) -> Hpa:
        """Return the HPA of a namespace."""
        return hpa.read(self.control_plane.admin, APP, namespace)

    def values(self, namespace: str) -> str:
        """Return the current metrics of the HPA, such as `40/40/40`, or `<unknown>`."""
        state = self.hpa(namespace)
        if state.condition("ScalingActive").status != "True":
            return hpa.UNKNOWN
        return "/".join(state.metrics)

    def expected_values(self, namespace: str) -> str:
        """Return what `values` returns once every metric is fresh."""
        return "/".join([str(TARGETS[namespace] + self.step)] * 3)

    def problems(self) -> list[str]:
        """Return every difference from the expected values and replicas."""
        try:
            return self._differences()
        except (OSError, http.client.HTTPException, RefusedError) as error:
            return [f"request to the API server failed: {error!r}"]

    def _differences(self) -> list[str]:
        problems = []
        for namespace in TARGETS:
            values, expected = self.values(namespace), self.expected_values(namespace)
            if values != expected:
                problems.append(f"{namespace}: metrics are {values}, expected {expected}")
            replicas = self.hpa(namespace).current_replicas
            if replicas != REPLICAS:
                problems.append(f"{namespace}: {replicas} replicas, expected {REPLICAS}")
        return problems

    def rescales(self) -> list[str]:
        """Return the message of every SuccessfulRescale event."""
        events = self.control_plane.admin.get("/api/v1/events")["items"]
        return [each["message"] for each in events if each["reason"] == "SuccessfulRescale"]

    def wait_healthy(self, seconds: float = 60) -> None:
        """Wait until there are no problems. Raises TimeoutError with those that remain."""
        problems: list[str] = []

        def healthy() -> bool:
            problems[:] = self.problems()
            return not problems

        try:
            wait_for(healthy, "every HPA has fresh values", seconds=seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {'; '.join(problems)}") from error


@contextlib.contextmanager
def running(control_plane: ControlPlane, folder: Path) -> Iterator[Testbed]:
    """Run a testbed; yields it once every HPA has its values."""
    with cluster.running(control_plane, folder, generation="dcgm", clean_up=False) as c:
        for namespace, target in TARGETS.items():
            c.apply(_workload(namespace, target))
        with c.adapter("--preset=gpu-dcgm", config=RULES) as adapter:
            testbed = Testbed(cluster=c, adapter=adapter)
            testbed.set_loads()
            testbed.wait_healthy()
            yield testbed
