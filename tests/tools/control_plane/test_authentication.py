"""TrustSource and TokenReviews against a real API server, with the RBAC rights they need."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from adapter import errors
from adapter.clients import kubernetes
from adapter.server.auth import tokens
from adapter.server.auth.trust import RequestHeaderConfig, Trust, TrustSource
from tools.certificates import Holder
from tools.control_plane.credentials import FRONT_PROXY
from tools.waiting import until

CONFIG = "extension-apiserver-authentication"
AUTHENTICATION_CONFIG = f"/api/v1/namespaces/kube-system/configmaps/{CONFIG}"
OTHER_CA = Holder("other-ca", ca=True)


@pytest.fixture(scope="module")
def accounts(control_plane):
    """`reviewer` has the rights of an extension API server; `stranger` has none."""
    for name in ("reviewer", "stranger"):
        control_plane.kubectl("create", "serviceaccount", name)
    for kind, role, namespace in (
        ("clusterrolebinding", "--clusterrole=system:auth-delegator", "default"),
        ("rolebinding", "--role=extension-apiserver-authentication-reader", "kube-system"),
    ):
        control_plane.kubectl(
            *("create", kind, "reviewer", role),
            *("--serviceaccount=default:reviewer", f"--namespace={namespace}"),
        )
    for rights in (
        {"verb": "create", "group": "authentication.k8s.io", "resource": "tokenreviews"},
        {"verb": "watch", "resource": "configmaps", "namespace": "kube-system", "name": CONFIG},
    ):
        control_plane.wait_allowed("system:serviceaccount:default:reviewer", **rights)


@pytest.fixture
async def connect(control_plane, accounts):
    async with contextlib.AsyncExitStack() as stack:

        async def _connect(account):
            path = control_plane.account_kubeconfig(account, "default")
            api = await kubernetes.Kube.connect(str(path), qps=200, burst=400)
            stack.push_async_callback(api.close)
            return api

        yield _connect


def same(pem, *holders):
    return pem.split() == b"\n".join(each.pem for each in holders).split()


async def test_trust_is_read_and_changes_are_followed(control_plane, connect):
    source = TrustSource(await connect("reviewer"))
    await source.start()
    states = []
    source.subscribe(states.append)
    proxy_cas = control_plane.admin.get(AUTHENTICATION_CONFIG)["data"][
        "requestheader-client-ca-file"
    ]
    patch = {"data": {"requestheader-client-ca-file": proxy_cas + OTHER_CA.pem.decode()}}

    task = asyncio.create_task(source.run())
    control_plane.admin.call(
        "PATCH", AUTHENTICATION_CONFIG, patch, content_type="application/merge-patch+json"
    )
    await until(lambda: len(states) == 2)
    # The API server recreates the ConfigMap at once from its own flags.
    control_plane.admin.call("DELETE", AUTHENTICATION_CONFIG)
    await until(lambda: len(states) == 4)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    first, second, third, fourth = states
    assert same(first.client_cas, control_plane.credentials.cluster_ca)
    assert same(first.proxy_cas, control_plane.credentials.proxy_ca)
    sends_uids = int(control_plane.programs.version.split(".")[1]) >= 33
    assert first.headers == RequestHeaderConfig(
        allowed_names=(FRONT_PROXY,),
        username_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",) if sends_uids else (),
        group_headers=("X-Remote-Group",),
        extra_prefixes=("X-Remote-Extra-",),
    )
    assert same(second.proxy_cas, control_plane.credentials.proxy_ca, OTHER_CA)
    assert third == Trust()
    assert fourth == first


async def test_reading_trust_requires_a_right(connect):
    source = TrustSource(await connect("stranger"))

    with pytest.raises(errors.Refused, match="default:stranger") as error:
        await source.start()

    assert error.value.status == 403


async def test_valid_token_is_the_service_account(control_plane, connect):
    reviews = tokens.TokenReviews(await connect("reviewer"))
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
async def test_invalid_token_is_rejected_and_not_in_the_error(control_plane, connect, change):
    reviews = tokens.TokenReviews(await connect("reviewer"))
    token = change(control_plane.token("stranger", "default"))

    with pytest.raises(errors.Unauthenticated) as error:
        await reviews.user(token)

    assert token not in str(error.value)


async def test_token_review_requires_a_right(control_plane, connect):
    reviews = tokens.TokenReviews(await connect("stranger"))

    with pytest.raises(errors.Unauthenticated, match="cannot create resource"):
        await reviews.user(control_plane.token("reviewer", "default"))
