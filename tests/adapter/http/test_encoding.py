from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.http import encoding
from rules.kinds import Kind
from rules.query.aggregate import Value

POD = Kind(group="", version="v1", kind="Pod", resource="pods", singular="pod", namespaced=True)
DEPLOYMENT = Kind(
    group="apps",
    version="v1",
    kind="Deployment",
    resource="deployments",
    singular="deployment",
    namespaced=True,
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a<b>&c", rb"a\u003cb\u003e\u0026c"),
        ("\u2028\u2029", rb"\u2028\u2029"),
        ("a\udcffb\udcfe", rb"a\ufffdb\ufffd"),
        ("\udcff<\u2028é", rb"\ufffd\u003c\u2028" + "é".encode()),
        ("\ufffd", b"\xef\xbf\xbd"),
        ('"\\\n\x01\x7f', rb"\"\\\n\u0001" + b"\x7f"),
        ("\b\f\t", rb"\b\f\t"),
        ("é😀", "é😀".encode()),
    ],
)
def test_text_is_escaped_as_go_escapes_it(text, written):
    assert encoding.encode({"a": text}) == b'{"a":"' + written + b'"}\n'


def test_pretty_documents_are_indented_by_two_and_end_without_a_newline():
    document = {"a": [{"b": 1}], "c": {}, "d": []}

    assert encoding.encode(document, pretty=True) == (
        b'{\n  "a": [\n    {\n      "b": 1\n    }\n  ],\n  "c": {},\n  "d": []\n}'
    )


@given(text=st.text(), pretty=st.booleans())
@settings(max_examples=200, deadline=None)
def test_whatever_is_written_reads_back(text, pretty):
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    assert (
        json.loads(encoding.encode({"a": text, text: {}}, pretty=pretty))["a"] == text
        or text == "a"
    )


def test_both_ways_of_encoding_write_the_same():
    document = {"a": ["x\n\x00\x1f\b", {}], "b": [], "c": None, "d": True, "e": 1}

    for pretty in (False, True):
        plain = encoding.encode({**document, "z": "!"}, pretty=pretty)
        fallback = encoding.encode({**document, "z": "\udcff"}, pretty=pretty)

        assert fallback == plain.replace(b"!", rb"\ufffd")


@pytest.mark.parametrize(
    ("reason", "details", "written"),
    [
        ("", None, b'"message":"m","code":500}'),
        ("Gone", {}, b'"message":"m","reason":"Gone","details":{},"code":500}'),
        ("", {"name": "n"}, b'"message":"m","details":{"name":"n"},"code":500}'),
    ],
)
def test_a_status_leaves_out_what_it_lacks(reason, details, written):
    body = encoding.encode(encoding.status(500, "m", reason=reason, details=details))

    assert body.startswith(
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",' + written[:13]
    )
    assert body.endswith(written + b"\n")


@pytest.mark.parametrize(
    ("version", "item"),
    [
        (
            "v1beta1",
            b'"metricName":"m","timestamp":"2026-11-20T20:25:37Z","value":"20500m","selector":null}',
        ),
        (
            "v1beta2",
            (
                b'"metric":{"name":"m","selector":null},'
                b'"timestamp":"2026-11-20T20:25:37Z","value":"20500m"}'
            ),
        ),
    ],
)
def test_a_value_is_written_as_its_version_has_it(version, item):
    reference = encoding.object_reference(POD, namespace="default", name="pod-a")
    value = Value(milli=20500, time=1795206337.9, samples=1)

    body = encoding.encode(encoding.metric_value_list(version, "m", None, [(reference, value)]))

    assert body == (
        b'{"kind":"MetricValueList","apiVersion":"custom.metrics.k8s.io/'
        + version.encode()
        + b'","metadata":{},"items":[{"describedObject":{"kind":"Pod","namespace":"default",'
        b'"name":"pod-a","apiVersion":"/v1"},' + item + b"]}\n"
    )


def test_a_list_without_values_has_an_empty_list():
    assert encoding.metric_value_list("v1beta1", "m", None, ())["items"] == []


def test_references_leave_out_an_empty_namespace_and_name_the_group():
    assert encoding.object_reference(DEPLOYMENT, namespace="", name="d") == {
        "kind": "Deployment",
        "name": "d",
        "apiVersion": "apps/v1",
    }


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1.999, "1970-01-01T00:00:01Z"),
        (-0.5, "1969-12-31T23:59:59Z"),
    ],
)
def test_times_are_cut_to_whole_seconds(seconds, text):
    assert encoding.timestamp(seconds) == text


@pytest.mark.parametrize(
    ("accept", "through"),
    [
        ("", True),
        ("*/*", True),
        ("*/*;q=0.1", True),
        ("application/json", True),
        ("application/json;as=Table", True),
        ("text/html, application/json;q=0", True),
        ("application/vnd.kubernetes.protobuf, */*", True),
        ("application/*", False),
        ("Application/JSON", False),
        ("application/cbor", False),
        ("text/html", False),
    ],
)
def test_the_router_compares_bare_types(accept, through):
    assert encoding.routable(accept) is through


@pytest.mark.parametrize(
    ("accept", "pretty"),
    [
        ("", False),
        ("*/*", False),
        ("*", False),
        ("application/*", False),
        ("application/json;foo=bar", False),
        ("application/json;stream=watch", False),
        ("application/json;sv=", False),
        ("application/json;as=;g=;v= ", False),
        ("application/json;pretty=1;pretty=", True),
        ("application/json;\tas=Table", False),
        ("application/json;pretty=1", True),
        ("application/json; pretty=1 ; q=0.9", True),
        ("application/json;pretty=0", False),
        ("application/json;q=0", False),
        ("application/json;pretty=1;q=0.1, */*", False),
        ("*/*;q=x, application/json;pretty=1;q=0.5", True),
        ("*/*, application/json;pretty=1", True),
        ("application/json;q=nan;pretty=1", True),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", False),
        ("application/vnd.kubernetes.protobuf, */*", False),
    ],
)
def test_the_first_clause_that_can_be_met_decides(accept, pretty):
    assert encoding.negotiate(accept) == encoding.Accepted(encoding=encoding.JSON, pretty=pretty)


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/json;as=Table",
        "application/json;g=meta.k8s.io",
        "application/json;stream=foo",
        "application/json;sv=v1",
        "application/json;sv=v1;sv=",
        "application/json;as= ;q=1",
        "Application/JSON",
        "*/json",
        "json",
        "application/json/x",
        "text/html," * 200,
        ",;,",
    ],
)
def test_an_accept_header_that_cannot_be_met_is_refused(accept):
    assert encoding.negotiate(accept) is None


@pytest.mark.parametrize(
    ("accept", "media_type", "through"),
    [
        ("", "application/json", True),
        ("*/*", "application/json", True),
        ("application/*", "application/json", True),
        ("application/json;as=Table", "application/json", True),
        ("text/html, */*;q=0.1", "application/json", True),
        ("text/*", "application/json", False),
        ("application/yaml", "application/json", False),
        (",", "application/json", False),
    ],
)
def test_a_media_type_is_accepted_by_its_name_alone(accept, media_type, through):
    assert encoding.accepts(accept, media_type) is through
