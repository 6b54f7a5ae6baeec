"""RequestInfo as Kubernetes parses it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.server.apimachinery import request_info

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
def test_resource_paths_are_parsed_like_kubernetes_request_info(
    path, verb, namespace, resource, name, subresource
):
    info = request_info.parse(CUSTOM + path)

    assert info.is_resource_request
    assert (info.group, info.version) == ("custom.metrics.k8s.io", "v1beta2")
    assert (info.verb, info.namespace, info.resource) == (verb, namespace, resource)
    assert (info.name, info.subresource) == (name, subresource)


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
def test_other_paths_are_non_resource_requests(path):
    info = request_info.parse(path, method="POST")

    assert not info.is_resource_request
    assert (info.path, info.verb, info.resource) == (path, "post", "")


def test_core_resources_have_no_group():
    info = request_info.parse("/api/v1/pods")

    assert info.is_resource_request
    assert (info.group, info.version, info.resource, info.verb) == ("", "v1", "pods", "list")


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
def test_without_a_name_the_options_decide_verb_and_name(query, verb, name):
    info = request_info.parse(f"{CUSTOM}/namespaces/d/pods", query)

    assert (info.verb, info.name) == (verb, name)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("", ""),
        ("limit=5&timeoutSeconds=-3", ""),
        ("limit=%2B7", ""),
        ("limit=1&limit=x", ""),
        ("limit=abc", 'strconv.ParseInt: parsing "abc": invalid syntax'),
        ("limit=", 'strconv.ParseInt: parsing "": invalid syntax'),
        ("limit=1_0", 'strconv.ParseInt: parsing "1_0": invalid syntax'),
        ("limit=%22", 'strconv.ParseInt: parsing "\\"": invalid syntax'),
        ("limit=x&timeoutSeconds=y", 'strconv.ParseInt: parsing "y": invalid syntax'),
        (
            "limit=9223372036854775808",
            'strconv.ParseInt: parsing "9223372036854775808": value out of range',
        ),
        (
            "limit=-9223372036854775809",
            'strconv.ParseInt: parsing "-9223372036854775809": value out of range',
        ),
        ("limit=9223372036854775807", ""),
        ("limit=-9223372036854775808", ""),
        ("limit=" + "0" * 5000 + "9", ""),
    ],
)
def test_integer_options_are_parsed_like_int64_in_go(query, error):
    assert request_info.parse(CUSTOM, query).options_error == error


def test_an_integer_of_thousands_of_digits_is_out_of_range():
    info = request_info.parse(CUSTOM, "limit=" + "9" * 10_000)

    assert info.options_error.endswith(": value out of range")


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
def test_timeouts_are_go_durations(query, timeout, error):
    info = request_info.parse(CUSTOM, query)

    assert (info.timeout, info.timeout_error) == (timeout, error)


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
def test_pretty_is_parsed_like_a_go_bool(query, pretty):
    assert request_info.parse(CUSTOM, query).pretty is pretty


def test_malformed_query_pairs_are_dropped():
    info = request_info.parse("/readyz", "a=%zz&b;c=1&verbose&exclude=x+y&exclude=%2B&=z")

    assert dict(info.query) == {"verbose": ("",), "exclude": ("x y", "+"), "": ("z",)}


@pytest.mark.parametrize("path", ["/%zz", "/a%2", "/a%", "/a\x01", "/a\x7fb"])
def test_paths_that_go_refuses_are_malformed(path):
    with pytest.raises(request_info.MalformedError):
        request_info.parse(path)


def test_paths_are_not_cleaned():
    assert request_info.parse("//apis").path == "//apis"
    assert request_info.parse("/a/../b;c#d").path == "/a/../b;c#d"
    assert request_info.parse("/a+b").path == "/a+b"


def test_the_origin_of_an_absolute_target_is_removed():
    assert request_info.parse("https://adapter:6443/healthz").path == "/healthz"


def test_bytes_that_are_not_utf8_become_surrogates():
    assert request_info.parse("/a%ff%C3%A9").path == "/a\udcffé"


def test_segments_below_a_version_include_empty_ones():
    info = request_info.parse(f"{CUSTOM}/namespaces/d/")

    assert info.below_version == ("namespaces", "d", "")


@given(path=st.text(), query=st.text(), method=st.sampled_from(["GET", "HEAD", "DELETE", "TRACE"]))
def test_every_url_parses_or_is_malformed(path, query, method):
    path = path.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    query = query.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    try:
        info = request_info.parse("/" + path, query, method)
    except request_info.MalformedError:
        return

    assert info.verb or method == "TRACE"


# Limits


def message_of(path, query=""):
    with pytest.raises(errors.ApiError) as raised:
        request_info.parse(path, query)
    assert (raised.value.code, raised.value.reason) == (400, "BadRequest")
    return raised.value.message


SELECTORS = ["labelSelector", "fieldSelector", "metricLabelSelector"]


@pytest.mark.parametrize("key", SELECTORS)
def test_a_selector_has_at_most_64_kib(key):
    longest = "a=" + "b" * (65536 - 2)
    info = request_info.parse(f"{CUSTOM}/namespaces/d/pods", f"{key}={longest}")

    assert longest in {info.label_selector, info.field_selector, info.metric_label_selector}
    assert message_of(f"{CUSTOM}/namespaces/d/pods", f"{key}={longest}b") == (
        f"{key} has 65537 characters; at most 65536 are accepted"
    )


@pytest.mark.parametrize("key", SELECTORS)
@pytest.mark.parametrize("term", ["a", "%61%3d", "a=%5C%5C%5C", ""])
def test_a_selector_has_at_most_1000_requirements_and_values(key, term):
    request_info.parse(f"{CUSTOM}/namespaces/d/pods", f"{key}=" + "%2C".join([term] * 1000))

    assert message_of(f"{CUSTOM}/namespaces/d/pods", f"{key}=" + ",".join([term] * 1001)) == (
        f"{key} has 1001 requirements and values; at most 1000 are accepted"
    )


def test_only_the_first_value_of_a_selector_counts():
    query = "labelSelector=a&labelSelector=" + "," * 1000

    assert request_info.parse(CUSTOM, query).label_selector == "a"


def test_an_escaped_selector_of_64_kib_is_accepted():
    info = request_info.parse(CUSTOM, "metricLabelSelector=" + "%61" * 65536)

    assert info.metric_label_selector == "a" * 65536


def test_an_escaped_parameter_is_rejected_before_it_is_decoded():
    message = message_of(CUSTOM, "label%53elector=" + "%61" * 300_000)

    assert message.startswith("labelSelector has 900016 characters; at most 196672")


def test_the_number_of_parameters_is_limited():
    request_info.parse(CUSTOM, "&".join(["a"] * 1000))

    assert message_of(CUSTOM, "&" * 1000) == (
        "the query of the request has 1001 parameters; at most 1000 are accepted"
    )


def test_the_length_of_a_path_is_limited():
    request_info.parse("/" + "x" * 65535)

    assert message_of("/" + "x" * 65536) == (
        "the path of the request has 65537 characters; at most 65536 are accepted"
    )


def test_a_long_timeout_is_not_parsed():
    assert request_info.parse(CUSTOM, "timeout=" + "1h" * 32).timeout == 32 * 3600
    info = request_info.parse(CUSTOM, "timeout=" + "1h" * 33)

    assert (info.timeout, info.timeout_error) == (
        None,
        (
            "invalid timeout specified in the request URL - it has 66 characters; "
            "at most 64 are accepted"
        ),
    )


def test_a_long_integer_is_quoted_in_part():
    info = request_info.parse(CUSTOM, "limit=" + "%ff" * 60_000)

    assert len(info.options_error) < 5000
