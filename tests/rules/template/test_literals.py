"""Literals and their values, as in Go."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rules import errors, quoting, template
from rules.template import literals

CASES = [
    (r'"a\a\b\f\n\r\t\v\\\"z"', 'a\a\b\f\n\r\t\v\\"z'),
    (r'"\x41\101\u00e9\U0001F600"', "AAé😀"),
    (r'"\xe4\xb8\x96"', "世"),
    ("`raw\\n\r`", "raw\\n"),
    ("'a'", "97"),
    (r"'\n'", "10"),
    (r"'\''", "39"),
    ("'\"'", "34"),
    ("'世'", "19990"),
    (r"'\x80'", "128"),
    ("0x1F", "31"),
    ("0b101", "5"),
    ("0o17", "15"),
    ("017", "15"),
    ("0_7", "7"),
    ("1_000", "1000"),
    ("0x_1_F", "31"),
    ("-5", "-5"),
    ("+5", "5"),
    ("-0", "0"),
    ("00", "0"),
    ("9223372036854775807", "9223372036854775807"),
    ("-9223372036854775808", "-9223372036854775808"),
    ("1.5", "1.5"),
    (".5", "0.5"),
    ("5.", "5"),
    ("1e3", "1000"),
    ("1_0.5_0E1_0", "1.05e+11"),
    ("1e-400", "0"),
    ("true", "true"),
]


@pytest.mark.parametrize(("source", "output"), CASES, ids=ascii)
def test_a_literal_has_the_same_value_as_in_go(source, output):
    assert template.parse(f"<<{source}>>").render({}) == output


ERRORS = [
    r'"\xff"',
    r'"\377"',
    "1i",
    "1+2i",
    "0x1p4",
    "0x1.8p1",
    "9223372036854775808",
    r'"\400"',
    r'"\ud800"',
    r'"\U00110000"',
    r'"\x4"',
    r'"\q"',
    r'"\'"',
    '"a\nb"',
    '"a',
    "`a",
    r'"\>>',
    "''",
    "'ab'",
    "'a",
    r"'\"'",
    r"'\400'",
    "'''",
    "08",
    "0b2",
    "0x",
    "1__0",
    "1_",
    "_1",
    "0x1_p1",
    "1e",
    "1e400",
    "1.5.5",
    "0b1.1",
    "0xep",
    "-",
    "+-1",
    "1-",
    "1+2",
    "18446744073709551616",
    "+9223372036854775808",
    "+0xefffffffffffffff",
    "0xeffffffffffffffff",
    "-9223372036854775809",
    "5a",
    "1" * 5000,
    "0x1" + "p9999999",
]


@pytest.mark.parametrize("source", ERRORS, ids=lambda source: ascii(source)[:20])
def test_text_that_is_not_a_literal_is_an_error(source):
    with pytest.raises(errors.TemplateSyntaxError):
        template.parse(f"<<{source}>>")


@given(st.text())
def test_a_quoted_string_has_the_value_that_was_quoted(text):
    assert literals.string(quoting.quote(text)) == text
