from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.http import request_info

CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"


@pytest.mark.parametrize(
    ("path", "verb", "namespace", "resource", "name", "subresource"),
    [
        ("/namespaces/default/pods/web-0/m", "get", "default", "pods", "web-0", "m"),
        ("/namespaces/default/pods/*/m", "get", "default", "pods", "*", "m"),
        ("/namespaces/default/pods/%2A/m", "get", "default", "pods", "*", "m"),
        (
            "/namespaces/default/deployments.apps/d/m",
            "get",
            "default",
            "deployments.apps",
            "d",
            "m",
        ),
        ("/nodes/n/m", "get", "", "nodes", "n", "m"),
        ("/namespaces/default/metrics/m", "get", "default", "metrics", "m", ""),
        ("/namespaces/default/metrics/m/extra", "get", "default", "metrics", "m", "extra"),
        ("/namespaces/default/status", "get", "default", "namespaces", "default", "status"),
        ("/namespaces/default/pods", "list", "default", "pods", "", ""),
        ("/namespaces/default/pods//m", "list", "default", "pods", "", "m"),
        ("/namespaces", "list", "", "namespaces", "", ""),
        ("/watch/pods/p/m", "watch", "", "pods", "p", "m"),
        ("/proxy/pods/p/m", "proxy", "", "pods", "p", ""),
        ("/watch", "watch", "", "", "", ""),
        ("/namespaces/a%2Fb/pods/p/m", "get", "a", "b", "pods", "p"),
    ],
)
def test_resource_paths_are_read_as_request_info_reads_them(
    path, verb, namespace, resource, name, subresource
):
    ask = request_info.parse(CUSTOM + path)

    assert ask.is_resource_request
    assert (ask.group, ask.version) == ("custom.metrics.k8s.io", "v1beta2")
    assert (ask.verb, ask.namespace, ask.resource) == (verb, namespace, resource)
    assert (ask.name, ask.subresource) == (name, subresource)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/apis",
        "/apis/custom.metrics.k8s.io",
        "/apis/custom.metrics.k8s.io/v1beta2",
        "/apis/custom.metrics.k8s.io/v1beta2/",
        "/healthz",
        "/api/v1",
        "/foo/bar/baz/qux",
    ],
)
def test_paths_without_a_resource_are_asked_for_by_their_path(path):
    ask = request_info.parse(path, method="POST")

    assert not ask.is_resource_request
    assert (ask.path, ask.verb, ask.resource) == (path, "post", "")


def test_core_resources_have_no_group():
    ask = request_info.parse("/api/v1/pods")

    assert ask.is_resource_request
    assert (ask.group, ask.version, ask.resource, ask.verb) == ("", "v1", "pods", "list")


@pytest.mark.parametrize(
    ("method", "name", "verb"),
    [
        ("GET", "p", "get"),
        ("HEAD", "p", "get"),
        ("POST", "p", "create"),
        ("PUT", "p", "update"),
        ("PATCH", "p", "patch"),
        ("DELETE", "p", "delete"),
        ("DELETE", "", "deletecollection"),
        ("OPTIONS", "p", ""),
    ],
)
def test_methods_become_verbs(method, name, verb):
    assert request_info.parse(f"{CUSTOM}/namespaces/d/pods/{name}/m", method=method).verb == verb


@pytest.mark.parametrize(
    ("query", "verb", "name"),
    [
        ("watch", "watch", ""),
        ("watch=", "watch", ""),
        ("watch=1", "watch", ""),
        ("watch=False", "list", ""),
        ("watch=0", "list", ""),
        ("watch=0&watch=1", "list", ""),
        ("fieldSelector=metadata.name%3Dweb", "list", "web"),
        ("fieldSelector=metadata.name!%3Dweb", "list", ""),
        ("fieldSelector=metadata.namespace%3Dweb", "list", ""),
        ("fieldSelector=metadata.name%3D..", "list", ""),
        ("fieldSelector=metadata.name%3Da%2Fb", "list", ""),
        ("fieldSelector=nonsense", "list", ""),
        ("fieldSelector=metadata.name%3Dweb&labelSelector=a===b", "list", ""),
        ("fieldSelector=metadata.name%3Dweb&limit=x", "list", ""),
    ],
)
def test_a_request_without_a_name_takes_verb_and_name_from_its_options(query, verb, name):
    ask = request_info.parse(f"{CUSTOM}/namespaces/d/pods", query)

    assert (ask.verb, ask.name) == (verb, name)


@pytest.mark.parametrize(
    ("query", "limit", "timeout_seconds", "error"),
    [
        ("", 0, None, ""),
        ("limit=5&timeoutSeconds=-3", 5, -3, ""),
        ("limit=%2B7", 7, None, ""),
        ("limit=1&limit=x", 1, None, ""),
        ("limit=abc", 0, None, 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("limit=", 0, None, 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limit=1_0", 0, None, 'strconv.ParseInt: parsing "1_0": invalid syntax'),
        ("limit=%22", 0, None, 'strconv.ParseInt: parsing "\\"": invalid syntax'),
        ("limit=x&timeoutSeconds=y", 0, None, 'strconv.ParseInt: parsing "y": invalid syntax'),
        (
            "limit=9223372036854775808",
            0,
            None,
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ),
        ("limit=-9223372036854775808", -(1 << 63), None, ""),
        ("limit=" + "0" * 50 + "9", 9, None, ""),
    ],
)
def test_integers_are_those_of_go(query, limit, timeout_seconds, error):
    ask = request_info.parse(CUSTOM, query)

    assert (ask.limit, ask.timeout_seconds, ask.options_error) == (limit, timeout_seconds, error)


def test_an_integer_of_thousands_of_digits_is_out_of_range_and_no_crash():
    ask = request_info.parse(CUSTOM, "limit=" + "9" * 10_000)

    assert ask.options_error.endswith(": value out of range")


@pytest.mark.parametrize(
    ("query", "timeout", "error"),
    [
        ("", None, ""),
        ("timeout=", None, ""),
        ("timeout=2s", 2.0, ""),
        ("timeout=1m1.5s", 61.5, ""),
        (
            "timeout=abc",
            None,
            'invalid timeout specified in the request URL - time: invalid duration "abc"',
        ),
    ],
)
def test_timeouts_are_durations_of_go(query, timeout, error):
    ask = request_info.parse(CUSTOM, query)

    assert (ask.timeout, ask.timeout_error) == (timeout, error)


@pytest.mark.parametrize(
    ("query", "pretty"),
    [
        ("", None),
        ("pretty", None),
        ("pretty=", None),
        ("pretty=true", True),
        ("pretty=1", True),
        ("pretty=false", False),
        ("pretty=yes", False),
    ],
)
def test_pretty_is_a_bool_of_go(query, pretty):
    assert request_info.parse(CUSTOM, query).pretty is pretty


def test_malformed_pairs_of_a_query_are_dropped():
    ask = request_info.parse("/readyz", "a=%zz&b;c=1&verbose&exclude=x+y&exclude=%2B&=z")

    assert dict(ask.query) == {"verbose": ("",), "exclude": ("x y", "+"), "": ("z",)}


@pytest.mark.parametrize("path", ["/%zz", "/a%2", "/a%", "/a\x01", "/a\x7fb"])
def test_a_path_that_go_cannot_parse_is_malformed(path):
    with pytest.raises(request_info.MalformedError):
        request_info.parse(path)


def test_paths_are_neither_cleaned_nor_cut():
    assert request_info.parse("//apis").path == "//apis"
    assert request_info.parse("/a/../b;c#d").path == "/a/../b;c#d"
    assert request_info.parse("/a+b").path == "/a+b"


def test_absolute_targets_lose_their_origin():
    assert request_info.parse("https://adapter:6443/healthz").path == "/healthz"


def test_text_that_is_not_utf8_keeps_its_bytes():
    assert request_info.parse("/a%ff%C3%A9").path == "/a\udcffé"


def test_an_ask_is_remembered():
    assert request_info.parse(CUSTOM, "limit=3") is request_info.parse(CUSTOM, "limit=3")


def test_a_long_url_is_not_remembered():
    query = "labelSelector=" + "a" * 3000

    assert request_info.parse(CUSTOM, query) is not request_info.parse(CUSTOM, query)


def test_segments_below_a_version_keep_empty_ones():
    ask = request_info.parse(f"{CUSTOM}/namespaces/d/")

    assert ask.below_version == ("namespaces", "d", "")


@given(path=st.text(), query=st.text(), method=st.sampled_from(["GET", "HEAD", "DELETE", "TRACE"]))
@settings(max_examples=200, deadline=None)
def test_every_url_is_an_ask_or_malformed(path, query, method):
    path = path.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    query = query.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    try:
        ask = request_info.parse("/" + path, query, method)
    except request_info.MalformedError:
        return

    assert ask.method == method
