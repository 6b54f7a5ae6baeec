"""A control plane, Prometheus and adapter in which the faults are seeded one after the other.

with testbed.running(control_plane, folder) as bed:
    for fault, outputs in bed.observe(seeds.FAULTS):
        print(outputs["doctor"])
"""

from __future__ import annotations

import contextlib
import io
import json
import ssl
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter import __main__ as program
from adapter import commands
from tests.adapter.app.credentials import BASIC, HASHED, USER
from tests.cluster import server
from tests.cluster.server import Server
from tests.control_plane.plane import ControlPlane
from tests.faults.seeds import BEFORE, FAULTS, HEALTHY, Fault, rules
from tests.real import prometheus
from tests.real.prometheus import Prometheus, wait_for

GROUP = "/apis/custom.metrics.k8s.io/v1beta2"
_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gpu-metrics-adapter:resource-reader"
_USERS = f"basic_auth_users: {{{USER}: {HASHED}}}\n"
INSECURE = ssl.create_default_context()
INSECURE.check_hostname, INSECURE.verify_mode = False, ssl.CERT_NONE


def replica_set(name: str) -> dict[str, Any]:
    """Return a ReplicaSet that adopts the pod of `pod`."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    # There is no such account, so no pod is created.
                    "serviceAccountName": "missing",
                    "containers": [{"name": "web", "image": "web"}],
                },
            },
        },
    }


def pod(app: str) -> dict[str, Any]:
    """Return the pod `APP-0`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{app}-0", "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "web", "image": "web"}]},
    }


_OBJECTS = (replica_set("web"), replica_set("renamed"), pod("web"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a user sees of one fault."""

    answer: str
    """The causes in the Status, else the header `Warning`, as the API server passes them on."""
    kubectl: str
    """Last warning that `kubectl get --raw` prints."""
    doctor: str
    """Last line."""
    explain: str
    """Last line; empty while there is no such command."""


class Testbed:
    """Servers, and the state of their seeds."""

    def __init__(self, plane: ControlPlane, folder: Path, healthy: Prometheus) -> None:
        self.plane = plane
        self._folder = folder
        self._healthy = healthy
        self._url = healthy.url

    def observe(self, faults: Iterable[Fault]) -> Iterator[tuple[Fault, Outputs]]:
        """Seed each fault, yield what a user sees, and remove it."""
        by_place = sorted(faults, key=lambda fault: fault.place in {"url", "credentials"})
        with self._adapter(self._healthy.url, "healthy"):
            with self._without_pods():  # first: later, the pods are in the watch cache
                yield from self._all(each for each in by_place if each.place == "rights")
            wait_for(lambda: self._get(Fault(title="", reason="", words=()))[0] == 200, "rights")
            places = {"series", "selector"}
            yield from self._all(each for each in by_place if each.place in places)
        with self._adapter("http://127.0.0.1:9", "url"):
            yield from self._all(each for each in by_place if each.place == "url")
        folder = self._folder / "protected"
        folder.mkdir()
        with (
            prometheus.run(folder, web=_USERS, headers={"Authorization": BASIC}) as protected,
            self._adapter(protected.url, "credentials"),
        ):
            yield from self._all(each for each in by_place if each.place == "credentials")

    def _all(self, faults: Iterable[Fault]) -> Iterator[tuple[Fault, Outputs]]:
        for fault in faults:
            with self._autoscaler(fault):
                yield (
                    fault,
                    Outputs(
                        answer=self._get(fault)[1],
                        kubectl=self._kubectl(fault),
                        doctor=self._program("doctor", f"--prometheus-url={self._url}"),
                        explain=self._explain(fault),
                    ),
                )

    def _path(self, fault: Fault) -> str:
        selector = "renamed" if fault.place == "selector" else "web"
        path = f"{GROUP}/namespaces/default/pods/*/{fault.metric}"
        return f"{path}?labelSelector=app%3D{selector}"

    def _get(self, fault: Fault) -> tuple[int, str]:
        reply = self.plane.admin.request("GET", self._path(fault))
        causes = [
            f"{each['reason']}: {each['message']}"
            for each in (reply.document.get("details") or {}).get("causes", ())
            if "reason" in each
        ]
        return reply.status, causes[0] if causes else reply.headers.get("Warning", "")

    def _kubectl(self, fault: Fault) -> str:
        done = subprocess.run(
            [
                self.plane.programs.kubectl,
                f"--kubeconfig={self.plane.kubeconfig}",
                *("get", "--raw", self._path(fault)),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
        return [*done.stderr.splitlines(), *warnings][-1]

    def _explain(self, fault: Fault) -> str:
        if "explain" not in commands.SUMMARIES:
            return ""
        selector = "renamed" if fault.place == "selector" else "web"
        return self._program(
            "explain", "default/pods/*", fault.metric, f"--selector=app={selector}"
        )

    def _program(self, *arguments: str) -> str:
        """Run a command of the adapter and return its last line."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            program.main([*arguments, f"--kubeconfig={self.plane.kubeconfig}"])
        return output.getvalue().splitlines()[-1]

    @contextlib.contextmanager
    def _adapter(self, url: str, name: str) -> Iterator[None]:
        config = self._folder / "rules.yaml"
        config.write_text(rules())
        flags = ("--preset=gpu-dcgm", f"--config={config}", f"--prometheus-url={url}")
        log = self._folder / f"adapter-{name}.log"
        adapter = Server(self.plane, log, (*flags, "--shutdown-delay=0s"))
        self._url = url
        try:
            adapter.start()
            ready = f"{adapter.url}/readyz"
            wait_for(lambda: prometheus.status(ready, context=INSECURE) == 200, "it is ready")
            yield
        finally:
            adapter.kill()

    @contextlib.contextmanager
    def _autoscaler(self, fault: Fault) -> Iterator[None]:
        name = "renamed" if fault.place == "selector" else "web"
        target = {"type": "AverageValue", "averageValue": "1"}
        document = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name},
                "maxReplicas": 1,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": fault.metric}, "target": target}}
                ],
            },
        }
        path = f"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/{name}"
        self.plane.admin.apply(path, document)
        try:
            yield
        finally:
            self.plane.admin.call("DELETE", path)

    @contextlib.contextmanager
    def _without_pods(self) -> Iterator[None]:
        role = self.plane.admin.get(_ROLE)
        restricted = json.loads(json.dumps(role["rules"]))
        for rule in restricted:
            rule["resources"] = [each for each in rule["resources"] if each != "pods"]
        self._set_rules(restricted)
        # RBAC reads its own watch cache.
        healthy = Fault(title="", reason="", words=())
        wait_for(lambda: self._get(healthy)[0] == 500, "the right is revoked")
        try:
            yield
        finally:
            self._set_rules(role["rules"])

    def _set_rules(self, rules: list[Any]) -> None:
        options = {"content_type": "application/merge-patch+json"}
        self.plane.admin.call("PATCH", _ROLE, {"rules": rules}, **options)


@contextlib.contextmanager
def running(plane: ControlPlane, folder: Path) -> Iterator[Testbed]:
    """Install the adapter, and run a Prometheus with the series of all faults."""
    with contextlib.ExitStack() as stack:
        healthy = stack.enter_context(prometheus.run(folder))
        _seed(healthy)
        stack.enter_context(server.installed(plane))
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": _OBJECTS})
        plane.kubectl("apply", "-f", "-", text=text)
        stack.callback(
            plane.kubectl, "delete", "--force", "--ignore-not-found", "-f", "-", text=text
        )
        yield Testbed(plane, folder, healthy)


def _seed(server: Prometheus) -> None:
    now = time.time()
    ended = [line for fault in FAULTS for line in fault.ended]
    for later in range(4):
        server.put(*ended, at=now - BEFORE - 180 + 60 * later)
    server.end(*(line for line in ended if "job=" in line), at=now - BEFORE + 1)
    server.put(*HEALTHY, *(line for fault in FAULTS for line in fault.live), at=now)
