"""YAML encoding as Go's library writes it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter import yaml_encoding


@pytest.mark.parametrize(
    "text",
    [
        *("", "~", "null", "y", "No", "ON", "true", ".inf", "-.INF", ".NaN"),
        *("20", "-1", "1_000", "0x1f", "017", "0o7", "1e3", ".5", "1.", "12:30"),
        *("2026-11-20", "2026-11-20T20:26:31Z"),
    ],
)
def test_text_that_would_be_read_as_another_type_is_quoted(text):
    assert yaml_encoding.encode({"a": text, text: "a"}) in (
        f'"{text}": a\na: "{text}"\n'.encode(),
        f'a: "{text}"\n"{text}": a\n'.encode(),
    )


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("20500m", "20500m"),
        ("5m0s", "5m0s"),
        ("10.0.0.1", "10.0.0.1"),
        ("custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta1"),
        ("/v1", "/v1"),
        ("nope", "nope"),
        ("a: b", "'a: b'"),
        ("*", "'*'"),
        ("it's", "it's"),
        ("a\nb\n", "|\n  a\n  b"),
        ("a\n\n", "|+\n  a\n"),
        ("<<", "<<"),
        ("\u2028\U0001f600é", r'"\L\U0001F600é"'),
        ("a\udcff", "a\ufffd"),
        (None, "null"),
        (True, "true"),
        (404, "404"),
        ({}, "{}"),
        ([], "[]"),
        ((1, {"b": 2}), "\n- 1\n- b: 2"),
        ("word " * 20 + "end", "word " * 15 + "word\n  " + "word " * 4 + "end"),
    ],
)
def test_values_are_written_as_in_go(value, encoded):
    assert yaml_encoding.encode({"a": value}).decode() == f"a: {encoded}\n".replace(": \n", ":\n")


def test_keys_are_sorted_with_numbers_before_letters():
    keys = ["_a", "a", "a_b", "a1", "a2", "a10", "aB", "ab"]

    encoded = yaml_encoding.encode(dict.fromkeys(reversed(keys), 0)).decode()

    assert [line.partition(":")[0] for line in encoded.splitlines()] == keys


def test_a_value_that_occurs_twice_is_written_twice():
    shared = {"b": ["c"]}

    encoded = yaml_encoding.encode({"x": shared, "y": shared})

    assert encoded == b'x:\n  b:\n  - c\n"y":\n  b:\n  - c\n'


@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_encoded_text_can_be_decoded(text):
    assert yaml.safe_load(yaml_encoding.encode({"a": text})) == {"a": text}
