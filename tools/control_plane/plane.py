"""Control plane without containers: etcd, kube-apiserver and kube-controller-manager processes.

    with plane.running(folder, build.ensure_programs()) as control_plane:
        control_plane.kubectl("create", "namespace", "team-a")

RBAC and the aggregation layer are on, and the front proxy has its own CA. Without a node (see
`tools.node`) there is no pod network: the API server reaches an aggregated server through a Service
of type ExternalName for `localhost`.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from adapter.cli.local_prometheus.process import free_ports
from tools import documents
from tools.certificates import Holder
from tools.control_plane import build, flags
from tools.control_plane.client import Client
from tools.control_plane.credentials import Credentials
from tools.control_plane.daemon import Daemon
from tools.real.prometheus import status, wait_for

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class ControlPlane:
    """Processes, credentials and clients of a control plane. `folder` holds its logs and files.

    `node` is the address of a node that runs pods, if there is one.
    """

    def __init__(self, folder: Path, programs: build.Programs, *, node: str | None = None) -> None:
        self.folder = folder
        self.programs = programs
        self.credentials = Credentials.create(folder / "credentials", *([node] if node else []))
        ports = flags.Ports(*free_ports(4))
        self.port = ports.apiserver
        self.url = f"https://127.0.0.1:{ports.apiserver}"
        self._client_numbers = itertools.count()
        self.admin = self.client(holder=self.credentials.user("admin", "system:masters"))
        self.kubeconfig = self.admin.write_kubeconfig(folder / "admin.kubeconfig")
        manager = self.client(holder=self.credentials.user("system:kube-controller-manager"))
        manager_kubeconfig = manager.write_kubeconfig(folder / "manager.kubeconfig")

        def daemon(name: str, command: flags.Command, ready: Callable[[], bool]) -> Daemon:
            return Daemon(name, command, folder / f"{name}.log", ready)

        self.etcd = daemon(
            "etcd",
            flags.etcd(programs, ports, folder / "etcd"),
            lambda: status(f"http://127.0.0.1:{ports.etcd}/health") == 200,
        )
        self.apiserver = daemon(
            "kube-apiserver",
            flags.apiserver(programs, ports, self.credentials, node),
            self.admin.ready,
        )
        self.controller_manager = daemon(
            "kube-controller-manager",
            flags.controller_manager(programs, ports, self.credentials, manager_kubeconfig, node),
            lambda: self.admin.exists("/api/v1/namespaces/default/serviceaccounts/default"),
        )

    def start(self) -> None:
        """Start all processes. Pods can be created when this returns."""
        self.etcd.start()
        self.apiserver.start()
        self.controller_manager.start()

    def stop(self) -> None:
        """Kill all processes."""
        for daemon in (self.controller_manager, self.apiserver, self.etcd):
            daemon.kill()

    def client(self, *, holder: Holder | None = None, token: str | None = None) -> Client:
        """Return a client with this certificate or token; without both it is anonymous."""
        files = self.folder / "clients" / str(next(self._client_numbers))
        files.mkdir(parents=True)
        return Client(self.url, self.credentials.cluster_ca.pem, files, holder=holder, token=token)

    def user(self, name: str, *groups: str) -> Client:
        """Return a client with a certificate for this user and these groups."""
        return self.client(holder=self.credentials.user(name, *groups))

    def kubectl(
        self, *arguments: str | Path, text: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl with `text` on stdin and return stdout. Raises RuntimeError with stderr."""
        command: Sequence[str | Path] = [
            self.programs.kubectl,
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.folder / 'kubectl'}",
            *arguments,
        ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            command_line = " ".join(map(str, arguments))
            raise RuntimeError(f"kubectl {command_line}: {done.stderr or done.stdout}")
        return done.stdout

    def token(self, account: str, namespace: str) -> str:
        """Request a token of an existing ServiceAccount, as `kubectl create token` does."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86400},
        }
        token: str = self.admin.call("POST", path, request)["status"]["token"]
        return token

    def account_kubeconfig(self, account: str, namespace: str) -> Path:
        """Write a kubeconfig with a new token of a ServiceAccount, and return its path."""
        client = self.client(token=self.token(account, namespace))
        return client.write_kubeconfig(self.folder / f"{namespace}-{account}.kubeconfig")

    def wait_allowed(self, user: str, *groups: str, **request: str) -> None:
        """Wait until RBAC, which has watch caches of its own, allows a user a request.

        `request` has the `resourceAttributes` of a SubjectAccessReview.
        """
        review = {"spec": {"user": user, "groups": groups, "resourceAttributes": request}}
        wait_for(
            lambda: self.admin.call("POST", _REVIEWS, review)["status"]["allowed"],
            f"{user} may {request['verb']} {request['resource']}",
        )

    def local_service(self, name: str, namespace: str) -> None:
        """Create or turn Service NAME into an ExternalName for `localhost`.

        The aggregator then dials `localhost` at the port that the APIService names.
        """
        self.admin.apply(
            f"/api/v1/namespaces/{namespace}", documents.new("v1", "Namespace", namespace, "")
        )
        spec = {"type": "ExternalName", "externalName": "localhost"}
        service = documents.new("v1", "Service", name, namespace, spec=spec)
        self.admin.apply(f"/api/v1/namespaces/{namespace}/services/{name}", service)

    def api_service(
        self, name: str, *, service: str, namespace: str, port: int, ca: bytes | None = None
    ) -> None:
        """Create the APIService NAME ("v1beta1.custom.metrics.k8s.io") for a local Service.

        `ca` (PEM) is its caBundle; without it that field is left to other field managers.
        """
        version, _, group = name.partition(".")
        spec: dict[str, Any] = {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": service, "namespace": namespace, "port": port},
        }
        if ca is not None:
            spec["caBundle"] = base64.b64encode(ca).decode()
        document = documents.new("apiregistration.k8s.io/v1", "APIService", name, "", spec=spec)
        self.admin.apply(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", document)

    def available(self, name: str) -> tuple[bool, str]:
        """Return whether an APIService is Available, and the message of that condition."""
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        for condition in self.admin.get(path).get("status", {}).get("conditions", ()):
            if condition["type"] == "Available":
                return condition["status"] == "True", condition.get("message", "")
        return False, "the condition is not set yet"

    def wait_available(self, name: str, *, seconds: float = 90) -> None:
        """Wait until an APIService is Available. Raises TimeoutError with the reason."""
        try:
            wait_for(lambda: self.available(name)[0], f"{name} is Available", seconds=seconds)
        except TimeoutError as e:
            raise TimeoutError(f"{e}: {self.available(name)[1]}") from e


@contextlib.contextmanager
def running(folder: Path, programs: build.Programs) -> Iterator[ControlPlane]:
    """Run a control plane until the context ends."""
    control_plane = ControlPlane(folder, programs)
    try:
        control_plane.start()
        yield control_plane
    finally:
        control_plane.stop()
