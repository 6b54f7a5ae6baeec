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

TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture(scope="module")
def account(control_plane: ControlPlane) -> str:
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "walker"}}
    control_plane.admin.apply(f"{ACCOUNTS}/walker", document)
    return "walker"


def test_it_is_the_version_that_was_asked_for(control_plane):
    assert control_plane.admin.get("/version")["gitVersion"] == f"v{control_plane.programs.version}"


def test_servers_behind_it_are_told_whom_to_trust(control_plane):
    told = control_plane.admin.get(TRUST)["data"]

    assert told["client-ca-file"].strip() == control_plane.cluster_ca.pem.decode().strip()
    assert (
        told["requestheader-client-ca-file"].strip() == control_plane.proxy_ca.pem.decode().strip()
    )
    assert json.loads(told["requestheader-allowed-names"]) == [FRONT_PROXY]
    headers = {
        each: json.loads(told[f"requestheader-{each}-headers"])
        for each in ("username", "group", "uid")
        if f"requestheader-{each}-headers" in told
    }
    knows_uids = int(control_plane.programs.version.split(".")[1]) >= 33
    assert headers == {"username": ["X-Remote-User"], "group": ["X-Remote-Group"]} | (
        {"uid": ["X-Remote-Uid"]} if knows_uids else {}
    )


def test_only_what_a_role_allows_is_allowed(control_plane):
    someone = control_plane.user("someone", "crowd")

    with pytest.raises(RefusedError, match='User "someone" cannot list resource "pods"') as refused:
        someone.get("/api/v1/namespaces/default/pods")
    assert refused.value.reply.status == 403

    binding = ("create", "rolebinding", "crowd", "--clusterrole=view", "--group=crowd")
    control_plane.kubectl(*binding)
    try:
        wait_for(
            lambda: someone.request("GET", "/api/v1/namespaces/default/pods").status == 200,
            "the role is seen",
        )
    finally:
        control_plane.kubectl("delete", "rolebinding", "crowd")


def test_who_shows_nothing_is_anonymous(control_plane):
    reply = control_plane.client().request("GET", "/api/v1/pods")

    assert reply.status == 403
    assert 'User "system:anonymous" cannot' in reply.document["message"]


def test_token_is_its_service_accounts(control_plane, account):
    assert whoami(control_plane, control_plane.account_kubeconfig(account, "default")) == (
        "system:serviceaccount:default:walker"
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


def test_what_kubectl_complains_of_is_told(control_plane):
    with pytest.raises(RuntimeError, match=r'kubectl get pod none: .* pods "none" not found'):
        control_plane.kubectl("get", "pod", "none")


def test_server_on_this_machine_is_reached_as_the_front_proxy(control_plane, tmp_path):
    name = "v1.walkers.example.com"
    with aggregated(control_plane, tmp_path) as (port, ca):
        before = {"type": "ClusterIP", "ports": [{"port": 443}], "selector": {"app": "walkers"}}
        service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "walkers"}}
        control_plane.admin.apply(
            "/api/v1/namespaces/default/services/walkers", service | {"spec": before}
        )
        control_plane.local_service("walkers", "default")
        control_plane.api_service(name, service="walkers", namespace="default", port=port, ca=ca)
        control_plane.wait_available(name)
        try:
            seen = control_plane.user("alice", "system:masters", "team-a").get(
                "/apis/walkers.example.com/v1/anything"
            )
        finally:
            control_plane.kubectl("delete", "apiservice", name)

    assert seen["certificate"] == FRONT_PROXY
    assert seen["X-Remote-User"] == ["alice"]
    assert {"system:masters", "team-a"} < set(seen["X-Remote-Group"])


def test_api_service_that_nobody_serves_says_why(control_plane):
    name = "v1.nobody.example.com"
    control_plane.local_service("nobody", "default")
    control_plane.api_service(name, service="nobody", namespace="default", port=1, ca=None)
    try:
        with pytest.raises(TimeoutError, match=r"failing or missing response from https://"):
            control_plane.wait_available(name, seconds=3)
    finally:
        control_plane.kubectl("delete", "apiservice", name)


def test_what_it_keeps_outlives_an_outage(control_plane, account):
    control_plane.apiserver.kill()
    assert not control_plane.admin.ready()
    control_plane.etcd.kill()

    control_plane.etcd.start()
    control_plane.apiserver.start()

    assert control_plane.admin.get(f"{ACCOUNTS}/{account}")["metadata"]["name"] == account


def test_lost_database_is_told_by_readyz(control_plane):
    control_plane.etcd.kill()
    try:
        wait_for(lambda: not control_plane.admin.ready(), "the loss is seen")
    finally:
        control_plane.etcd.start()

    control_plane.apiserver.wait()
    assert control_plane.admin.ready()


@contextlib.contextmanager
def aggregated(cluster: ControlPlane, folder: Path) -> Iterator[tuple[int, bytes]]:
    """A server that tells whom it sees; its port, and the authority that vouches for it."""
    now = dt.datetime.now(dt.UTC)
    authority = Holder("walkers-ca", ca=True, now=now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Holder("walkers", authority, dns=["walkers.default.svc"], now=now).client(context, folder)
    context.load_verify_locations(cadata=cluster.proxy_ca.pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Seen) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port, authority.pem
        finally:
            server.shutdown()
            thread.join()


class Seen(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        certificate = self.connection.getpeercert() or {}
        names = {key: value for part in certificate.get("subject", ()) for key, value in part}
        seen = {key: self.headers.get_all(key) for key in self.headers}
        body = json.dumps(seen | {"certificate": names.get("commonName")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def whoami(cluster: ControlPlane, kubeconfig: Path) -> str:
    found = json.loads(cluster.kubectl("auth", "whoami", "--output=json", kubeconfig=kubeconfig))
    name: str = found["status"]["userInfo"]["username"]
    return name


def eventually(cluster: ControlPlane, *arguments: str) -> str:
    found = ""

    def tried() -> bool:
        nonlocal found
        with contextlib.suppress(RuntimeError):
            found = cluster.kubectl(*arguments)
        return bool(found)

    wait_for(tried, " ".join(arguments))
    return found
