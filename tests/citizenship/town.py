"""A cluster in which every kind of metric is polled: who lives there, and what is told of them.

Two namespaces have pods of one name, under different load, and every HorizontalPodAutoscaler is at
rest: whatever moves a replica was wrong. A small step of the load stays within the tolerance, so
that it shows which polls are fresh and still moves nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
from collections.abc import Iterator
from pathlib import Path

from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.cluster.server import Server
from tests.control_plane.client import RefusedError
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for

APP = "bert"
REPLICAS = 2
TARGETS = {"team-a": 40, "team-b": 70}
"""Per cent of a GPU at which each namespace's pods are, and which its autoscaler aims at."""
STEP = 1
"""Per cent more, by which a fresh value is told from an old one."""

RULES = """
externalRules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  name: {as: gpu_utilization_avg}
  metricsQuery: 'avg(<<.Series>>{<<.LabelMatchers>>})'
"""
"""Beside the preset, which gives the Pods and the Object metric."""


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
class Town:
    """The cluster, its adapter, and by how much the load is stepped up now."""

    cluster: Cluster
    adapter: Server
    step: int = 0

    @property
    def plane(self) -> ControlPlane:
        return self.cluster.plane

    def stepped(self) -> None:
        """Let every value be a little different from what it was until now."""
        self.step = STEP - self.step
        self.offer()

    def told(self, namespace: str) -> str:
        """What the autoscaler reports, such as `40/40/40`; `<unknown>` where it gets nothing."""
        hpa = self.cluster.hpa(APP, namespace)
        if hpa.condition("ScalingActive").status != "True":
            return "<unknown>"
        return "/".join(hpa.metrics)

    def expected(self, namespace: str) -> str:
        return "/".join([str(TARGETS[namespace] + self.step)] * 3)

    def wrong(self) -> list[str]:
        """What is not as it has to be: values, and replicas."""
        try:
            return self._differences()
        except (OSError, http.client.HTTPException, RefusedError) as error:
            return [f"the API server: {error!r}"]

    def _differences(self) -> list[str]:
        found = []
        for namespace in TARGETS:
            if (told := self.told(namespace)) != self.expected(namespace):
                found.append(f"{namespace}: {told} instead of {self.expected(namespace)}")
            replicas = self.cluster.hpa(APP, namespace).current_replicas
            if replicas != REPLICAS:
                found.append(f"{namespace}: {replicas} replicas")
        return found

    def rescales(self) -> list[str]:
        """Every time that an autoscaler moved a replica."""
        events = self.plane.admin.get("/api/v1/events")["items"]
        return [each["message"] for each in events if each["reason"] == "SuccessfulRescale"]

    def settle(self, seconds: float = 60) -> None:
        """Wait until every autoscaler tells what it has to; the TimeoutError says what is wrong."""
        wrong: list[str] = []

        def right() -> bool:
            wrong[:] = self.wrong()
            return not wrong

        try:
            wait_for(right, "every value is fresh", seconds=seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {'; '.join(wrong)}") from error

    def offer(self) -> None:
        """Let every pod be as busy as it has to be now."""
        for namespace, target in TARGETS.items():
            load = REPLICAS * (target + self.step)
            self.cluster.fleet.offer(APP, load, namespace=namespace)


@contextlib.contextmanager
def settled(plane: ControlPlane, folder: Path) -> Iterator[Town]:
    """A town at rest, whose autoscalers all have their values."""
    with cluster.running(plane, folder, generation="dcgm", tidy=False) as made:
        for namespace, target in TARGETS.items():
            made.apply(_workload(namespace, target))
        with made.adapter("--preset=gpu-dcgm", config=RULES) as adapter:
            town = Town(cluster=made, adapter=adapter)
            town.offer()
            town.settle()
            yield town
