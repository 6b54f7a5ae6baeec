"""The adapter in the cluster of $KUBECONFIG, in a namespace of its own, with pods that it measures.

The namespace enforces the Pod Security Standard "restricted". The commands are those of the
documents: kubectl, helm and `gpu-metrics-adapter`.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from rules import metrics_apis
from tools import helm
from tools.cluster import hpa
from tools.control_plane import build
from tools.control_plane.client import Client, is_true
from tools.documents import Document
from tools.e2e import probe
from tools.e2e.probe import Probe
from tools.real.prometheus import wait_for
from tools.workload import objects

NAMESPACE = "gpu-metrics-adapter-e2e"
RELEASE = "prometheus-adapter"
PODS = f"app.kubernetes.io/name=prometheus-adapter,app.kubernetes.io/instance={RELEASE}"
"""Label selector of the adapter's pods."""
METRIC = "duty_cycle_current"
PATH = (
    f"{metrics_apis.custom_metric(METRIC, 'pods', metrics_apis.ALL_OBJECTS, namespace=NAMESPACE)}"
    f"?labelSelector=app%3D{objects.APP}"
)
LOAD_OF_ONE = 15
"""Load for which the HPA wants one replica."""
SECONDS = 180.0
"""Limit of a wait; on an idle machine, none takes a tenth of it."""

ACCOUNT = "e2e"
_POD_SECURITY = "pod-security.kubernetes.io/enforce=restricted"
_VALUES = {
    "presets": ["auto"],
    "rules": {"default": False},
    "prometheus": {"url": objects.url(NAMESPACE)},
}
"""Those of README."""


class Cluster:
    """A cluster with the workload in NAMESPACE; the adapter is installed by its tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        on_path = shutil.which("kubectl")
        self.kubectl_program = Path(on_path) if on_path else build.ensure_programs().kubectl
        self.kubeconfig = json.loads(
            self.kubectl("config", "view", "--minify", "--flatten", "--raw", "--output=json")
        )
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """Client with all rights."""
        assert self._client
        return self._client

    def kubectl(
        self, *arguments: str | Path, text: str | bytes = "", namespace: str = NAMESPACE
    ) -> str:
        """Run kubectl with `text` on stdin and return stdout. Raises RuntimeError with stderr.

        Without `namespace`, the objects say where they are.
        """
        command: list[str | Path] = [self.kubectl_program, *arguments]
        if namespace:
            command.insert(1, f"--namespace={namespace}")
        content = text.encode() if isinstance(text, str) else text
        done = subprocess.run(command, input=content, capture_output=True, check=False)
        if done.returncode:
            line = " ".join(map(str, arguments))
            raise RuntimeError(f"kubectl {line}: {(done.stderr or done.stdout).decode()}")
        return done.stdout.decode()

    def get(self, *arguments: str) -> Any:
        """Return the object or list of `kubectl get`."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def pods(self, selector: str = PODS) -> list[dict[str, Any]]:
        """Return the pods of NAMESPACE that are not being deleted, by default the adapter's."""
        found = self.get("pods", f"--selector={selector}")["items"]
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def apply(self, documents: Sequence[Document]) -> None:
        """Run `kubectl apply`."""
        self.kubectl("apply", "--filename=-", text=yaml.safe_dump_all(documents))

    def helm(self, command: str, *arguments: str | Path, values: object = None) -> str:
        """Run helm for RELEASE; return what it prints. Raises RuntimeError."""
        return helm.run(command, RELEASE, *arguments, f"--namespace={NAMESPACE}", values=values)

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Install or upgrade the chart with the values of README and `values`, without waiting."""
        repository, _, tag = image().rpartition(":")
        image_values = {"image": {"repository": repository, "tag": tag}}
        merged = _VALUES | image_values | dict(values or {})
        self.helm("upgrade", "--install", helm.CHART, values=merged)

    def uninstall(self) -> None:
        """Uninstall the release, and wait until its pods are gone."""
        self.helm("uninstall", "--ignore-not-found", "--wait")
        self.wait(lambda: not self.get("pods", f"--selector={PODS}")["items"], "no pod is left")

    def program(self, *arguments: str) -> tuple[int, str]:
        """Run `gpu-metrics-adapter` on this machine; return its exit code and output."""
        command = [sys.executable, "-m", "adapter", *arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        return done.returncode, done.stdout

    def rolled_out(self, kind: str = "deployment", name: str = RELEASE) -> None:
        """Wait until a rollout is complete."""
        self.kubectl("rollout", "status", f"{kind}/{name}", f"--timeout={SECONDS:.0f}s")

    def settled(self) -> None:
        """Wait until all replicas are ready and none of their predecessors is left."""
        self.rolled_out()
        spec = self.get("deployment", RELEASE)["spec"]["replicas"]

        def met() -> bool:
            found = self.get("pods", f"--selector={PODS}")["items"]
            return len(found) == spec and all(is_true(each, "Ready") for each in found)

        self.wait(met, f"{spec} pods are left, all ready")

    def wait_available(self, name: str) -> None:
        """Wait until an APIService is Available."""

        def met() -> bool:
            with contextlib.suppress(RuntimeError):  # it may not exist yet
                return is_true(self.get("apiservice", name), "Available")
            return False

        self.wait(met, f"{name} is Available")

    def hpa(self) -> hpa.Hpa:
        """Return the HPA of the workload."""
        return hpa.read(self.client, objects.APP, NAMESPACE)

    def has_metric(self) -> bool:
        """Return whether the HPA has a current value."""
        return self.hpa().metrics != [hpa.UNKNOWN]

    def set_load(self, load: float) -> None:
        """Set the load of the workload, in per cent of one GPU."""
        self.kubectl(
            "annotate", "--overwrite", f"deployment/{objects.APP}", f"{objects.LOAD}={load:g}"
        )

    def lost_syncs(self) -> int:
        """Return how many syncs of the HPA got no metric until now."""
        return hpa.lost_syncs(self.get("events")["items"], objects.APP)

    def probing(self, interval: float = probe.INTERVAL) -> AbstractContextManager[Probe]:
        """Request METRIC through the aggregator every `interval` while the context lasts."""
        return probe.probing(self.client, PATH, self.lost_syncs, interval)

    def wait(self, condition: Callable[[], object], what: str) -> float:
        """Wait until a condition holds; return the seconds. Raises TimeoutError with `what`."""
        started = time.monotonic()
        wait_for(condition, what, seconds=SECONDS)
        return time.monotonic() - started

    def set_up(self) -> None:
        """Create the namespace, the client and the workload.

        Raises RuntimeError if another server has the APIServices of custom metrics.
        """
        self._refuse_other_servers()
        self.kubectl("create", "namespace", NAMESPACE)
        self.kubectl("label", "namespace", NAMESPACE, _POD_SECURITY)
        self._client = self._create_client()
        self.apply(
            [
                *objects.prometheus(NAMESPACE),
                *objects.gpus(NAMESPACE, image=image()),
                *objects.app(NAMESPACE, image=image(), load=LOAD_OF_ONE),
            ]
        )
        self.rolled_out("deployment", objects.PROMETHEUS)
        self.rolled_out("daemonset", objects.EXPORTER)
        self.rolled_out("deployment", objects.APP)

    def tear_down(self) -> None:
        """Delete everything that `set_up` and the tests created."""
        names = f"{NAMESPACE}-{ACCOUNT}", f"{NAMESPACE}-{objects.PROMETHEUS}"
        self.helm("uninstall", "--ignore-not-found")
        self.kubectl("delete", "--ignore-not-found", "clusterrolebinding", *names)
        self.kubectl("delete", "--ignore-not-found", "clusterrole", names[1])
        self.kubectl("delete", "--ignore-not-found", "namespace", NAMESPACE)

    def _refuse_other_servers(self) -> None:
        for each in self.get("apiservices")["items"]:
            service = each["spec"].get("service") or {}
            name = each["metadata"]["name"]
            if name in metrics_apis.CUSTOM.apiservices and service.get("namespace") != NAMESPACE:
                raise RuntimeError(
                    f"{name} belongs to {service.get('namespace')}/{service.get('name')}: "
                    "a cluster has one server of custom metrics; use another cluster"
                )

    def _create_client(self) -> Client:
        self.kubectl("create", "serviceaccount", ACCOUNT)
        self.kubectl(
            *("create", "clusterrolebinding", f"{NAMESPACE}-{ACCOUNT}"),
            *("--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}"),
        )
        (entry,) = self.kubeconfig["clusters"]
        return Client(
            entry["cluster"]["server"],
            base64.b64decode(entry["cluster"]["certificate-authority-data"]),
            self.folder,
            token=self.kubectl("create", "token", ACCOUNT, "--duration=4h").strip(),
        )


@functools.cache
def image() -> str:
    """Return the image of the adapter: `$E2E_IMAGE`, else the default of the chart."""
    if chosen := os.environ.get("E2E_IMAGE"):
        return chosen
    (deployment,) = (each for each in helm.template() if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Set the workload up in the cluster of $KUBECONFIG; delete everything at the end."""
    cluster = Cluster(folder)
    try:
        cluster.set_up()
        yield cluster
    finally:
        cluster.tear_down()
