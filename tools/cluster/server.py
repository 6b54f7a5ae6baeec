"""The adapter as a process behind the aggregator, with exactly the RBAC rights of the manifests.

with server.installed(control_plane):
    adapter = server.Server(control_plane, log, ["--preset=gpu-dcgm", f"--prometheus-url={url}"])
    adapter.start()
"""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from http.client import OK
from pathlib import Path
from typing import Any

import yaml

from adapter.cli.local_prometheus.process import free_ports
from rules.metrics_apis import USAGE
from tools.certificates import INSECURE
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane
from tools.real.prometheus import status, wait_for

NAME = NAMESPACE = "gpu-metrics-adapter"
OVERLAY = Path(__file__).parents[2] / "manifests" / "overlays" / "external-metrics"
"""Has the APIServices of both the custom and the external metrics API."""

_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_LISTENING = "serving on"


def api_services(control_plane: ControlPlane, overlay: Path = OVERLAY) -> tuple[str, ...]:
    """Return the names of the APIServices in an overlay that refer to the adapter's Service."""
    documents = yaml.safe_load_all(control_plane.kubectl("kustomize", overlay))
    return tuple(
        each["metadata"]["name"]
        for each in documents
        if each["kind"] == "APIService" and each["spec"]["service"]["name"] == NAME
    )


def install(control_plane: ControlPlane, *flags: str, overlay: Path = OVERLAY) -> None:
    """Apply an overlay (with `flags` of kubectl), and point the Service to this machine.

    The Deployment is scaled to zero: the adapter runs as a process, not in a simulated pod.
    """
    control_plane.kubectl("apply", "--warnings-as-errors", *flags, "-k", overlay)
    control_plane.kubectl("scale", f"deployment/{NAME}", "--replicas=0", f"--namespace={NAMESPACE}")
    control_plane.local_service(NAME, NAMESPACE)


@contextlib.contextmanager
def installed(control_plane: ControlPlane) -> Iterator[None]:
    """Install the manifests, and delete them at the end unless they were installed before."""
    namespace = f"/api/v1/namespaces/{NAMESPACE}"
    before = control_plane.admin.exists(namespace)
    try:
        install(control_plane)
        yield
    finally:
        if not before:
            control_plane.kubectl("delete", "--ignore-not-found", "--timeout=90s", "-k", OVERLAY)


def overlay(folder: Path, component: str) -> Path:
    """Write an overlay with a component of the manifests below `folder`, and return it."""
    written = folder / "overlay"
    written.mkdir()
    # kustomize accepts no absolute path.
    base, more = (
        os.path.relpath(each, written)
        for each in (OVERLAY, OVERLAY.parents[1] / "components" / component)
    )
    kustomization = {"resources": [base], "components": [more]}
    (written / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return written


@contextlib.contextmanager
def with_resource_metrics(control_plane: ControlPlane, folder: Path) -> Iterator[Path]:
    """Apply the component resource-metrics, too; write the overlay below `folder` and yield it.

    Use it within `installed`. At the end only the APIServices are deleted.
    """
    written = overlay(folder, "resource-metrics")
    try:
        install(control_plane, overlay=written)
        yield written
    finally:
        control_plane.kubectl("delete", "--ignore-not-found", "apiservice", *USAGE.apiservices)


class Server:
    """Adapter process with the token of its ServiceAccount; keeps its port between starts.

    `ca` (PEM) is set as the caBundle of the APIServices; without it the adapter publishes its own.
    `overlay` is what was installed.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        log: Path,
        flags: Sequence[str],
        *,
        ca: bytes | None = None,
        overlay: Path = OVERLAY,
    ) -> None:
        self.api_services = api_services(control_plane, overlay)
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        self._control_plane = control_plane
        self._ca = ca
        self._log = log
        self._listened_before = 0
        command = [
            *(sys.executable, "-m", "adapter", f"--secure-port={self.port}"),
            f"--lister-kubeconfig={control_plane.account_kubeconfig(NAME, NAMESPACE)}",
            f"--service-namespace={NAMESPACE}",
            *flags,
        ]
        self.daemon = Daemon(
            "adapter", command, log, lambda: self._times_listening() > self._listened_before
        )

    @property
    def log(self) -> str:
        """Log of all processes started so far."""
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        """Start the adapter and wait until every APIService is Available."""
        self.listen()
        self.wait_available()

    def listen(self) -> None:
        """Point the APIServices to this port, start the adapter and wait until it listens."""
        for name in self.api_services:
            self._set_api_service_port(name)
        self._listened_before = self._times_listening()
        self.daemon.start()

    def wait_available(self) -> None:
        """Wait until the adapter is ready, and every APIService passes requests on to it."""
        # A pod gets requests once it is ready, but this process gets them as soon as it listens.
        ready = partial(status, f"{self.url}/readyz", context=INSECURE)
        wait_for(lambda: ready() == OK, "the adapter is ready")
        for name in self.api_services:
            self._control_plane.wait_available(name)
            # The condition may be left from an earlier process.
            version, _, group = name.partition(".")
            path = f"/apis/{group}/{version}"
            wait_for(partial(self._control_plane.admin.exists, path), f"GET {path} returns 200")

    def stop(self) -> None:
        """Send SIGTERM and wait. Raises RuntimeError if the exit status is not 0."""
        if status := self.daemon.stop():
            raise RuntimeError(
                f"the adapter exited with status {status}:\n{self.daemon.last_lines()}"
            )

    def kill(self) -> None:
        """Send SIGKILL and wait."""
        self.daemon.kill()

    def _set_api_service_port(self, name: str) -> None:
        spec: dict[str, Any] = {"service": {"port": self.port}}
        if self._ca is not None:
            spec["caBundle"] = base64.b64encode(self._ca).decode()
        path = f"{_API_SERVICES}/{name}"
        self._control_plane.admin.call("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)

    def _times_listening(self) -> int:
        return self.log.count(_LISTENING)
