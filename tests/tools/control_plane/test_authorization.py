"""403 responses of the adapter, compared byte by byte with those of a real API server."""

from __future__ import annotations

import contextlib
import http.client
import itertools

import pytest

from adapter.clients import kubernetes
from adapter.server.auth import authorization, filters
from adapter.server.auth.user import User, with_authenticated_group
from tests.adapter import wired
from tools.documents import new

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
AUTHENTICATION = "authentication.k8s.io"
USER_NUMBERS = itertools.count()

ROLES = {
    "delegate": [
        {
            "apiGroups": ["authorization.k8s.io"],
            "resources": ["subjectaccessreviews"],
            "verbs": ["create"],
        }
    ],
    "reader": [
        {
            "apiGroups": ["custom.metrics.k8s.io"],
            "resources": ["pods/duty_cycle_current", "metrics"],
            "verbs": ["get"],
        },
        {"apiGroups": ["*"], "resources": ["queue"], "resourceNames": ["one"], "verbs": ["get"]},
        {"nonResourceURLs": ["/duty/*"], "verbs": ["get", "post"]},
    ],
    "impersonator": [
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["joe"]},
        {"apiGroups": [""], "resources": ["groups"], "resourceNames": ["g", "h", "i", "j"]},
        {"apiGroups": [""], "resources": ["serviceaccounts"]},
        {"apiGroups": [AUTHENTICATION], "resources": ["uids"], "resourceNames": ["7"]},
        {"apiGroups": [AUTHENTICATION], "resources": ["userextras/a.io/b"]},
    ],
}


@pytest.fixture(scope="module")
def with_roles(control_plane):
    """Control plane with ROLES, each bound to the group of the same name."""
    admin = control_plane.admin
    group = "rbac.authorization.k8s.io"
    for name, rules in ROLES.items():
        verbs = {"verbs": ["impersonate"]}
        role = new(f"{group}/v1", "ClusterRole", name, "", rules=[verbs | each for each in rules])
        binding = new(
            *(f"{group}/v1", "ClusterRoleBinding", name, ""),
            subjects=[{"kind": "Group", "name": name, "apiGroup": group}],
            roleRef={"apiGroup": group, "kind": "ClusterRole", "name": name},
        )
        admin.apply(f"{RBAC}/clusterroles/{name}", role)
        admin.apply(f"{RBAC}/clusterrolebindings/{name}", binding)
    # The last of them.
    control_plane.wait_allowed(
        "a", "impersonator", verb="impersonate", resource="users", name="joe"
    )
    yield control_plane
    for name in ROLES:
        admin.call("DELETE", f"{RBAC}/clusterrolebindings/{name}")
        admin.call("DELETE", f"{RBAC}/clusterroles/{name}")


class FixedAuthenticator:
    """Authenticates every request as one user."""

    def __init__(self, name, group):
        self.user = with_authenticated_group(User(name=name, groups=(group,)))

    def known(self, peer, head):
        return None

    async def authenticate(self, peer, headers):
        return self.user


@pytest.fixture
async def send_to_both(with_roles, tmp_path):
    """Return a function that sends a request to the API server and to the adapter.

    Both see the same new user of the given group.
    """
    delegate = with_roles.user("delegate", "delegate").write_kubeconfig(tmp_path / "delegate")
    api = await kubernetes.Kube.connect(str(delegate), qps=200, burst=400)

    async def send(group, target, headers=(), *, method="GET"):
        # A new user each time: the API server first tries the impersonation mode that last
        # succeeded for a user.
        name = f"{group}-{next(USER_NUMBERS)}"
        expected = send_to_api_server(with_roles.user(name, group), method, target, headers)
        handler = wired.build_router(
            guard=filters.Guard(FixedAuthenticator(name, group), authorization.Authorizer(api)),
        )
        async with wired.listening(handler) as port:
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers)
            head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n"
            actual = await wired.send(port, head.encode())
        return expected, actual

    yield send
    await api.close()


def send_to_api_server(client, method, target, headers):
    """Return the status, the body and X-Content-Type-Options; sends `target` unchanged."""
    connection = http.client.HTTPSConnection(client._address, context=client._context, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, target)
        for key, value in headers:
            connection.putheader(key, value)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("X-Content-Type-Options")


def assert_same(expected, actual):
    assert (actual.status, actual.body, actual.headers.get("X-Content-Type-Options")) == expected


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/metrics"),
        ("POST", "/metrics"),
        ("OPTIONS", "/metrics"),
        ("GET", "/"),
        ("GET", "//metrics"),
        ("GET", "/a%22%3Cb%3E%26%ff%e2%80%a8%c3%a9%09"),
        ("GET", f"{CUSTOM}/namespaces/default/pods/a/duty_cycle_current"),
        ("GET", f"{CUSTOM}/namespaces/default/pods/*/duty_cycle_current?labelSelector=a"),
        ("GET", f"{CUSTOM}/namespaces/default/pods//duty_cycle_current"),
        ("GET", f"{CUSTOM}/namespaces/default/pods/%3Cb%3E/a%26b"),
        ("GET", f"{CUSTOM}/namespaces/default/metrics/duty_cycle_current"),
        ("GET", f"{CUSTOM}/nodes/n/duty_cycle_current"),
        ("GET", f"{CUSTOM}/nodes?watch"),
        ("GET", f"{CUSTOM}/nodes?fieldSelector=metadata.name%3Dn"),
        ("GET", f"{CUSTOM}/watch/nodes"),
        ("DELETE", f"{CUSTOM}/nodes"),
        ("PUT", f"{CUSTOM}/nodes/n"),
        ("GET", f"{CUSTOM}/namespaces/default"),
        ("GET", f"{CUSTOM}/namespaces/default/status"),
        ("GET", "/apis/g/v//n"),
        ("GET", "/apis//v/r/n"),
        ("GET", "/api/v1/nodes/n/proxy/a"),
        ("GET", "/api/v1/proxy/nodes/n"),
    ],
)
async def test_forbidden_request_gets_the_same_response(send_to_both, method, target):
    expected, actual = await send_to_both("stranger", target, method=method)

    assert expected[0] == 403
    assert_same(expected, actual)


@pytest.mark.parametrize(
    ("target", "method", "allowed"),
    [
        (f"{CUSTOM}/namespaces/default/pods/a/duty_cycle_current", "GET", True),
        (f"{CUSTOM}/namespaces/default/pods/*/duty_cycle_current", "GET", True),
        (f"{CUSTOM}/namespaces/default/pods/a/memory_used", "GET", False),
        (f"{CUSTOM}/namespaces/default/pods//duty_cycle_current", "GET", False),
        (f"{CUSTOM}/namespaces/default/pods/a/duty_cycle_current", "POST", False),
        (f"{CUSTOM}/namespaces/default/metrics/anything", "GET", True),
        (f"{CUSTOM}/nodes/n/duty_cycle_current", "GET", False),
        ("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue/one", "GET", True),
        ("/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue/two", "GET", False),
        ("/duty/a", "GET", True),
        ("/duty/a", "POST", True),
        ("/duty/a", "DELETE", False),
        ("/duty", "GET", False),
    ],
)
async def test_rbac_rules_allow_the_same_requests(send_to_both, target, method, allowed):
    expected, actual = await send_to_both("reader", target, method=method)

    assert (expected[0] != 403, actual.status != 403) == (allowed, allowed)
    if not allowed:
        assert_same(expected, actual)


USER, GROUP, UID = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid"
EXTRA = "Impersonate-Extra-A.io%2fb"
JOE = (USER, "joe")
MANY = [(GROUP, name) for name in "ghij"]


@pytest.mark.parametrize("actor", ["stranger", "impersonator"])
@pytest.mark.parametrize(
    ("target", "headers"),
    [
        ("/duty", [JOE]),
        ("/other", [JOE]),
        (f"{CUSTOM}/nodes", [JOE]),
        (f"{CUSTOM}/nodes/n", [JOE]),
        ("/duty", [(USER, "ann")]),
        ("/duty", [(USER, "system:anonymous")]),
        ("/duty", [(USER, ""), (GROUP, "g")]),
        ("/duty", [(GROUP, "g"), (GROUP, '"<h>')]),
        ("/duty", [(UID, "7")]),
        ("/duty", [(EXTRA, "1"), (EXTRA, "2")]),
        ("/duty", [JOE, (GROUP, "g"), (UID, "7"), (EXTRA, "1")]),
        ("/duty", [JOE, *MANY]),
        ("/duty", [JOE, (GROUP, "other")]),
        ("/duty", [JOE, (GROUP, "")]),
        ("/duty", [JOE, (GROUP, "system:masters")]),
        ("/duty", [JOE, (UID, "8")]),
        ("/duty", [JOE, (EXTRA, "")]),
        ("/duty", [JOE, ("Impersonate-Extra-Other.io%2Fb", "1")]),
        ("/duty", [JOE, ("Impersonate-Extra-plain", "1")]),
        ("/duty", [(USER, "system:serviceaccount:default:a")]),
        ("/duty", [(USER, "system:serviceaccount:default:a"), (GROUP, "g")]),
        ("/duty", [(USER, "system:serviceaccount:BAD:a")]),
        ("/duty", [(USER, "system:node:n")]),
        ("/duty", [(USER, "system:node:N")]),
    ],
)
async def test_impersonation_gets_the_same_response(
    send_to_both, control_plane, actor, target, headers
):
    if int(control_plane.programs.version.split(".")[1]) < 36:
        pytest.skip("this API server answers 500 to Impersonate-* headers without a user")

    expected, actual = await send_to_both(actor, target, headers)

    assert expected[0] in {400, 403}
    if b"cannot impersonate" in expected[1]:  # wording of constrained impersonation
        assert actual.status == 403
        assert b"cannot impersonate resource" in actual.body
    else:
        assert_same(expected, actual)
