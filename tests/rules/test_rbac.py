"""What grants a right, by the words of a real API server; kubectl runs the commands elsewhere."""

from __future__ import annotations

import pytest

from rules import rbac
from rules.findings import State

METRIC = (
    'pods.custom.metrics.k8s.io "*" is forbidden: User "ann" cannot get resource "pods/util" in '
    'API group "custom.metrics.k8s.io"'
)
SCALE = (
    'deployments.apps "web" is forbidden: User "o\'neil" cannot get resource "deployments/scale" '
    'in API group "apps" in the namespace "team": RBAC says no'
)
CONFIG = (
    'configmaps "x" is forbidden: User "ann" cannot get resource "configmaps" in API group "" in '
    'the namespace "kube-system"'
)
READ_METRICS = (
    "read-metrics --verb=get,list --resource='*.custom.metrics.k8s.io,*.external.metrics.k8s.io'"
)


@pytest.mark.parametrize(
    ("message", "cure"),
    [
        (
            f'{METRIC} in the namespace "team"',
            f"""\
Let an administrator set rbac.aggregateToView of the chart, which adds metrics to the role view, or
run: kubectl -n team create role {READ_METRICS} &&
kubectl -n team create rolebinding read-metrics --role=read-metrics --user=ann""",
        ),
        (
            f"{METRIC} at the cluster scope",
            f"""\
Let an administrator run: kubectl create clusterrole {READ_METRICS} &&
kubectl create clusterrolebinding read-metrics --clusterrole=read-metrics --user=ann""",
        ),
        (
            SCALE,
            """\
Let an administrator run: kubectl -n team create role get-deployments-scale --verb=get
--resource=deployments.apps/scale && kubectl -n team create rolebinding get-deployments-scale
--role=get-deployments-scale --user='o'"'"'neil'""",
        ),
        (
            CONFIG,
            """\
Let an administrator run: kubectl -n kube-system create role get-configmaps --verb=get
--resource=configmaps --resource-name=x && kubectl -n kube-system create rolebinding get-configmaps
--role=get-configmaps --user=ann""",
        ),
        ('forbidden: User "ann" cannot get path "/apis"', ""),
        ("webhook: no", ""),
        ('forbidden: User "system:anonymous" cannot get path "/apis"', rbac.LOGIN),
    ],
)
def test_the_cure_of_a_403_has_the_commands_that_grant_the_right(message: str, cure: str) -> None:
    cure = cure.replace("\n", " ")

    found = rbac.forbidden("subject", 403, message)

    assert (found.state, found.cure) == (State.SKIPPED, cure)
    assert rbac.lacking(403, message).endswith(cure)


def test_who_is_not_known_must_log_in() -> None:
    assert rbac.cure(401, "Unauthorized") == rbac.LOGIN
    assert rbac.cure(404, f'{METRIC} in the namespace "team"') == ""
