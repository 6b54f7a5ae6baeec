from __future__ import annotations

import pytest

from adapter import errors
from adapter.server.auth.authorization import AccessDecision
from adapter.server.auth.impersonation import impersonate
from adapter.server.auth.user import Impersonation, User

REQUESTER = User(name="requester", groups=("system:authenticated",))
JANE = Impersonation(user="jane")
FULL = Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"acme.io/k": ("v", "w")})
FULL_REVIEWS = (
    "users jane",
    "groups a",
    "groups b",
    "userextras/acme.io/k.authentication.k8s.io v",
    "userextras/acme.io/k.authentication.k8s.io w",
    "uids.authentication.k8s.io 7",
)


class Cluster:
    """Allows the given reviews, each written `RESOURCE[/SUB][.GROUP] NAME [in NAMESPACE]`."""

    def __init__(self, *allowed):
        self.allowed = allowed
        self.reviews = []
        self.failure = None

    async def review(self, attributes):
        if self.failure is not None:
            raise self.failure
        assert attributes.user is REQUESTER
        assert attributes.verb == "impersonate"
        assert attributes.is_resource_request
        resource = attributes.resource
        if attributes.subresource:
            resource += f"/{attributes.subresource}"
        if attributes.group:
            resource += f".{attributes.group}"
        namespace = f" in {attributes.namespace}" if attributes.namespace else ""
        review = f"{resource} {attributes.name}{namespace}"
        self.reviews.append(review)
        return AccessDecision(
            allowed=review in self.allowed or "*" in self.allowed, reason="no RBAC"
        )

    async def impersonate(self, requested):
        return await impersonate(requested, REQUESTER, self.review)

    async def refuse(self, requested):
        with pytest.raises(errors.ApiError) as raised:
            await self.impersonate(requested)
        return raised.value


async def test_every_part_of_the_user_is_reviewed():
    cluster = Cluster(*FULL_REVIEWS)

    user = await cluster.impersonate(FULL)

    assert user == User(
        name="jane", uid="7", groups=("a", "b", "system:authenticated"), extra=FULL.extra
    )
    assert cluster.reviews == list(FULL_REVIEWS)


@pytest.mark.parametrize("missing", FULL_REVIEWS)
async def test_one_denied_part_refuses_the_impersonation(missing):
    cluster = Cluster(*(review for review in FULL_REVIEWS if review != missing))

    refusal = await cluster.refuse(FULL)

    assert refusal.code == 403
    assert cluster.reviews[-1] == missing


@pytest.mark.parametrize(
    ("requested", "review", "groups"),
    [
        (
            "system:serviceaccount:ns:sa",
            "serviceaccounts sa in ns",
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        (
            "system:serviceaccount:Bad:sa",
            "users system:serviceaccount:Bad:sa",
            ("system:authenticated",),
        ),
        (
            "system:serviceaccount:ns:a:b",
            "users system:serviceaccount:ns:a:b",
            ("system:authenticated",),
        ),
        (
            f"system:serviceaccount:ns:{'a' * 254}",
            f"users system:serviceaccount:ns:{'a' * 254}",
            ("system:authenticated",),
        ),
        (
            f"system:serviceaccount:{'n' * 64}:sa",
            f"users system:serviceaccount:{'n' * 64}:sa",
            ("system:authenticated",),
        ),
        ("system:node:n1", "users system:node:n1", ("system:authenticated",)),
        ("system:anonymous", "users system:anonymous", ("system:unauthenticated",)),
    ],
)
async def test_the_name_determines_the_resource_and_the_default_groups(requested, review, groups):
    user = await Cluster(review).impersonate(Impersonation(user=requested))

    assert user == User(name=requested, groups=groups)


@pytest.mark.parametrize(
    ("requested", "groups"),
    [
        (Impersonation(user="u", groups=("system:unauthenticated",)), ("system:unauthenticated",)),
        (Impersonation(user="u", groups=("system:authenticated",)), ("system:authenticated",)),
        (
            Impersonation(user="system:anonymous", groups=("g",)),
            ("g", "system:unauthenticated"),
        ),
        (
            Impersonation(user="system:anonymous", groups=("system:unauthenticated",)),
            ("system:unauthenticated",),
        ),
        (
            Impersonation(user="system:serviceaccount:ns:sa", groups=("g",)),
            ("g", "system:authenticated"),
        ),
        (
            Impersonation(user="u", groups=("system:masters",)),
            ("system:masters", "system:authenticated"),
        ),
        (Impersonation(user="u", groups=("",)), ("", "system:authenticated")),
    ],
)
async def test_requested_groups_replace_the_default_groups(requested, groups):
    assert (await Cluster("*").impersonate(requested)).groups == groups


async def test_a_failed_review_refuses_and_is_logged(caplog):
    cluster = Cluster("*")
    cluster.failure = errors.Unreachable("secret host")

    refusal = await cluster.refuse(JANE)

    assert refusal.code == 403
    assert refusal.message.endswith(": authorization check failed; see the log of the adapter")
    assert "secret host" in caplog.text


async def test_a_contradictory_decision_refuses():
    async def review(attributes):
        return AccessDecision(allowed=False, reason="r", error="e")

    with pytest.raises(errors.ApiError, match="e: r"):
        await impersonate(JANE, REQUESTER, review)


@pytest.mark.parametrize(
    "requested",
    [
        Impersonation(user="", groups=("\udcff" * 60,) * 5000),
        Impersonation(user="", uid="\udcff" * 300_000),
        Impersonation(user="", extra={"k": ("v",) * 5000}),
        Impersonation(user="", extra={f"k{number}": ("v",) for number in range(5000)}),
    ],
)
async def test_the_refusal_repeats_the_start_of_a_long_impersonation_only(requested):
    refusal = await Cluster("*").refuse(requested)

    assert refusal.message.endswith("… without impersonating a user name")
    assert len(refusal.message) < 1100
