"""The adapter as a process behind the aggregator, with the rights of the manifests and no others.

with server.installed(plane):
    adapter = server.Server(plane, log, ["--preset=gpu-dcgm", f"--prometheus-url={url}"])
    adapter.start()
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.control_plane.daemon import Daemon, free_ports
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for

NAME = NAMESPACE = "gpu-metrics-adapter"
_MANIFESTS = Path(__file__).parents[2] / "manifests"
BASE = _MANIFESTS / "base"
_EVERYTHING = _MANIFESTS / "overlays" / "external-metrics"

_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_MERGE_PATCH = "application/merge-patch+json"
_LISTENING = "serving on"


def api_services(plane: ControlPlane) -> tuple[str, ...]:
    """The names of those that name our Service."""
    documents = yaml.safe_load_all(plane.kubectl("kustomize", _EVERYTHING))
    return tuple(
        each["metadata"]["name"]
        for each in documents
        if each["kind"] == "APIService" and each["spec"]["service"]["name"] == NAME
    )


def install(plane: ControlPlane) -> None:
    """Apply the manifests, with this machine as the Service.

    Its Deployment has no replicas: the adapter is a process here, and no pod is to pretend.
    """
    plane.kubectl("apply", "--warnings-as-errors", "-k", _EVERYTHING)
    plane.kubectl("scale", f"deployment/{NAME}", "--replicas=0", f"--namespace={NAMESPACE}")
    plane.local_service(NAME, NAMESPACE)


@contextlib.contextmanager
def installed(plane: ControlPlane) -> Iterator[None]:
    """`install`, and gone at the end, unless it was there before."""
    before = plane.admin.request("GET", f"/api/v1/namespaces/{NAMESPACE}").status == HTTPStatus.OK
    try:
        install(plane)
        yield
    finally:
        if not before:
            plane.kubectl("delete", "--ignore-not-found", "--timeout=60s", "-k", _EVERYTHING)


class Server:
    """A process with the token of our ServiceAccount, always on one port.

    `ca` (PEM) is published as the caBundle; without it the adapter publishes its own.
    """

    def __init__(
        self,
        plane: ControlPlane,
        log: Path,
        flags: Sequence[str],
        *,
        ca: bytes | None = None,
    ) -> None:
        self.api_services = api_services(plane)
        (self.port,) = free_ports(1)
        self.url = f"https://127.0.0.1:{self.port}"
        self._plane = plane
        self._ca = ca
        self._log = log
        self._listened = 0
        command = [
            *(sys.executable, "-m", "adapter", f"--secure-port={self.port}"),
            f"--lister-kubeconfig={plane.account_kubeconfig(NAME, NAMESPACE)}",
            f"--service-namespace={NAMESPACE}",
            *flags,
        ]
        self.daemon = Daemon(
            "adapter", command, log, lambda: self._times_listening() > self._listened
        )

    @property
    def log(self) -> str:
        """What all its processes have said."""
        return self._log.read_text() if self._log.exists() else ""

    def start(self) -> None:
        """Returns once it is reached through every APIService."""
        self.listen()
        self.wait_available()

    def listen(self) -> None:
        """Point the APIServices at it and start it; returns once it listens."""
        for name in self.api_services:
            self._point(name)
        self._listened = self._times_listening()
        self.daemon.start()

    def wait_available(self, *, seconds: float = 60) -> None:
        for name in self.api_services:
            self._plane.wait_available(name, seconds=seconds)
            # The condition may still be that of a server before this one.
            version, _, group = name.partition(".")
            path = f"/apis/{group}/{version}"
            wait_for(
                lambda path=path: self._plane.admin.request("GET", path).status == 200,
                f"{path} is answered",
                seconds=seconds,
            )

    def stop(self) -> None:
        """As an upgrade ends it. Raises RuntimeError where it does not end well."""
        if status := self.daemon.stop():
            raise RuntimeError(f"the adapter ended with {status}:\n{self.daemon.last_lines()}")

    def kill(self) -> None:
        """As a lost machine ends it."""
        self.daemon.kill()

    def _point(self, name: str) -> None:
        spec: dict[str, Any] = {"service": {"port": self.port}}
        if self._ca is not None:
            spec["caBundle"] = base64.b64encode(self._ca).decode()
        path = f"{_API_SERVICES}/{name}"
        self._plane.admin.call("PATCH", path, {"spec": spec}, content_type=_MERGE_PATCH)

    def _times_listening(self) -> int:
        return self.log.count(_LISTENING)
