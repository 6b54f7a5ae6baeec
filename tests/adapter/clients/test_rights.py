"""Rights of the adapter's own account, reviewed by a real API server."""

from __future__ import annotations

import logging

import pytest

from adapter.clients.kubernetes import Kube
from adapter.clients.rights import Right, Rights
from rules.findings import State
from tools.waiting import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLE = f"{RBAC}/clusterroles/reviewed"
BINDING = f"{RBAC}/clusterrolebindings/reviewed"
PODS = Right(
    group="", resource="pods", verbs=("list", "watch"), consequence="no pod can be selected"
)
SECRET = Right(
    group="",
    resource="secrets",
    verbs=("get",),
    consequence="no CA is shared",
    name="ca",
    namespace="gpu",
)


@pytest.fixture
def grant(control_plane):
    admin, version = control_plane.admin, "rbac.authorization.k8s.io/v1"

    def grant(*verbs):
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": list(verbs)}
        document = {"kind": "ClusterRole", "metadata": {"name": "reviewed"}, "rules": [rule]}
        admin.apply(ROLE, {"apiVersion": version, **document})

    subject = {"kind": "User", "name": "reviewed", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reviewed"}
    admin.apply(
        BINDING,
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reviewed"},
            "subjects": [subject],
            "roleRef": role,
        },
    )
    yield grant
    for path in (BINDING, ROLE):
        admin.request("DELETE", path)


@pytest.fixture
async def kube(control_plane, tmp_path):
    path = control_plane.user("reviewed", "system:authenticated").write_kubeconfig(tmp_path / "k")
    api = await Kube.connect(str(path), qps=1000, burst=1000)
    yield api
    await api.close()


async def until_reviewed(rights, fact):
    """Review until the API server has read the ClusterRole."""

    async def reviewed():
        await rights.review()
        return rights.check().fact == fact

    await until(reviewed)


async def test_each_missing_right_is_one_log_line_with_the_rule_that_grants_it(grant, kube, caplog):
    caplog.set_level(logging.INFO)
    rights = Rights()
    rights.require(kube, lambda: (PODS, SECRET))
    assert rights.check().fact == "not reviewed yet"
    grant("list")
    await until_reviewed(rights, "may not watch pods; get secrets/ca")
    await rights.review()

    assert rights.check().state is State.WARNING
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert lines[-2] == (
        "the adapter has no permission to watch pods, so no pod can be selected: grant "
        '{apiGroups: [""], resources: [pods], verbs: [watch]} by a ClusterRole that is '
        "bound to its ServiceAccount, as in manifests/base/rbac.yaml"
    )
    (line,) = [each for each in lines if "secrets" in each]
    assert line == (
        "the adapter has no permission to get secrets/ca, so no CA is shared: grant "
        '{apiGroups: [""], resources: [secrets], resourceNames: [ca], verbs: [get]} by a Role in '
        "gpu that is bound to its ServiceAccount, as in manifests/base/rbac.yaml"
    )

    rights = Rights()
    rights.require(kube, lambda: (PODS,))
    grant("list", "watch")
    await until_reviewed(rights, "all granted")


async def test_a_review_that_fails_is_not_a_missing_right(api, cluster, caplog):
    caplog.set_level(logging.INFO)
    rights = Rights()
    assert rights.check().fact == "none is required"
    rights.require(api, lambda: (PODS,))
    cluster.fail("/apis/authorization.k8s.io", status=500, times=10**6)

    for _ in range(2):
        await rights.review()

    assert rights.check().fact == "not known: the review failed, and the log has the error"
    assert caplog.text.count("own rights cannot be reviewed") == 1
