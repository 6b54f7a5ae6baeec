"""JSON encoding as Go writes it, and content negotiation as Kubernetes does it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.http import encoding


@pytest.mark.parametrize(
    ("text", "encoded"),
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
def test_text_is_escaped_as_in_go(text, encoded):
    assert encoding.encode({"a": text}) == b'{"a":"' + encoded + b'"}\n'


def test_pretty_documents_are_indented_by_two_without_a_final_newline():
    document = {"a": [{"b": 1}], "c": {}, "d": []}

    assert encoding.encode(document, pretty=True) == (
        b'{\n  "a": [\n    {\n      "b": 1\n    }\n  ],\n  "c": {},\n  "d": []\n}'
    )


@given(text=st.text(), pretty=st.booleans())
def test_encoded_text_can_be_decoded(text, pretty):
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    assert (
        json.loads(encoding.encode({"a": text, text: {}}, pretty=pretty))["a"] == text
        or text == "a"
    )


def test_the_encoder_for_invalid_utf8_writes_the_same():
    document = {"a": ["x\n\x00\x1f\b", {}], "b": [], "c": None, "d": True, "e": 1}

    for pretty in (False, True):
        plain = encoding.encode({**document, "z": "!"}, pretty=pretty)
        fallback = encoding.encode({**document, "z": "\udcff"}, pretty=pretty)

        assert fallback == plain.replace(b"!", rb"\ufffd")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00Z"),
        (1.999, "1970-01-01T00:00:01Z"),
        (-0.5, "1969-12-31T23:59:59Z"),
    ],
)
def test_timestamps_are_rounded_down_to_seconds(seconds, text):
    assert encoding.timestamp(seconds) == text


@pytest.mark.parametrize(
    ("accept", "routable"),
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
def test_the_router_ignores_parameters(accept, routable):
    assert encoding.routable(accept) is routable


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
def test_the_preferred_acceptable_clause_decides(accept, pretty):
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
def test_a_header_without_an_acceptable_clause_is_refused(accept):
    assert encoding.negotiate(accept) is None


@pytest.mark.parametrize(
    ("accept", "media_type", "accepted"),
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
def test_accepts_ignores_parameters(accept, media_type, accepted):
    assert encoding.accepts(accept, media_type) is accepted


def test_a_long_header_accepts_nothing():
    longest = "application/json" + "," * (4096 - 16)

    assert encoding.negotiate(longest) is not None
    assert encoding.negotiate(longest + ",") is None
