"""HPAs on workloads that only their scale describes, on a real control plane.

The CRDs are those of LeaderWorkerSet and Argo Rollouts, and a made-up one whose scale has other
paths. Their controllers are played: pods as `spec` wants them, and the status that the scale needs.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import program
from adapter.cli.doctor.client import NO_ANSWER
from tools.certificates import INSECURE
from tools.cluster import cluster
from tools.cluster.cluster import Cluster
from tools.cluster.hpa import Hpa
from tools.cluster.server import Server
from tools.control_plane.client import MERGE_PATCH, RefusedError
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for
from tools.waiting import repeated

CRDS = Path(__file__).parents[2] / "fixtures" / "crds"
WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1alpha1
    served: false
    storage: false
    schema: {openAPIV3Schema: &schema {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: &subresources
      status: {}
      scale:
        specReplicasPath: .spec.copies
        statusReplicasPath: .status.copies
        labelSelectorPath: .status.pods
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: *schema}
    subresources: *subresources
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: widgets-scale}
rules:
- {apiGroups: [example.com], resources: [widgets/scale], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: widgets-scale}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: widgets-scale}
subjects: [{kind: ServiceAccount, name: gpu-metrics-adapter, namespace: gpu-metrics-adapter}]
"""
RULES = """
rules:
- seriesQuery: load
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})
  workloads: avg
  freshness: 1s
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: {version}, kind: {kind}, name: {name}}}
  maxReplicas: 4
  behavior: {{scaleDown: {{stabilizationWindowSeconds: 0}}}}
  metrics:
  - type: Pods
    pods: {{metric: {{name: load}}, target: {{type: AverageValue, averageValue: 10}}}}
  - type: Object
    object:
      describedObject: {{apiVersion: {version}, kind: {kind}, name: {name}}}
      metric: {{name: load}}
      target: {{type: Value, value: 1000}}
"""
GAUGE = re.compile(
    r'^gpu_metrics_adapter_hpa_metric_resolvable\{hpa="(\S+?)",metric="(\S+) .*?",'
    r'namespace="default",reason="(\w*)"\} (\S+)$',
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A workload, and what its controller does."""

    name: str
    kind: str
    version: str
    resource: str
    spec: Mapping[str, Any]
    replicas: str
    """Field of `spec`, and of `status` but for Rollouts."""
    present: str
    selector: str
    """Field of `status`."""
    labels: Mapping[str, str]
    leader: Mapping[str, str]
    """Further labels of the pods that the scale selects."""
    hpa_version: str
    """API version in the HPA; the controller ignores it."""
    pod: str
    """Name of the pod of a replica, as its controller gives it."""

    @property
    def path(self) -> str:
        return f"/apis/{self.version}/namespaces/default/{self.resource}/{self.name}"

    @property
    def definition(self) -> str:
        """Name of the CRD."""
        return f"{self.resource}.{self.version.partition('/')[0]}"

    @property
    def selected(self) -> str:
        return ",".join(f"{key}={each}" for key, each in {**self.labels, **self.leader}.items())


SETS = "leaderworkerset.sigs.k8s.io"
CONTAINERS = {"containers": [{"name": "main", "image": "example.invalid/main"}]}
WORKLOADS = (
    Workload(
        name="llm",
        kind="LeaderWorkerSet",
        version="leaderworkerset.x-k8s.io/v1",
        resource="leaderworkersets",
        spec={"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": CONTAINERS}}},
        replicas="replicas",
        present="replicas",
        selector="hpaPodSelector",
        labels={f"{SETS}/name": "llm"},
        leader={f"{SETS}/worker-index": "0"},
        hpa_version="leaderworkerset.x-k8s.io/v1",
        pod="llm-{index}",
    ),
    Workload(
        name="roll",
        kind="Rollout",
        version="argoproj.io/v1alpha1",
        resource="rollouts",
        spec={"selector": {"matchLabels": {"app": "roll"}}},
        replicas="replicas",
        present="HPAReplicas",
        selector="selector",
        labels={"app": "roll"},
        leader={},
        hpa_version="argoproj.io/v1alpha1",
        pod="roll-5c9f-bbbb{letter}",
    ),
    Workload(
        name="widget",
        kind="Widget",
        version="example.com/v1",
        resource="widgets",
        spec={},
        replicas="copies",
        present="copies",
        selector="pods",
        labels={"app": "widget"},
        leader={},
        hpa_version="example.com/v1alpha1",
        pod="widget-{index}",
    ),
)


METRICS = {(each.name, kind) for each in WORKLOADS for kind in ("Pods", "Object")}
FLAGS = (
    f"--scale-targets={','.join(each.definition for each in WORKLOADS)}",
    "--authorization-always-allow-paths=/metrics",
    "--shutdown-delay=0s",
)


class Controllers:
    """The controllers of the workloads; the load of their pods, as Prometheus has it."""

    def __init__(self, c: Cluster) -> None:
        self._cluster = c
        self._admin = c.control_plane.admin
        self._written: frozenset[str] = frozenset()
        self.load = 0.0
        """Load of each workload, which the pods that its scale selects share; 0 for no series."""

    def create(self, each: Workload) -> None:
        """Create a workload of one replica."""
        document = {
            "apiVersion": each.version,
            "kind": each.kind,
            "metadata": {"name": each.name},
            "spec": {**each.spec, each.replicas: 1},
        }
        self._admin.call("POST", each.path.rpartition("/")[0], document)

    def sync(self) -> None:
        """Let pods and status be as each spec wants them, and write the load."""
        series: dict[str, float] = {}
        for each in WORKLOADS:
            try:
                series |= self._sync(each)
            except RefusedError as error:
                if error.reply.status != 404:  # it is not created yet
                    return  # the next sync writes the series of all
        if ended := self._written - series.keys():
            self._cluster.prometheus.end(*(f"{each} 1" for each in ended))
        self._written = frozenset(series)
        if series:
            self._cluster.prometheus.put(*(f"{each} {value}" for each, value in series.items()))

    def _sync(self, each: Workload) -> Mapping[str, float]:
        """Return the series of the pods. A pod that the scale does not select has three loads."""
        wanted = self._admin.get(each.path)["spec"][each.replicas]
        series = {}
        for index in range(4):
            first = each.pod.format(index=index, letter="bcdf"[index])
            pods = [(first, each.leader, 1)]
            if each.leader:
                pods.append((f"{first}-1", dict.fromkeys(each.leader, "1"), 3))
            for name, labels, factor in pods:
                self._sync_pod(name, {**each.labels, **labels}, wanted=index < wanted)
                if index < wanted and self.load:
                    label = f'namespace="default",pod="{name}"'
                    series[f"load{{{label}}}"] = factor * self.load / wanted
        status = {each.present: wanted, each.selector: each.selected}
        if each.kind == "LeaderWorkerSet":
            status["conditions"] = []  # its schema requires them
        self._admin.call(
            "PATCH", f"{each.path}/status", {"status": status}, content_type=MERGE_PATCH
        )
        return series

    def _sync_pod(self, name: str, labels: Mapping[str, str], *, wanted: bool) -> None:
        path = "/api/v1/namespaces/default/pods"
        exists = self._admin.exists(f"{path}/{name}")
        if wanted and not exists:
            metadata = {"name": name, "labels": labels}
            self._admin.call("POST", path, {"metadata": metadata, "spec": CONTAINERS})
        elif exists and not wanted:
            self._admin.call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})


@pytest.fixture
def c(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster without the three kinds."""
    with cluster.running(control_plane, tmp_path, generation="alibaba", nodes=2) as running:
        yield running


def install(c: Cluster) -> None:
    """Create the kinds."""
    for text in (WIDGETS, *(each.read_text() for each in sorted(CRDS.glob("*.yaml")))):
        c.apply(text)
    for each in WORKLOADS:
        c.control_plane.kubectl("wait", "--for=condition=Established", f"crd/{each.definition}")


class Seen:
    """What the adapter and `explain hpa` say of the HPAs, and the Events on them."""

    def __init__(self, c: Cluster, adapter: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._adapter, self._capsys = c, adapter, capsys

    def gauge(self) -> Mapping[tuple[str, str], str]:
        """Return the reason of each HPA and type of metrics; empty if the metric has a value."""
        url = f"{self._adapter.url}/metrics"
        with urllib.request.urlopen(url, context=INSECURE, timeout=90) as response:
            found = GAUGE.findall(response.read().decode())
        assert all((reason == "") == (value == "1.0") for *_, reason, value in found)
        return {(hpa, kind): reason for hpa, kind, reason, _ in found}

    def events(self, reason: str) -> set[tuple[str, str]]:
        """Return the HPAs and types of metrics of Events."""
        path = "/api/v1/namespaces/default/events"
        found = self._cluster.control_plane.admin.get(path)["items"]
        return {
            (each["involvedObject"]["name"], each["message"].partition(" ")[0])
            for each in found
            if each["reason"] == reason
        }

    def explained(self, name: str) -> Any:
        """Return the document of `explain hpa`."""
        return json.loads(self._run("explain", name))

    def replayed(self, name: str) -> Any:
        """Return the document of `replay hpa`."""
        url = f"--prometheus-url={self._cluster.prometheus.url}"
        return json.loads(self._run("replay", name, url, "--since=15m", "--sync-period=2s"))

    def _run(self, command: str, name: str, *flags: str) -> str:
        kubeconfig = f"--kubeconfig={self._cluster.control_plane.kubeconfig}"
        output = ""

        def answered() -> bool:
            nonlocal output
            self._capsys.readouterr()
            program.main([command, "hpa", f"default/{name}", "-o", "json", kubeconfig, *flags])
            output = self._capsys.readouterr().out
            return NO_ANSWER not in output  # on a busy machine

        wait_for(answered, f"{command} has all answers")
        return output


def test_hpas_on_scale_targets_have_gauge_events_and_explanation(
    c: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    controllers = Controllers(c)
    with repeated(controllers.sync, every=0.3), c.adapter(*FLAGS, config=RULES) as adapter:
        seen = Seen(c, adapter, capsys)
        controllers.load = 10.0
        install(c)  # after the first discovery of the adapter
        for each in WORKLOADS:
            controllers.create(each)
            c.apply(HPA.format(name=each.name, kind=each.kind, version=each.hpa_version))
        wait_for(lambda: seen.gauge() == dict.fromkeys(METRICS, ""), "values")
        for load, replicas in ((10.0, 1), (30.0, 3), (20.0, 2)):
            controllers.load = load
            for each in WORKLOADS:
                check_decision(c, seen, each, replicas)
        controllers.load = 0.0
        wait_for(lambda: seen.gauge() == dict.fromkeys(METRICS, "SeriesEnded"), "no values")
        wait_for(lambda: seen.events("MetricUnresolvable") >= METRICS, "Events")
        controllers.load = 20.0
        wait_for(lambda: seen.gauge() == dict.fromkeys(METRICS, ""), "values again")
        wait_for(lambda: seen.events("MetricResolvable") >= METRICS, "further Events")
        assert "cannot be read" not in adapter.log
        for name in ("llm", "roll"):  # names of the pods of others are not certain
            was = seen.replayed(name)["variants"][0]
            assert max(number for _, number in was["replicas"]) == 3


def check_decision(c: Cluster, seen: Seen, each: Workload, replicas: int) -> None:
    """`explain hpa` has the values and the decision of the controller."""
    others = 3 if each.leader else 1
    of_object = str(10 * (1 + others) // 2)

    def settled(hpa: Hpa) -> bool:
        numbers = {hpa.current_replicas, hpa.desired_replicas}
        return numbers == {replicas} and hpa.metrics == ["10", of_object]

    c.watch_hpa(each.name, until=settled)
    document = seen.explained(each.name)
    assert document["desiredReplicas"] == replicas
    assert document["pods"] == replicas
    assert [metric["current"] for metric in document["metrics"]] == ["10", of_object]
    left_out = f"one pod of each group: the values of {replicas} pod"
    assert (left_out in document["verdict"]) is bool(each.leader)
