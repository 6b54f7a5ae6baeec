"""What a real API server tells of trust and of tokens, and what it takes to be told."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from adapter import errors
from adapter.auth import tokens
from adapter.auth.trust import RequestHeaderConfig, Trust, TrustSource
from adapter.clients import kubernetes
from tests.certificates import Holder
from tests.control_plane.credentials import FRONT_PROXY

TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
OTHER_CA = Holder("other-ca", ca=True)


@pytest.fixture(scope="module")
def accounts(control_plane):
    """`examiner` may do what an extension server may; `stranger` may nothing."""
    admin = control_plane.admin
    for name in ("examiner", "stranger"):
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        admin.apply(f"{ACCOUNTS}/{name}", document)
    subject = {"kind": "ServiceAccount", "name": "examiner", "namespace": "default"}
    for kind, place, role in (
        ("ClusterRoleBinding", "clusterrolebindings", "ClusterRole/system:auth-delegator"),
        (
            "RoleBinding",
            "namespaces/kube-system/rolebindings",
            "Role/extension-apiserver-authentication-reader",
        ),
    ):
        role_kind, _, role_name = role.partition("/")
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": "examiner"},
            "subjects": [subject],
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": role_kind,
                "name": role_name,
            },
        }
        admin.apply(f"{RBAC}/{place}/examiner", binding)


@pytest.fixture
async def connect(control_plane, accounts):
    async with contextlib.AsyncExitStack() as stack:

        async def _connect(account):
            path = control_plane.account_kubeconfig(account, "default")
            api = await kubernetes.Kube.connect(str(path), qps=200, burst=400)
            stack.push_async_callback(api.close)
            return api

        yield _connect


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - whatever it is, it has no event
            await asyncio.sleep(0.02)


def same(pem, *holders):
    return pem.split() == b"\n".join(each.pem for each in holders).split()


async def test_the_trust_of_a_cluster_is_read_and_followed(control_plane, connect):
    source = TrustSource(await connect("examiner"))
    await source.start()
    seen = []
    source.subscribe(seen.append)
    told = control_plane.admin.get(TRUST)["data"]["requestheader-client-ca-file"]
    more = {"data": {"requestheader-client-ca-file": told + OTHER_CA.pem.decode()}}

    task = asyncio.create_task(source.run())
    control_plane.admin.call("PATCH", TRUST, more, content_type="application/merge-patch+json")
    await until(lambda: len(seen) == 2)
    # The API server puts it there again at once, with what it knows itself.
    control_plane.admin.call("DELETE", TRUST)
    await until(lambda: len(seen) == 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    first, second, third, fourth = seen
    assert same(first.client_cas, control_plane.cluster_ca)
    assert same(first.proxy_cas, control_plane.proxy_ca)
    knows_uids = int(control_plane.programs.version.split(".")[1]) >= 33
    assert first.headers == RequestHeaderConfig(
        allowed_names=(FRONT_PROXY,),
        username_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",) if knows_uids else (),
        group_headers=("X-Remote-Group",),
        extra_prefixes=("X-Remote-Extra-",),
    )
    assert same(second.proxy_cas, control_plane.proxy_ca, OTHER_CA)
    assert third == Trust()
    assert fourth == first


async def test_trust_has_to_be_readable(connect):
    source = TrustSource(await connect("stranger"))

    with pytest.raises(errors.Refused, match="default:stranger") as caught:
        await source.start()

    assert caught.value.status == 403


async def test_a_token_is_reviewed(control_plane, connect):
    reviews = tokens.TokenReviews(await connect("examiner"))
    token = control_plane.token("stranger", "default")

    user = await reviews.user(token)

    assert user.name == "system:serviceaccount:default:stranger"
    assert user.uid
    assert user.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    assert all(key.startswith("authentication.kubernetes.io/") for key in user.extra)


@pytest.mark.parametrize("change", [lambda _: "nonsense", lambda token: token[:-4] + "AAAA"])
async def test_a_bad_token_is_nobodys(control_plane, connect, change):
    reviews = tokens.TokenReviews(await connect("examiner"))
    token = change(control_plane.token("stranger", "default"))

    with pytest.raises(errors.Unauthenticated) as caught:
        await reviews.user(token)

    assert token not in str(caught.value)


async def test_reviews_need_a_right(control_plane, connect):
    reviews = tokens.TokenReviews(await connect("stranger"))

    with pytest.raises(errors.Unauthenticated, match="cannot create resource"):
        await reviews.user(control_plane.token("examiner", "default"))
