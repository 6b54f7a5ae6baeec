from __future__ import annotations

import pytest

from rules.document import yaml
from rules.document.scalars import Scalar, ScalarError
from rules.document.yaml import Items


def _scalar(text: str) -> Scalar:
    node, problems = yaml.load(f"- {text}\n", file="f")
    assert problems == ()
    assert isinstance(node, Items)
    (scalar,) = node.items
    assert isinstance(scalar, Scalar)
    return scalar


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("x", "str"),
        ("'5'", "str"),
        ("<<.Series>>", "str"),
        ("<<", "str"),
        ("", "null"),
        ("~", "null"),
        ("Null", "null"),
        ("yes", "bool"),
        ("N", "bool"),
        ("5", "int"),
        ("-0x1F", "int"),
        ("0b11", "int"),
        ("017", "int"),
        ("1_000", "int"),
        ("18446744073709551615", "int"),
        ("18446744073709551616", "float"),
        ("-9223372036854775808", "int"),
        ("-9223372036854775809", "float"),
        ("+9223372036854775808", "float"),
        ("0xFFFFFFFFFFFFFFFFFF", "str"),
        ("08", "float"),
        ("0b2", "str"),
        (".5", "float"),
        ("5.", "float"),
        ("1e3", "float"),
        (".inf", "float"),
        ("-.Inf", "float"),
        (".NAN", "float"),
        ("+.nan", "str"),
        ("1:30", "str"),
        ("2020-01-01", "timestamp"),
        ("2020-1-2 3:4:5", "timestamp"),
        ("2020-01-01T00:00:00.5Z", "timestamp"),
        ("2020-13-01", "str"),
        ("!foo 5", "!foo"),
        ("! 5", "!"),
        ("!!str 5", "str"),
        ("!!float 5", "float"),
        ("!!bool 'yes'", "bool"),
        ("!!binary aGk=", "binary"),
    ],
)
def test_plain_scalars_are_what_yaml_1_1_makes_of_them(text, kind):
    assert _scalar(text).kind() == kind


@pytest.mark.parametrize("text", ["!!int up", "!!bool 5", "!!null x", "!!timestamp 5", "!!int 1.5"])
def test_a_scalar_must_be_what_its_tag_says(text):
    with pytest.raises(ScalarError, match="as its tag says"):
        _scalar(text).kind()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", "0x1F"),
        ("1.50", "1.50"),
        ("yes", "yes"),
        ("~", ""),
        ("!!null ''", ""),
        ("'~'", "~"),
        ("!foo up", "up"),
        ("!!binary aGk=", "hi"),
        ('"\\u00e9\\n"', "é\n"),
    ],
)
def test_any_scalar_is_text_as_it_is_written(text, value):
    assert _scalar(text).text() == value


@pytest.mark.parametrize("text", ["!!binary '?'", "!!binary /w=="])
def test_binary_must_hold_text(text):
    with pytest.raises(ScalarError, match="does not hold text"):
        _scalar(text).text()
