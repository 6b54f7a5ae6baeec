from __future__ import annotations

import pytest

from adapter.server.apimachinery import request_info
from adapter.server.auth.attributes import Attributes, authorizer_attributes, forbidden, review_spec
from adapter.server.auth.user import User

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
JANE = User(name="jane", groups=("a", "system:authenticated"))


def attributes_of(target, *, method="GET", user=JANE):
    path, _, query = target.partition("?")
    return authorizer_attributes(user, request_info.parse(path, query, method))


def resource(**fields):
    return {"resourceAttributes": fields}


def test_the_spec_contains_the_whole_user():
    user = User(name="u", groups=("g", "h"), uid="7", extra={"k": ("1", "2")})

    spec = review_spec(attributes_of("/version", user=user))

    assert list(spec) == ["nonResourceAttributes", "user", "groups", "extra", "uid"]
    assert spec == {
        "nonResourceAttributes": {"path": "/version", "verb": "get"},
        "user": "u",
        "groups": ["g", "h"],
        "extra": {"k": ["1", "2"]},
        "uid": "7",
    }


def custom(namespace="default", **more):
    defaults = {"verb": "get", "group": "custom.metrics.k8s.io", "version": "v1beta2"}
    if namespace:
        defaults["namespace"] = namespace
    return resource(**{**defaults, **more})


def external(**more):
    defaults = {"verb": "list", "group": "external.metrics.k8s.io", "version": "v1beta1"}
    return resource(namespace="default", **{**defaults, "resource": "queue", **more})


def labels(*requirements):
    keys = ("key", "operator", "values")
    return {"requirements": [dict(zip(keys, each, strict=False)) for each in requirements]}


@pytest.mark.parametrize(
    ("target", "method", "attributes"),
    [
        (
            f"{CUSTOM}/namespaces/default/pods/pod-a/M?labelSelector=a%3Db",
            "GET",
            custom(resource="pods", subresource="M", name="pod-a"),
        ),
        (
            f"{CUSTOM}/namespaces/default/pods/*/M?watch=true&fieldSelector=metadata.name%3Df",
            "GET",
            custom(resource="pods", subresource="M", name="*"),
        ),
        (
            f"{CUSTOM}/namespaces/default/deployments.apps/d/M",
            "HEAD",
            custom(resource="deployments.apps", subresource="M", name="d"),
        ),
        (f"{CUSTOM}/nodes/n/M", "GET", custom("", resource="nodes", subresource="M", name="n")),
        (
            f"{CUSTOM}/namespaces/default/metrics/M",
            "GET",
            custom(resource="metrics", name="M"),
        ),
        (
            f"{CUSTOM}/namespaces/default/pods//M",
            "GET",
            custom(verb="list", resource="pods", subresource="M"),
        ),
        (
            f"{EXTERNAL}/namespaces/default/queue?labelSelector=a%3Db",
            "GET",
            external(labelSelector=labels(("a", "In", ["b"]))),
        ),
        (
            f"{EXTERNAL}/namespaces/default/queue?watch&labelSelector=a+in+(c,b),!d,e,f!%3Dg",
            "GET",
            external(
                verb="watch",
                labelSelector=labels(
                    ("a", "In", ["b", "c"]),
                    ("d", "DoesNotExist"),
                    ("e", "Exists"),
                    ("f", "NotIn", ["g"]),
                ),
            ),
        ),
        (
            f"{EXTERNAL}/namespaces/default/queue?labelSelector=a%3E1,b%3D%3Dc,d+notin+(e)",
            "GET",
            external(labelSelector=labels(("b", "In", ["c"]), ("d", "NotIn", ["e"]))),
        ),
        (f"{EXTERNAL}/namespaces/default/queue?labelSelector=a%3E1", "GET", external()),
        (f"{EXTERNAL}/namespaces/default/queue?labelSelector=,", "GET", external()),
        (
            f"{EXTERNAL}/namespaces/default/queue?fieldSelector=a%3Db,c!%3Dd&limit=x",
            "GET",
            external(fieldSelector=labels(("a", "In", ["b"]), ("c", "NotIn", ["d"]))),
        ),
        (f"{EXTERNAL}/namespaces/default/queue?fieldSelector=a", "GET", external()),
        (
            f"{EXTERNAL}/namespaces/default/queue?fieldSelector=metadata.name%3Df",
            "GET",
            external(name="f", fieldSelector=labels(("metadata.name", "In", ["f"]))),
        ),
        (
            f"{EXTERNAL}/watch/namespaces/default/queue?labelSelector=a%3Db",
            "GET",
            external(verb="watch"),
        ),
        (
            "/api/v1/watch/namespaces/default/queue?labelSelector=a%3Db",
            "GET",
            resource(namespace="default", verb="watch", version="v1", resource="queue"),
        ),
        (f"{EXTERNAL}/namespaces/default/queue", "POST", external(verb="create")),
        (
            f"{EXTERNAL}/namespaces/default/queue?labelSelector=a",
            "DELETE",
            external(verb="deletecollection", labelSelector=labels(("a", "Exists"))),
        ),
        (
            "/apis/metrics.k8s.io/v1beta1/nodes",
            "GET",
            resource(verb="list", group="metrics.k8s.io", version="v1beta1", resource="nodes"),
        ),
        (
            f"{EXTERNAL}",
            "OPTIONS",
            {"nonResourceAttributes": {"path": EXTERNAL, "verb": "options"}},
        ),
        (
            "/apis///",
            "GET",
            {"nonResourceAttributes": {"path": "/apis///", "verb": "get"}},
        ),
        (
            "/a%ffb",
            "GET",
            {"nonResourceAttributes": {"path": "/a\udcffb", "verb": "get"}},
        ),
    ],
)
def test_the_spec_contains_the_attributes_of_the_request(target, method, attributes):
    spec = review_spec(attributes_of(target, method=method))

    assert spec == {**attributes, "user": "jane", "groups": ["a", "system:authenticated"]}


def test_a_spec_without_attributes_still_has_resource_attributes():
    empty = Attributes(user=User(name=""), verb="")

    assert review_spec(empty) == {"resourceAttributes": {}}


@pytest.mark.parametrize(
    "target",
    [
        "/" + "<" * 60_000,
        "/" + "%ff" * 20_000,
        f"{CUSTOM}/namespaces/{'<' * 20_000}/{'&' * 20_000}/{'>' * 20_000}/m",
        f"/apis/{'<' * 60_000}/v1/nodes/n",
    ],
)
def test_a_403_repeats_at_most_1_kib_of_a_name(target):
    user = User(name="<" * 100_000)

    error = forbidden(attributes_of(target, user=user))

    assert len(error.message) <= 16_385
    assert all(len(value) <= 1025 for value in error.details.values())
    assert "…" in error.message
    assert len(forbidden(attributes_of(target)).message) < 16_384  # nothing else was cut
