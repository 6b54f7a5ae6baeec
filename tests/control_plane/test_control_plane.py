from __future__ import annotations

import contextlib
import datetime as dt
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Holder
from tests.control_plane.client import RefusedError
from tests.control_plane.credentials import FRONT_PROXY
from tests.control_plane.plane import ControlPlane
from tests.real.prometheus import wait_for

AUTHENTICATION_CONFIG = (
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture(scope="module")
def account(control_plane: ControlPlane) -> str:
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "test-account"}}
    control_plane.admin.apply(f"{ACCOUNTS}/test-account", document)
    return "test-account"


def test_api_server_has_the_requested_version(control_plane):
    assert control_plane.admin.get("/version")["gitVersion"] == f"v{control_plane.programs.version}"


def test_request_header_configuration_is_published(control_plane):
    config = control_plane.admin.get(AUTHENTICATION_CONFIG)["data"]

    assert (
        config["client-ca-file"].strip()
        == control_plane.credentials.cluster_ca.pem.decode().strip()
    )
    assert (
        config["requestheader-client-ca-file"].strip()
        == control_plane.credentials.proxy_ca.pem.decode().strip()
    )
    assert json.loads(config["requestheader-allowed-names"]) == [FRONT_PROXY]
    headers = {
        each: json.loads(config[f"requestheader-{each}-headers"])
        for each in ("username", "group", "uid")
        if f"requestheader-{each}-headers" in config
    }
    sends_uids = int(control_plane.programs.version.split(".")[1]) >= 33
    assert headers == {"username": ["X-Remote-User"], "group": ["X-Remote-Group"]} | (
        {"uid": ["X-Remote-Uid"]} if sends_uids else {}
    )


def test_access_requires_a_role_binding(control_plane):
    alice = control_plane.user("alice", "team-a")

    with pytest.raises(RefusedError, match='User "alice" cannot list resource "pods"') as error:
        alice.get("/api/v1/namespaces/default/pods")
    assert error.value.reply.status == 403

    binding = ("create", "rolebinding", "team-a", "--clusterrole=view", "--group=team-a")
    control_plane.kubectl(*binding)
    try:
        wait_for(
            lambda: alice.request("GET", "/api/v1/namespaces/default/pods").status == 200,
            "the role binding is effective",
        )
    finally:
        control_plane.kubectl("delete", "rolebinding", "team-a")


def test_client_without_credentials_is_anonymous(control_plane):
    reply = control_plane.client().request("GET", "/api/v1/pods")

    assert reply.status == 403
    assert 'User "system:anonymous" cannot' in reply.document["message"]


def test_token_authenticates_the_service_account(control_plane, account):
    assert whoami(control_plane, control_plane.account_kubeconfig(account, "default")) == (
        "system:serviceaccount:default:test-account"
    )


def test_controllers_run(control_plane):
    control_plane.kubectl("create", "namespace", "short-lived")

    assert "serviceaccount/default" in eventually(
        control_plane,
        "get",
        "serviceaccount",
        "default",
        "--namespace=short-lived",
        "--output=name",
    )
    control_plane.kubectl("delete", "namespace", "short-lived", "--timeout=30s")


def test_kubectl_error_is_in_the_exception(control_plane):
    with pytest.raises(RuntimeError, match=r'kubectl get pod none: .* pods "none" not found'):
        control_plane.kubectl("get", "pod", "none")


def test_aggregator_forwards_the_user_as_the_front_proxy(control_plane, tmp_path):
    name = "v1.widgets.example.com"
    with aggregated(control_plane, tmp_path) as (port, ca):
        cluster_ip = {"type": "ClusterIP", "ports": [{"port": 443}], "selector": {"app": "widgets"}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "widgets"}}
        control_plane.admin.apply(
            "/api/v1/namespaces/default/services/widgets", service | {"spec": cluster_ip}
        )
        control_plane.local_service("widgets", "default")
        control_plane.api_service(name, service="widgets", namespace="default", port=port, ca=ca)
        control_plane.wait_available(name)
        try:
            received = control_plane.user("alice", "system:masters", "team-a").get(
                "/apis/widgets.example.com/v1/anything"
            )
        finally:
            control_plane.kubectl("delete", "apiservice", name)

    assert received["certificate"] == FRONT_PROXY
    assert received["X-Remote-User"] == ["alice"]
    assert {"system:masters", "team-a"} < set(received["X-Remote-Group"])


def test_unavailable_api_service_raises_with_the_reason(control_plane):
    name = "v1.missing.example.com"
    control_plane.local_service("missing", "default")
    control_plane.api_service(name, service="missing", namespace="default", port=1, ca=None)
    try:
        with pytest.raises(TimeoutError, match=r"failing or missing response from https://"):
            control_plane.wait_available(name, seconds=3)
    finally:
        control_plane.kubectl("delete", "apiservice", name)


def test_objects_survive_a_restart_of_etcd_and_the_api_server(control_plane, account):
    control_plane.apiserver.kill()
    assert not control_plane.admin.ready()
    control_plane.etcd.kill()

    control_plane.etcd.start()
    control_plane.apiserver.start()

    assert control_plane.admin.get(f"{ACCOUNTS}/{account}")["metadata"]["name"] == account


def test_readyz_fails_without_etcd(control_plane):
    control_plane.etcd.kill()
    try:
        wait_for(lambda: not control_plane.admin.ready(), "/readyz fails")
    finally:
        control_plane.etcd.start()

    control_plane.apiserver.wait_ready()
    assert control_plane.admin.ready()


@contextlib.contextmanager
def aggregated(control_plane: ControlPlane, folder: Path) -> Iterator[tuple[int, bytes]]:
    """Serve the headers and client certificate of each request; yield the port and the CA (PEM)."""
    now = dt.datetime.now(dt.UTC)
    ca = Holder("widgets-ca", ca=True, now=now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Holder("widgets", ca, dns=["widgets.default.svc"], now=now).client(context, folder)
    context.load_verify_locations(cadata=control_plane.credentials.proxy_ca.pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), EchoHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, ca.pem
        finally:
            server.shutdown()
            thread.join()


class EchoHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        certificate = self.connection.getpeercert() or {}
        names = {key: value for part in certificate.get("subject", ()) for key, value in part}
        headers = {key: self.headers.get_all(key) for key in self.headers}
        body = json.dumps(headers | {"certificate": names.get("commonName")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def whoami(control_plane: ControlPlane, kubeconfig: Path) -> str:
    review = json.loads(
        control_plane.kubectl("auth", "whoami", "--output=json", kubeconfig=kubeconfig)
    )
    name: str = review["status"]["userInfo"]["username"]
    return name


def eventually(control_plane: ControlPlane, *arguments: str) -> str:
    """Repeat a kubectl command until it prints something."""
    output = ""

    def succeeded() -> bool:
        nonlocal output
        with contextlib.suppress(RuntimeError):
            output = control_plane.kubectl(*arguments)
        return bool(output)

    wait_for(succeeded, f"`kubectl {' '.join(arguments)}` succeeds")
    return output
