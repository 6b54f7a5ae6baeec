from __future__ import annotations

import json

import pytest

from adapter import errors
from adapter.auth import attributes, authorization
from adapter.auth.impersonation import Impersonations
from adapter.auth.user import Impersonation, User
from adapter.http import request_info

CALLER = User(name="caller", groups=("system:authenticated",))
NODE_KEY = "authentication.kubernetes.io/node-name"
AGENT = User(
    name="system:serviceaccount:kube-system:agent", extra={NODE_KEY: ("n1",), "other": ("x",)}
)
ON = "impersonate-on"


class Cluster:
    """Allows the questions it was told to; each is `VERB RESOURCE[/SUB] NAME [in NAMESPACE]`."""

    def __init__(self, *allowed):
        self.allowed = allowed
        self.asked = []
        self.users = []
        self.reason = ""
        self.failure = None

    async def review(self, asked):
        if self.failure is not None:
            raise self.failure
        what = asked.resource + (f"/{asked.subresource}" if asked.subresource else "")
        if asked.group == "authentication.k8s.io":
            what = f"@{what}"
        place = f" in {asked.namespace}" if asked.namespace else ""
        question = f"{asked.verb} {what or asked.path} {asked.name}{place}".strip()
        self.asked.append(question)
        self.users.append(asked.user)
        allowed = question in self.allowed or "*" in self.allowed
        return authorization.Verdict(allowed=allowed, reason=self.reason)


def asked(target="/metrics", user=CALLER):
    return attributes.attributes(user, request_info.parse(*target.partition("?")[::2]))


async def acting(cluster, wanted, **options):
    return await Impersonations(cluster.review).user(wanted, asked(**options))


async def refusal(cluster, wanted, **options):
    with pytest.raises(errors.ApiError) as raised:
        await acting(cluster, wanted, **options)
    return raised.value


FULL = Impersonation(user="jane", uid="7", groups=("a", "b"), extra={"acme.io/k": ("v", "w")})


async def test_every_part_of_a_user_is_asked_for():
    cluster = Cluster("*")

    user = await acting(cluster, FULL)

    assert user == User(
        name="jane", uid="7", groups=("a", "b", "system:authenticated"), extra=FULL.extra
    )
    assert cluster.asked == [
        f"{ON}:user-info:get /metrics",
        "impersonate:user-info @users jane",
        "impersonate:user-info @uids 7",
        "impersonate:user-info @groups a",
        "impersonate:user-info @groups b",
        "impersonate:user-info @userextras/acme.io/k v",
        "impersonate:user-info @userextras/acme.io/k w",
    ]
    assert set(map(id, cluster.users)) == {id(CALLER)}


async def test_the_oldest_way_remains():
    old = (
        "impersonate users jane",
        "impersonate @uids 7",
        "impersonate groups a",
        "impersonate groups b",
        "impersonate @userextras/acme.io/k v",
        "impersonate @userextras/acme.io/k w",
    )
    cluster = Cluster(*old)

    assert (await acting(cluster, FULL)).name == "jane"
    assert cluster.asked == [f"{ON}:user-info:get /metrics", *old]


@pytest.mark.parametrize("missing", range(6))
async def test_one_refusal_refuses_all(missing):
    cluster = Cluster("*")
    await acting(cluster, FULL)
    constrained = cluster.asked[1:]
    del constrained[missing]

    refused = await refusal(Cluster(f"{ON}:user-info:get /metrics", *constrained), FULL)

    assert refused.code == 403


@pytest.mark.parametrize(
    ("target", "question"),
    [
        ("/apis/g/v/namespaces/ns/pods/p/m", f"{ON}:user-info:get pods/m p in ns"),
        ("/apis/g/v/nodes?watch", f"{ON}:user-info:watch nodes"),
    ],
)
async def test_the_newer_ways_depend_on_what_is_done(target, question):
    cluster = Cluster(question, "impersonate:user-info @users jane")

    assert (await acting(cluster, Impersonation(user="jane"), target=target)).name == "jane"
    assert (await refusal(cluster, Impersonation(user="jane"))).code == 403


@pytest.mark.parametrize(
    ("wanted", "caller", "questions", "groups"),
    [
        (
            "system:serviceaccount:ns:sa",
            CALLER,
            (
                f"{ON}:serviceaccount:get /metrics",
                "impersonate:serviceaccount @serviceaccounts sa in ns",
            ),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        (
            "system:serviceaccount:ns:sa",
            CALLER,
            ("impersonate serviceaccounts sa in ns",),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        (
            "system:node:n1",
            CALLER,
            (f"{ON}:arbitrary-node:get /metrics", "impersonate:arbitrary-node @nodes n1"),
            ("system:nodes", "system:authenticated"),
        ),
        (
            "system:node:n1",
            AGENT,
            (f"{ON}:associated-node:get /metrics", "impersonate:associated-node @nodes *"),
            ("system:nodes", "system:authenticated"),
        ),
        (
            "system:node:n1",
            CALLER,
            ("impersonate users system:node:n1",),
            ("system:authenticated",),
        ),
        (
            "system:anonymous",
            CALLER,
            (f"{ON}:user-info:get /metrics", "impersonate:user-info @users system:anonymous"),
            ("system:unauthenticated",),
        ),
        (
            "system:serviceaccount:Bad:sa",
            CALLER,
            (
                f"{ON}:user-info:get /metrics",
                "impersonate:user-info @users system:serviceaccount:Bad:sa",
            ),
            ("system:authenticated",),
        ),
        (
            "system:serviceaccount:ns:a:b",
            CALLER,
            ("impersonate users system:serviceaccount:ns:a:b",),
            ("system:authenticated",),
        ),
        (
            "system:node:N1",
            CALLER,
            (f"{ON}:user-info:get /metrics", "impersonate:user-info @users system:node:N1"),
            ("system:authenticated",),
        ),
    ],
)
async def test_each_kind_of_user_has_its_way(wanted, caller, questions, groups):
    user = await acting(Cluster(*questions), Impersonation(user=wanted), user=caller)

    assert user == User(name=wanted, groups=groups)


@pytest.mark.parametrize(
    ("wanted", "groups"),
    [
        (Impersonation(user="u", groups=("system:unauthenticated",)), ("system:unauthenticated",)),
        (Impersonation(user="u", groups=("system:authenticated",)), ("system:authenticated",)),
        (
            Impersonation(user="system:anonymous", groups=("g",)),
            ("g", "system:unauthenticated"),
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
async def test_groups_that_are_asked_for_are_the_groups(wanted, groups):
    assert (await acting(Cluster("*"), wanted)).groups == groups


async def test_a_node_is_associated_only_where_the_account_runs():
    cluster = Cluster("*")
    await acting(cluster, Impersonation(user="system:node:n2"), user=AGENT)
    assert "associated" not in " ".join(cluster.asked)

    cluster = Cluster("*")
    nobody = User(name="agent", extra=AGENT.extra)
    await acting(cluster, Impersonation(user="system:node:n1"), user=nobody)
    assert "associated" not in " ".join(cluster.asked)

    cluster = Cluster("*")
    await acting(cluster, Impersonation(user="system:node:n1"), user=AGENT)
    keys = {"authentication.kubernetes.io/associated-node-keys": (NODE_KEY, "other")}
    assert [user.extra for user in cluster.users] == [keys, keys]


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (
            Impersonation(user="u", groups=("a", "")),
            (
                'groups.authentication.k8s.io is forbidden: User "caller" cannot '
                'impersonate:user-info resource "groups" in API group "authentication.k8s.io" at '
                "the cluster scope: impersonating the empty string group is not allowed"
            ),
        ),
        (
            Impersonation(user="u", groups=("system:masters",)),
            (
                'groups.authentication.k8s.io "system:masters" is forbidden: User "caller" cannot '
                'impersonate:user-info resource "groups" in API group "authentication.k8s.io" at '
                "the cluster scope: impersonating the system:masters group is not allowed"
            ),
        ),
        (Impersonation(user="u", extra={"": ("v",)}), "the empty string key in extra is not"),
        (Impersonation(user="u", extra={"k": ("v",)}), "an invalid key in extra is not"),
        (Impersonation(user="u", extra={"K.io/k": ("v",)}), "an invalid key in extra is not"),
        (Impersonation(user="u", extra={"k.io/{}": ("v",)}), "an invalid key in extra is not"),
        (Impersonation(user="u", extra={"k.io/K": ("v",)}), "a non-lowercase key in extra is not"),
        (Impersonation(user="u", extra={"k.io/k": ("",)}), "the empty string value in extra is"),
    ],
)
async def test_the_newer_ways_are_no_way_to_everything(wanted, why):
    cluster = Cluster(f"{ON}:user-info:get /metrics", "impersonate:user-info @users u")

    refused = await refusal(cluster, wanted)

    assert why in refused.message


@pytest.mark.parametrize(
    ("wanted", "wildcard"),
    [
        (Impersonation(user="u", groups=tuple("abcd")), "groups *"),
        (
            Impersonation(user="u", extra={"a.io/b": tuple("vw"), "c.io/d": tuple("xy")}),
            "userextras/* *",
        ),
    ],
)
async def test_many_are_asked_for_all_at_once(wanted, wildcard):
    begin = (f"{ON}:user-info:get /metrics", "impersonate:user-info @users u")
    short = Cluster(*begin, f"impersonate:user-info @{wildcard}")
    await acting(short, wanted)
    everything = Cluster("*")
    await acting(everything, wanted)
    assert short.asked == everything.asked == [*begin, f"impersonate:user-info @{wildcard}"]


@pytest.mark.parametrize(
    ("wanted", "parts"),
    [
        (Impersonation(user="u", groups=tuple("abcd")), [f"groups {each}" for each in "abcd"]),
        (
            Impersonation(user="u", extra={"a.io/b": tuple("vw"), "c.io/d": tuple("xy")}),
            [f"userextras/{each}" for each in ("a.io/b v", "a.io/b w", "c.io/d x", "c.io/d y")],
        ),
    ],
)
async def test_of_many_each_may_be_allowed_by_itself(wanted, parts):
    newer = [f"impersonate:user-info @{each}" for each in ("users u", *parts)]
    newer.insert(0, f"{ON}:user-info:get /metrics")
    assert (await acting(Cluster(*newer), wanted)).name == "u"

    cluster = Cluster("impersonate users u")
    cluster.allowed += tuple(f"impersonate {each}" for each in parts)
    cluster.allowed += tuple(f"impersonate @{each}" for each in parts)
    assert (await acting(cluster, wanted)).name == "u"
    assert not any("*" in question for question in cluster.asked)


async def test_the_way_that_succeeded_is_tried_first():
    cluster = Cluster("impersonate users jane")
    impersonations = Impersonations(cluster.review)
    jane = Impersonation(user="jane")
    for _ in range(2):
        await impersonations.user(jane, asked())
    assert cluster.asked[-1:] == ["impersonate users jane"]
    assert len(cluster.asked) == 3

    cluster.allowed = (f"{ON}:user-info:get /metrics", "impersonate:user-info @users jane")
    await impersonations.user(jane, asked())
    assert cluster.asked[3:] == ["impersonate users jane", *cluster.allowed]

    cluster.allowed = ()
    with pytest.raises(errors.ApiError) as raised:
        await impersonations.user(jane, asked())
    assert "cannot impersonate-on:user-info:get path" in raised.value.message


async def test_the_first_refusal_is_told():
    cluster = Cluster()
    cluster.reason = "because"

    refused = await refusal(cluster, Impersonation(user="jane"))

    assert (refused.code, refused.message) == (
        403,
        'forbidden: User "caller" cannot impersonate-on:user-info:get path "/metrics": because',
    )


async def test_a_review_that_fails_refuses(caplog):
    cluster = Cluster("*")
    cluster.failure = errors.Unreachable("secret host")

    refused = await refusal(cluster, Impersonation(user="jane"))

    assert refused.code == 403
    assert refused.message.endswith(": no verdict could be had; the log of the adapter says why")
    assert "secret host" in caplog.text


async def test_a_verdict_that_contradicts_itself_refuses():
    async def review(asked):
        return authorization.Verdict(allowed=False, reason="r", problem="p")

    with pytest.raises(errors.ApiError, match="p: r"):
        await Impersonations(review).user(Impersonation(user="jane"), asked())


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (
            Impersonation(user="", groups=("a", "b")),
            'Name:"", UID:"", Groups:[]string{"a", "b"}, Extra:map[string][]string(nil)',
        ),
        (
            Impersonation(user="", uid='7"'),
            'Name:"", UID:"7\\"", Groups:[]string(nil), Extra:map[string][]string(nil)',
        ),
        (
            Impersonation(user="", extra={"k": ("v",), "b": ("w", "")}),
            (
                'Name:"", UID:"", Groups:[]string(nil), '
                'Extra:map[string][]string{"b":[]string{"w", ""}, "k":[]string{"v"}}'
            ),
        ),
    ],
)
async def test_somebody_has_to_be_named(wanted, shown):
    cluster = Cluster("*")

    refused = await refusal(cluster, wanted)

    assert (refused.code, refused.reason, cluster.asked) == (400, "BadRequest", [])
    assert refused.message == (
        f"requested &user.DefaultInfo{{{shown}}} without impersonating a user name"
    )
    assert refused.headers == {"X-Content-Type-Options": "nosniff"}
    json.dumps(refused.message)
