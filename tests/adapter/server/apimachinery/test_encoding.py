"""JSON encoding as Go writes it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.server.apimachinery import encoding


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
