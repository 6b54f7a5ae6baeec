"""Our refusals beside those of a real API server, which has the same filters: to the byte."""

from __future__ import annotations

import contextlib
import http.client
import itertools

import pytest

from adapter.auth import authorization, filters
from adapter.auth.user import User, with_authenticated_group
from adapter.clients import kubernetes
from rules.kinds import Kinds
from rules.query.catalog import Catalog
from tests.adapter import wired

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
AUTHENTICATION = "authentication.k8s.io"
NUMBERS = itertools.count()

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
def granted(control_plane):
    """Every role is that of the group of its name, for as long as these tests take."""
    admin = control_plane.admin
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    for name, rules in ROLES.items():
        role = {
            **kind,
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": [{"verbs": ["impersonate"], **rule} for rule in rules],
        }
        binding = {
            **kind,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [{"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": name,
            },
        }
        admin.apply(f"{RBAC}/clusterroles/{name}", role)
        admin.apply(f"{RBAC}/clusterrolebindings/{name}", binding)
    yield control_plane
    for name in ROLES:
        admin.call("DELETE", f"{RBAC}/clusterrolebindings/{name}")
        admin.call("DELETE", f"{RBAC}/clusterroles/{name}")


class Named:
    """Takes everybody for this user."""

    def __init__(self, name, group):
        self.user = with_authenticated_group(User(name=name, groups=(group,)))

    async def authenticate(self, peer, headers):
        return self.user


@pytest.fixture
async def both(granted, tmp_path):
    """What the API server and we answer to the same request of the same new user of a group."""
    delegate = granted.user("delegate", "delegate").write_kubeconfig(tmp_path / "delegate")
    api = await kubernetes.Kube.connect(str(delegate), qps=200, burst=400)

    async def ask(group, target, headers=(), *, method="GET"):
        # The API server remembers how a user last succeeded, and tries that first.
        name = f"{group}-{next(NUMBERS)}"
        theirs = asked(granted.user(name, group), method, target, headers)
        objects = wired.Objects(Kinds.builtin(), {})
        handler = wired.build_router(
            Catalog.empty(),
            objects,
            wired.Evaluation({}),
            guard=filters.Guard(Named(name, group), authorization.Authorizer(api)),
        )
        async with wired.listening(handler) as port:
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers)
            head = f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n"
            ours = await wired.send(port, head.encode())
        return theirs, ours

    yield ask
    await api.close()


def asked(client, method, target, headers):
    """The status, the body and whether it may be taken for a page."""
    connection = http.client.HTTPSConnection(client._address, context=client._context, timeout=30)
    with contextlib.closing(connection):
        connection.putrequest(method, target)
        for key, value in headers:
            connection.putheader(key, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.getheader("X-Content-Type-Options")


def same(theirs, ours):
    assert (ours.status, ours.body, ours.headers.get("X-Content-Type-Options")) == theirs


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
async def test_who_has_no_right_is_refused_in_the_same_words(both, method, target):
    theirs, ours = await both("stranger", target, method=method)

    assert theirs[0] == 403
    same(theirs, ours)


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
async def test_rights_hold_for_us_as_for_the_api_server(both, target, method, allowed):
    theirs, ours = await both("reader", target, method=method)

    assert (theirs[0] != 403, ours.status != 403) == (allowed, allowed)
    if not allowed:
        same(theirs, ours)


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
async def test_acting_as_another_is_the_same_here_and_there(
    both, control_plane, actor, target, headers
):
    if int(control_plane.programs.version.split(".")[1]) < 36:
        pytest.skip("this API server answers 500 to Impersonate-* headers without a user")

    theirs, ours = await both(actor, target, headers)

    assert theirs[0] in {400, 403}
    if b"cannot impersonate" in theirs[1]:  # in the words of constrained impersonation
        assert ours.status == 403
        assert b"cannot impersonate resource" in ours.body
    else:
        same(theirs, ours)
