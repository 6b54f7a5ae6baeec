"""Replacement of prometheus-adapter: Helm upgrades its release while HPAs run on both APIs.

The objects are those of the original's chart. This program stands in for the original's, with
that one's arguments and rights, and a certificate that the API server cannot verify; the real one
runs in tests/e2e. Pods are processes on this machine; each upgrade starts a new one beside the old.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from adapter.cli.local_prometheus.process import free_ports
from rules.metrics_apis import USAGE
from tools import helm
from tools.cluster import cluster, hpa, server
from tools.cluster.walkthrough import STEP_TIMEOUT, Walkthrough, echo
from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import wait_for

RELEASE, NAMESPACE = "prometheus-adapter", "monitoring"
SERIES = "nvidia_gpu_duty_cycle"
RULES = {
    "default": False,
    "custom": [
        {
            "seriesQuery": f'{SERIES}{{pod_name!=""}}',
            "resources": {
                "overrides": {
                    "namespace_name": {"resource": "namespace"},
                    "pod_name": {"resource": "pod"},
                }
            },
            "name": {"as": "gpu_utilization"},
            "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        }
    ],
    "external": [
        {
            "seriesQuery": SERIES,
            "resources": {"namespaced": False},
            "name": {"as": "gpu_utilization_of_all"},
            "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
        }
    ],
}
API_SERVICES = ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")

WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      containers:
        - {name: server, image: NAME, resources: {limits: {nvidia.com/gpu: 1}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}
  maxReplicas: 3
  metrics: [METRIC]
"""
METRICS = {
    "chat": "{type: Pods, pods: {metric: {name: gpu_utilization}, target: {type: AverageValue, "
    "averageValue: 40}}}",
    "batch": "{type: External, external: {metric: {name: gpu_utilization_of_all}, "
    "target: {type: Value, value: 40}}}",
}
"""HPA -> its metric."""

POST_RENDERER = """\
#!{python}
import sys, yaml
documents = [each for each in yaml.safe_load_all(sys.stdin) if each]
for each in documents:
    if each["kind"] == "Service":
        each["spec"] = {{"type": "ExternalName", "externalName": "localhost"}}
    if each["kind"] == "APIService":
        each["spec"]["service"]["port"] = {port}
yaml.safe_dump_all(documents, sys.stdout)
"""
"""Lets the API server reach a process on this machine in place of pods."""


class Installation:
    """The Helm release, and one process at a time in place of its pods."""

    def __init__(self, c: cluster.Cluster, folder: Path) -> None:
        self.plane = c.control_plane
        self.folder = folder
        self.prometheus = c.prometheus
        (self.port,) = free_ports(1)
        self.post_renderer = folder / "post-renderer"
        self.post_renderer.write_text(POST_RENDERER.format(python=sys.executable, port=self.port))
        self.post_renderer.chmod(0o755)
        self.process: Daemon | None = None
        self.started = 0

    def helm(self, command: str, *arguments: str | Path) -> str:
        echo(f"$ helm {command} {RELEASE} {' '.join(Path(each).name for each in arguments)}")
        values = {"rules": RULES, "metricsRelistInterval": "10s"}
        values["prometheus"] = {"url": "http://127.0.0.1", "port": self.prometheus.port}
        renders = command != "uninstall"
        post = [f"--post-renderer={self.post_renderer}"] if renders else []
        flags = (f"--namespace={NAMESPACE}", f"--kubeconfig={self.plane.kubeconfig}")
        return helm.run(
            command, RELEASE, *arguments, *flags, *post, values=values if renders else None
        )

    def roll_out(self) -> None:
        """Start a process with the arguments of the Deployment; end the old one once it serves."""
        old, self.started = self.process, self.started + 1
        read = ("get", f"--namespace={NAMESPACE}", "--output=json")
        config = json.loads(self.plane.kubectl(*read, "configmap", RELEASE))
        rules = self.folder / f"rules-{self.started}.yaml"
        rules.write_text(config["data"]["config.yaml"])
        deployment = json.loads(self.plane.kubectl(*read, "deployment", RELEASE))
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        log = self.folder / f"pod-{self.started}.log"
        command = [
            *(sys.executable, "-m", "adapter", *container["args"]),
            *(f"--secure-port={self.port}", f"--config={rules}", f"--cert-dir={self.folder}"),
            f"--lister-kubeconfig={self.plane.account_kubeconfig(RELEASE, NAMESPACE)}",
            *("--permit-port-sharing", f"--service-namespace={NAMESPACE}", "--v=6"),
            f"--prometheus-url={self.prometheus.url}",
        ]
        command = [each for each in command if not each.startswith("--config=/etc/")]
        self.process = Daemon("adapter", command, log, lambda: "serving on" in log.read_text())
        self.process.start()
        if old is not None:
            old.stop()

    def wait_for_autoscalers(self) -> None:
        """Wait until the HPA controller has got both metrics from the present process, twice."""
        assert self.process
        log = self.process.log
        answer = r"GET /apis/{}\.metrics\S* from kube-controller-manager/.*: 200"
        for group in ("custom", "external"):
            pattern = re.compile(answer.format(group))
            wait_for(
                lambda each=pattern: len(each.findall(log.read_text())) > 1,
                f"the controller reads {group} metrics",
                seconds=STEP_TIMEOUT,
            )

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()

    def health(self) -> str:
        """Return /readyz?verbose."""
        context = ssl._create_unverified_context()
        url = f"https://127.0.0.1:{self.port}/readyz?verbose"
        with urllib.request.urlopen(url, context=context) as response:
            text: str = response.read().decode()
            return text


def failures(plane: ControlPlane) -> dict[str, int]:
    """Return how many syncs of each HPA got no metric."""
    found = json.loads(plane.kubectl("get", "events", "--output=json"))["items"]
    return {name: hpa.lost_syncs(found, name) for name in METRICS}


def write_original(folder: Path) -> Path:
    """Write the chart of the original with the rules of this walkthrough, and return it."""
    documents = [
        each for each in helm.original() if each["metadata"]["name"] not in USAGE.apiservices
    ]
    (config,) = (each for each in documents if each["kind"] == "ConfigMap")
    rules = {"rules": RULES["custom"], "externalRules": RULES["external"]}
    config["data"]["config.yaml"] = yaml.safe_dump(rules)
    return helm.write_original(folder, documents)


@pytest.fixture
def _without_the_base(control_plane: ControlPlane):
    """Free the names of the APIServices, and give them back at the end."""
    control_plane.kubectl("delete", "apiservice", *server.api_services(control_plane))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    control_plane.kubectl("apply", "-f", "-", text=json.dumps(namespace))
    yield
    control_plane.kubectl("delete", "namespace", NAMESPACE, "--wait=false")
    server.install(control_plane)


@pytest.mark.usefixtures("_without_the_base")
def test_replacement(control_plane: ControlPlane, tmp_path: Path) -> None:
    original = write_original(tmp_path / "original")

    with cluster.running(control_plane, tmp_path, generation="alibaba") as c:
        installation = Installation(c, tmp_path)
        c.exit_stack.callback(installation.stop)
        c.wait_scraped()
        installation.helm("install", original)
        c.exit_stack.callback(lambda: installation.helm("uninstall"))
        installation.roll_out()
        for name in API_SERVICES:
            control_plane.wait_available(name, seconds=STEP_TIMEOUT)
        for name, metric in METRICS.items():
            c.apply(WORKLOAD.replace("NAME", name).replace("METRIC", metric))
            c.fleet.set_load(name, 30)
        chat, batch = (Walkthrough(c, hpa=name) for name in METRICS)
        chat.wait_for_row("30/40", replicas=1)
        batch.wait_for_row("60/40", replicas=3)
        before = failures(control_plane)

        for _ in range(2):
            installation.helm("upgrade", helm.CHART)
            installation.roll_out()
            control_plane.wait_available("v1beta2.custom.metrics.k8s.io", seconds=STEP_TIMEOUT)
            installation.wait_for_autoscalers()
            chat.wait_for_row("30/40", replicas=1)
            batch.wait_for_row("60/40", replicas=3)
            lost = {name: count - before[name] for name, count in failures(control_plane).items()}
            echo(f"syncs without a metric: {lost}")
            assert max(lost.values()) <= 1

        spec = json.loads(control_plane.kubectl("get", "apiservice", API_SERVICES[0], "-ojson"))[
            "spec"
        ]
        assert "insecureSkipTLSVerify" not in spec
        assert spec["caBundle"]
        assert "[!]rights" not in installation.health()
