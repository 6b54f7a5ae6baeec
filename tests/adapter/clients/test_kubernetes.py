from __future__ import annotations

import functools
import logging
import re

import pytest
from aiohttp import web

from adapter import errors
from adapter.clients import kubernetes as kube
from rules.kinds import ApiResource, Kinds
from tools.fakes import kubernetes


@pytest.fixture
def connect(kube_of, api_server):
    """Connect to the fake API server."""
    return functools.partial(kube_of, api_server, timeout=90.0)


def name(item):
    return item["metadata"]["name"]


async def test_get_sends_parameters(cluster, api):
    cluster.add("pods", "team-a", "web-1", labels={"app": "web"})
    cluster.add("pods", "team-a", "db-1", labels={"app": "db"})

    document = await api.get(
        "/api/v1/namespaces/team-a/pods", {"labelSelector": "app in (web,x),!gone"}
    )

    assert [name(item) for item in document["items"]] == ["web-1"]
    (request,) = cluster.requests
    assert request.query == {"labelSelector": "app in (web,x),!gone"}
    assert request.accept == "application/json"


async def test_fetch_returns_errors_with_headers_and_body(cluster, api):
    cluster.add("pods", "team-a", "web-1")
    cluster.fail("/api/v1/nodes", status=404, message="none", headers={"Warning": "299 - x"})

    found = await api.fetch("/api/v1/namespaces/team-a/pods", {"limit": "1"})
    failed = await api.fetch("/api/v1/nodes")

    assert (found.status, b"web-1" in found.body) == (200, True)
    assert cluster.requests[0].query == {"limit": "1"}
    assert (failed.status, failed.headers["Warning"]) == (404, "299 - x")
    assert b"none" in failed.body


async def test_an_error_that_repeats_the_token_is_returned_without_it(cluster, connect):
    cluster.fail("/api/v1/nodes", status=403, message="s3cr3t-of-jane may not")
    api = await connect(token="s3cr3t-of-jane")

    failed = await api.fetch("/api/v1/nodes")

    assert (failed.status, b"s3cr3t" in failed.body, b"may not" in failed.body) == (
        403,
        False,
        True,
    )


async def test_each_request_is_logged_at_debug_level_with_status_and_duration(
    cluster, api, caplog, api_server
):
    caplog.set_level(logging.DEBUG, logger="adapter")

    await api.get("/api/v1/namespaces/team-a/pods", {"labelSelector": "app=web"})
    with pytest.raises(errors.Refused):
        await api.get("/nothing")

    first, second = (each.message for each in caplog.records if each.name == kube.__name__)
    assert re.fullmatch(
        r"GET http://.*/api/v1/namespaces/team-a/pods\?labelSelector=app%3Dweb: 200 in \d+ ms",
        first,
    )
    assert re.fullmatch(r"GET http://.*/nothing: 404 in \d+ ms", second)


async def test_list_is_collected_in_pages(cluster, connect):
    for number in range(120):
        cluster.add("pods", "team-a", f"web-{number:03}")
    api = await connect(qps=0.001, burst=1)

    names = await api.collect("/api/v1/namespaces/team-a/pods", {}, name)

    assert names == [f"web-{number:03}" for number in range(120)]
    assert [request.query for request in cluster.requests] == [
        {"limit": "50"},
        {"limit": "50", "continue": "50"},
        {"limit": "50", "continue": "100"},
    ]
    assert "as=PartialObjectMetadataList" in cluster.requests[0].accept


async def test_list_with_an_expired_continue_token_is_repeated_in_one_page(cluster, api):
    for number in range(60):
        cluster.add("pods", "team-a", f"web-{number:02}")
    real = cluster._list

    def expired(resource, namespace, request):
        if "continue" in request.query:
            return kubernetes._status(410, "The provided continue parameter is too old")
        return real(resource, namespace, request)

    cluster._list = expired

    names = await api.collect("/api/v1/pods", {"labelSelector": "!x"}, name)

    assert len(names) == len(set(names)) == 60
    assert cluster.requests[-1].query == {"labelSelector": "!x"}


async def test_refused_list_is_not_repeated(cluster, api):
    cluster.fail("/api/v1/pods", status=403, message="pods is forbidden: not for you")

    with pytest.raises(errors.Refused, match="pods is forbidden: not for you") as caught:
        await api.collect("/api/v1/pods", {}, name)

    assert caught.value.status == 403
    assert len(cluster.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "error", "message"),
    [
        ({"status": 404, "message": "no such thing"}, errors.Refused, "404: no such thing"),
        ({"status": 503, "message": "not today"}, errors.Broken, "503: not today"),
        ({"body": b"<html>"}, errors.Broken, "not JSON"),
        ({"drop": True}, errors.Unreachable, "/api/v1/pods"),
        ({"delay": 1.0}, errors.TimedOut, "no complete response within 0.2 s"),
    ],
    ids=["refused", "broken", "not JSON", "dropped", "slow"],
)
async def test_failure_is_a_backend_error_that_names_the_request(
    cluster, connect, failure, error, message
):
    cluster.fail("/api/v1/pods", **failure)
    api = await connect(timeout=0.2 if "delay" in failure else 90.0)

    with pytest.raises(error, match=message) as caught:
        await api.get("/api/v1/pods")

    assert str(caught.value).startswith("GET /api/v1/pods")
    assert caught.value.status == failure.get("status", 0)
    assert caught.value.refusal == failure.get("message", "")
    assert type(caught.value).__module__ == "adapter.errors"


async def test_failure_without_a_status_document_quotes_the_body(cluster, connect):
    def plain(request):
        return web.Response(status=502, text="upstream connect error")

    cluster._respond = plain
    api = await connect()

    with pytest.raises(errors.Broken, match="502: upstream connect error"):
        await api.get("/api/v1/pods")


async def test_429_with_retry_after_is_repeated(cluster, api):
    cluster.fail("/api/v1/pods", status=429, headers={"Retry-After": "0"}, times=2)

    assert (await api.get("/api/v1/pods"))["items"] is None
    assert len(cluster.requests) == 3


async def test_lasting_429_is_raised(cluster, api):
    cluster.fail("/api/v1/pods", status=429, headers={"Retry-After": "0"}, times=100)

    with pytest.raises(errors.Refused, match="429") as caught:
        await api.get("/api/v1/pods")

    assert caught.value.status == 429


async def test_oversized_response_is_aborted(cluster, api, monkeypatch):
    monkeypatch.setattr(kube, "_LIMIT", 1000)
    for number in range(50):
        cluster.add("pods", "team-a", f"web-{number:02}")

    with pytest.raises(errors.TooLarge):
        await api.get("/api/v1/pods")


async def test_pages_of_large_objects_have_fewer_of_them(cluster, api, monkeypatch):
    monkeypatch.setattr(kube, "_MAX_PAGE", 6000)
    for number in range(60):
        labels = (
            {"size": "x" * 3000}
            if 10 <= number < 15
            else {"size": "x" * 10_000}
            if number == 20
            else {}
        )
        cluster.add("pods", "team-a", f"web-{number:02}", labels=labels)

    _, names = await api.snapshot("/api/v1/pods", {}, name, metadata_only=True)

    assert names == [f"web-{number:02}" for number in range(60)]
    sizes = [int(request.query["limit"]) for request in cluster.requests]
    assert sizes[0] == 50
    assert min(sizes) == 1
    assert len(sizes) < 30


def nested(levels, name="deep"):
    fields = b'{"f:[}]":' * levels + b'"]}\\""' + b"}" * levels
    return b'{"metadata":{"name":"%b","managedFields":%b},"a":[]}' % (name.encode(), fields)


@pytest.mark.slow
@pytest.mark.parametrize("levels", [10, 499, 1100, 10_000])
async def test_an_object_that_is_nested_deeply_is_read_as_others(cluster, api, levels):
    pods = nested(3, "a"), nested(levels), nested(3, "b")
    cluster.fail("/api/v1/pods", body=b'{"items":[%b],"metadata":{}}' % b",".join(pods))

    assert await api.collect("/api/v1/pods", {}, name) == ["a", "deep", "b"]


async def test_what_is_nested_deeply_and_no_json_is_broken(cluster, api):
    cluster.fail("/api/v1/pods", body=nested(1100)[:-5])

    with pytest.raises(errors.Broken, match="not JSON"):
        await api.get("/api/v1/pods")


@pytest.mark.parametrize("body", [b"[]", b"{}", b'{"items":[1],"metadata":{}}'])
async def test_malformed_list_is_broken(cluster, api, body):
    cluster.fail("/api/v1/pods", body=body)

    with pytest.raises(errors.Broken, match="not a list"):
        await api.collect("/api/v1/pods", {}, name)


# Discovery


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated", "older"])
async def test_discovery_returns_groups_in_order_with_their_resources(cluster, api, aggregated):
    cluster.aggregated = aggregated
    cluster.resources += [
        kubernetes.Resource(group="example.com", version="v1", name="widgets", kind="Widget"),
        kubernetes.Resource(
            group="example.com", version="v1beta1", name="widgets", kind="Widget", namespaced=False
        ),
    ]

    groups = await api.groups()

    assert [group.name for group in groups] == ["", "apps", "batch", "example.com"]
    core, example = groups[0], groups[3]
    assert Kinds.of(groups).resolve("WIDGET").api_version == "example.com/v1"
    assert (core.versions, core.preferred) == (("v1",), "v1")
    pods = ApiResource(name="pods", singular="pod", kind="Pod", namespaced=True)
    assert pods in core.resources["v1"]
    assert (example.versions, example.preferred) == (("v1", "v1beta1"), "v1")
    assert example.resources["v1beta1"][:1] == (
        ApiResource(name="widgets", kind="Widget", namespaced=False),
    )
    assert len(cluster.requests) == (2 if aggregated else 7)


async def test_stale_version_is_left_out(cluster, api):
    cluster.resources += [
        kubernetes.Resource(group="example.com", name="widgets", kind="Widget", stale=True),
        kubernetes.Resource(group="example.com", version="v1beta1", name="widgets", kind="Widget"),
        kubernetes.Resource(group="gone.com", name="gadgets", kind="Gadget", stale=True),
    ]

    groups = await api.groups()

    assert [group.name for group in groups] == ["", "apps", "batch", "example.com"]
    assert (groups[3].versions, groups[3].preferred) == (("v1beta1",), "v1beta1")


async def test_resource_that_only_carries_subresources_is_left_out(cluster, api):
    cluster.resources.append(
        kubernetes.Resource(group="custom.metrics.k8s.io", version="v1beta2", name="pods", kind="")
    )

    assert (await api.groups())[3].resources == {"v1beta2": ()}


@pytest.mark.parametrize(
    "failure",
    [
        {"status": 503},
        {"body": b'{"resources":[{"name":"a","kind":"A"}]}'},
        {"body": b'{"resources":[{"name":1,"kind":"A","namespaced":true}]}'},
        {"body": b'{"resources":[{"name":"a","kind":2,"namespaced":true}]}'},
        {"body": b"[]"},
    ],
)
async def test_failed_version_does_not_hide_the_others(cluster, api, failure):
    cluster.aggregated = False
    cluster.fail("/apis/apps/v1", **failure)

    assert [group.name for group in await api.groups()] == ["", "batch"]


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"{}",
        b'{"kind":"APIGroupList","groups":[{}]}',
        b'{"kind":"APIVersions","versions":[]}',
    ],
)
async def test_malformed_discovery_is_broken(cluster, api, body):
    cluster.fail("/apis", body=body)

    with pytest.raises(errors.Broken, match="not a discovery document"):
        await api.groups()


# Writing


async def test_post_returns_the_response(cluster, api):
    cluster.tokens["good"] = {"authenticated": True, "user": {"username": "jane"}}

    answer = await api.post(kubernetes.TOKEN_REVIEWS + "?timeout=10s", {"spec": {"token": "good"}})

    assert answer["status"]["user"] == {"username": "jane"}
    (request,) = cluster.requests
    assert (request.method, request.path) == ("POST", kubernetes.TOKEN_REVIEWS)
    assert request.query == {"timeout": "10s"}
    assert request.content_type == "application/json"


async def test_put_and_patch(cluster, api):
    replaced = await api.put("/api/v1/namespaces/a/secrets/b", {"data": {}})
    patched = await api.patch("/api/v1/namespaces/a/secrets/b", {"metadata": {}})

    assert (replaced, patched) == ({"data": {}}, {"metadata": {}})
    assert [(each.method, each.content_type, each.document) for each in cluster.requests] == [
        ("PUT", "application/json", {"data": {}}),
        ("PATCH", "application/merge-patch+json", {"metadata": {}}),
    ]


async def test_invalid_utf8_is_sent_as_replacement_characters(cluster, api):
    await api.post("/x", {"name": "a\udcffb\u2028"})

    (request,) = cluster.requests
    assert request.document == {"name": "a\ufffdb\u2028"}


async def test_post_has_its_own_timeout(cluster, connect):
    cluster.fail("/x", delay=1.0)
    api = await connect(timeout=30.0)

    with pytest.raises(errors.TimedOut, match=r"POST /x: no complete response within 0.1 s"):
        await api.post("/x", {}, timeout=0.1)


async def test_a_client_with_another_rate_may_have_another_timeout(cluster, connect):
    cluster.fail("/x", delay=1.0)
    api = (await connect(timeout=30.0)).with_rate(qps=1.0, burst=1, timeout=0.1)

    with pytest.raises(errors.TimedOut, match=r"GET /x: no complete response within 0.1 s"):
        await api.get("/x")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("failure", "retry_after"),
    [
        ({"status": 500}, 0.0),
        ({"status": 504}, 0.0),
        ({"status": 429}, 0.0),
        ({"status": 503, "headers": {"Retry-After": "3"}}, 3.0),
        ({"status": 503}, None),
        ({"status": 503, "headers": {"Retry-After": "Fri, 20 Nov 2026 20:29:00 GMT"}}, None),
        ({"status": 403}, None),
        ({"body": b"<html>"}, None),
        ({"delay": 1.0}, None),
    ],
)
async def test_error_says_whether_to_repeat_the_request(cluster, api, failure, retry_after):
    cluster.fail("/x", **failure)

    with pytest.raises(errors.BackendError) as caught:
        await api.post("/x", {}, timeout=0.5 if "delay" in failure else 90.0)

    assert caught.value.retry_after == retry_after
    assert len(cluster.requests) == 1


async def test_reset_connection_may_be_repeated(kube_of, aiohttp_server):
    async def reset(request):
        request.transport.abort()

    app = web.Application()
    app.router.add_post("/x", reset)
    api = await kube_of(await aiohttp_server(app))

    with pytest.raises(errors.Unreachable) as caught:
        await api.post("/x", {})

    assert caught.value.retry_after == 0.0


# Configuration


async def test_in_cluster_configuration_uses_the_service_account(account):
    (account / "ca.crt").write_text("no certificate")

    with pytest.raises(errors.Unreachable, match="in-cluster configuration: ") as caught:
        await kube.Kube.connect(None, qps=5, burst=10)

    assert "Service host/port" not in str(caught.value)


async def test_clients_with_their_own_rate_share_connections_only(cluster, connect):
    cluster.add("pods", "team-a", "web-1")
    api = await connect(qps=0.001, burst=1)
    reviews = api.with_rate(qps=0.001, burst=2)
    path = "/api/v1/namespaces/team-a/pods"

    for _ in range(2):
        await reviews.get(path)
    with pytest.raises(errors.TimedOut, match="rate limit"):
        await reviews.get(path)

    await api.get(path)
    with pytest.raises(errors.TimedOut, match="rate limit"):
        await api.get(path)
