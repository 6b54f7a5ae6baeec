"""A control plane without containers: etcd, an API server and its controllers, as our children.

    with plane.running(folder) as cluster:
        cluster.kubectl("create", "namespace", "team-a")

RBAC is on, and so is the aggregation layer, whose authority is not the cluster's. There is no pod
network: a Service that is an alias of `localhost` lets the API server reach a server behind it.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.certificates import Holder
from tests.control_plane import build, flags
from tests.control_plane.client import Client
from tests.control_plane.credentials import Credentials
from tests.control_plane.daemon import Daemon, free_ports
from tests.real.prometheus import status, wait_for


class ControlPlane:
    """What runs, who may enter, and how to get there. Logs and files are in `folder`."""

    def __init__(self, folder: Path, programs: build.Programs) -> None:
        self.folder = folder
        self.programs = programs
        self.credentials = Credentials.create(folder / "credentials")
        etcd, peers, apiserver, controllers = free_ports(4)
        ports = flags.Ports(etcd=etcd, peers=peers, apiserver=apiserver, controllers=controllers)
        self.url = f"https://127.0.0.1:{ports.apiserver}"
        self._names = itertools.count()
        self.admin = self.client(holder=self.credentials.user("admin", "system:masters"))
        self.kubeconfig = self.admin.write_kubeconfig(folder / "admin.kubeconfig")
        manager = self.credentials.user("system:kube-controller-manager")
        self._manager = self.client(holder=manager).write_kubeconfig(folder / "manager.kubeconfig")

        def daemon(name: str, command: flags.Command, ready: Any) -> Daemon:
            return Daemon(name, command, folder / f"{name}.log", ready)

        self.etcd = daemon(
            "etcd",
            flags.etcd(programs, ports, folder / "etcd"),
            lambda: status(f"http://127.0.0.1:{ports.etcd}/health") == 200,
        )
        self.apiserver = daemon(
            "kube-apiserver",
            flags.apiserver(programs, ports, self.credentials),
            lambda: self.admin.ready("/readyz"),
        )
        self.controllers = daemon(
            "kube-controller-manager",
            flags.controllers(programs, ports, self.credentials, self._manager),
            lambda: self._exists("/api/v1/namespaces/default/serviceaccounts/default"),
        )

    def start(self) -> None:
        """Start everything; pods can be created when this returns."""
        self.etcd.start()
        self.apiserver.start()
        self.controllers.start()

    def stop(self) -> None:
        """End everything at once: nobody will want its data."""
        for daemon in (self.controllers, self.apiserver, self.etcd):
            daemon.kill()

    @property
    def cluster_ca(self) -> Holder:
        """Who vouches for users and for the API server."""
        return self.credentials.cluster_ca

    @property
    def proxy_ca(self) -> Holder:
        """Who vouches for the front proxy."""
        return self.credentials.proxy_ca

    def client(self, *, holder: Holder | None = None, token: str | None = None) -> Client:
        """Someone who shows this certificate or this token; nobody in particular without."""
        files = self.folder / "clients" / str(next(self._names))
        files.mkdir(parents=True)
        return Client(self.url, self.cluster_ca.pem, files, holder=holder, token=token)

    def user(self, name: str, *groups: str) -> Client:
        """A user who has a certificate of the cluster's authority."""
        return self.client(holder=self.credentials.user(name, *groups))

    def kubectl(
        self, *arguments: str | Path, text: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """What kubectl prints, given `text` to read. Raises RuntimeError with what it complains."""
        command: Sequence[str | Path] = [
            self.programs.kubectl,
            f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--cache-dir={self.folder / 'kubectl'}",
            *arguments,
        ]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            shown = " ".join(map(str, arguments))
            raise RuntimeError(f"kubectl {shown}: {done.stderr or done.stdout}")
        return done.stdout

    def token(self, account: str, namespace: str, *, seconds: int = 3600) -> str:
        """A token of a ServiceAccount that exists, as `kubectl create token` gives it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token: str = self.admin.call("POST", path, asked)["status"]["token"]
        return token

    def account_kubeconfig(self, account: str, namespace: str) -> Path:
        """A kubeconfig of a ServiceAccount, with a token of its own."""
        client = self.client(token=self.token(account, namespace))
        return client.write_kubeconfig(self.folder / f"{namespace}-{account}.kubeconfig")

    def local_service(self, name: str, namespace: str) -> None:
        """Let NAME.NAMESPACE.svc be this machine, whatever Service it was before.

        The aggregator dials `localhost` at the port that the APIService names.
        """
        self._apply("v1", "Namespace", "/api/v1/namespaces", namespace)
        self._apply(
            "v1",
            "Service",
            f"/api/v1/namespaces/{namespace}/services",
            name,
            {"type": "ExternalName", "externalName": "localhost"},
        )

    def api_service(
        self, name: str, *, service: str, namespace: str, port: int, ca: bytes | None = None
    ) -> None:
        """The APIService NAME ("v1beta1.custom.metrics.k8s.io") at `port` of a local Service.

        `ca` (PEM) is its caBundle; without it, whoever else publishes one owns that field.
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
        path = "/apis/apiregistration.k8s.io/v1/apiservices"
        self._apply("apiregistration.k8s.io/v1", "APIService", path, name, spec)

    def available(self, name: str) -> tuple[bool, str]:
        """Whether the APIService is Available, and why it is not."""
        path = f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        for condition in self.admin.get(path).get("status", {}).get("conditions", ()):
            if condition["type"] == "Available":
                return condition["status"] == "True", condition.get("message", "")
        return False, "nothing is known of it yet"

    def wait_available(self, name: str, *, seconds: float = 20) -> None:
        """Raises TimeoutError, which says why not."""
        try:
            wait_for(lambda: self.available(name)[0], f"{name} is Available", seconds=seconds)
        except TimeoutError as e:
            raise TimeoutError(f"{e}: {self.available(name)[1]}") from e

    def _apply(
        self, version: str, kind: str, path: str, name: str, spec: dict[str, Any] | None = None
    ) -> None:
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}}
        self.admin.apply(f"{path}/{name}", document | ({"spec": spec} if spec else {}))

    def _exists(self, path: str) -> bool:
        return self.admin.request("GET", path).status == 200


@contextlib.contextmanager
def running(folder: Path, programs: build.Programs | None = None) -> Iterator[ControlPlane]:
    """A control plane for as long as the context lasts; builds what the cache lacks."""
    cluster = ControlPlane(folder, programs or build.find())
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
