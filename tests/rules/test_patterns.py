from __future__ import annotations

import pytest

from rules import patterns
from rules.errors import PatternError


def expanded(matches: str, template: str, text: str) -> str:
    pattern = patterns.compile(matches)
    match = pattern.search(text)
    assert match
    return patterns.expansion(template, pattern).of(match)


@pytest.mark.parametrize(
    ("matches", "text", "groups"),
    [
        pytest.param("requests", "http_requests_total", ("requests",), id="search-is-unanchored"),
        pytest.param("^requests", "http_requests", None, id="anchored-by-itself"),
        pytest.param("b$", "ab\n", None, id="dollar-is-the-very-end"),
        pytest.param("(a)|(b)", "b", ("b", None, "b"), id="group-that-does-not-participate"),
        pytest.param("(é)(.)", "世é世界", ("é世", "é", "世"), id="offsets-are-characters"),
        pytest.param(r"(?i)K", "k", ("k",), id="flags"),
        pytest.param(r"\B", "aéb", None, id="no-boundary-inside-a-character"),
        pytest.param(r"\B.*", "aé b", (" b",), id="match-after-such-a-place"),
        pytest.param(r"\\C", r"\C", (r"\C",), id="escaped-backslash-before-C"),
        pytest.param(r"\Q\C(\E(.)", r"\C(x", (r"\C(x", "x"), id="quoted-C"),
        pytest.param(r"\Qa(", "a(", ("a(",), id="quoted-to-the-end"),
        pytest.param(r"[]([:alpha:]\](]+(b)", "(]b", ("(]b", "b"), id="classes-hold-no-groups"),
        pytest.param("a{1000}", "a" * 1000, ("a" * 1000,), id="longest-repetition"),
        pytest.param("a\x00b", "a\x00b", ("a\x00b",), id="nul"),
        pytest.param("a.", "a\ud800", ("a\ud800",), id="invalid-unicode"),
    ],
)
def test_search_matches_as_in_go(matches, text, groups):
    assert patterns.compile(matches).search(text) == groups


@pytest.mark.parametrize(
    ("matches", "names"),
    [
        ("a(?:b)", ()),
        ("(a)(?P<x>b)(?<y>c)", ("", "x", "y")),
        ("(?P<x>a)|(?P<x>b)", ("x", "x")),
        (r"\((a)[(]\Q(\E(?i:b)(?P<z_1>c)", ("", "z_1")),
    ],
)
def test_groups_are_named_in_order(matches, names):
    pattern = patterns.compile(matches)

    assert pattern.names == names
    assert pattern.regexp.groups == len(names)


@pytest.mark.parametrize(
    ("matches", "reason"),
    [
        ("(?:é", "missing ): (?:é"),
        ("a(?=b)", "(?="),
        (r"(a)\1", r"\1"),
        (r"a\C", r"invalid escape sequence: \C"),
        (r"[\C]", r"invalid escape sequence: \C"),
        (r"\Qa\E\C", r"invalid escape sequence: \C"),
        ("(?P<é>b)", "invalid named capture group: (?P<é>"),
        ("(?<x-y>b)", "invalid named capture group"),
        ("a{1001}", "1001"),
        ("a**", "**"),
        ("[z-a]", "z-a"),
        ("\\", "\\"),
    ],
)
def test_pattern_that_go_refuses_is_refused_with_the_reason(matches, reason, capfd):
    with pytest.raises(PatternError) as raised:
        patterns.compile(matches)

    assert reason in str(raised.value).replace("\\\\", "\\")
    assert repr(matches) in str(raised.value)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("matches", [".{1000}" * 100, r"\pL{1000}"], ids=["any", "letters"])
def test_large_pattern_that_go_accepts_is_accepted(matches):
    assert not patterns.compile(matches).search("a")


def test_memory_for_a_pattern_is_bounded():
    with pytest.raises(PatternError, match="pattern too large"):
        patterns.compile(r"\pL{1000}" * 10)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("$0", "http_requests_total"),
        ("${1}_per_second", "http_per_second"),
        ("$1x", ""),
        ("${1}x", "httpx"),
        ("$2-$first", "requests-http"),
        ("${first}$second_", "http"),
        ("$$1", "$1"),
        ("$$$1", "$http"),
        ("$", "$"),
        ("a$ b", "a$ b"),
        ("${", "${"),
        ("${}", "${}"),
        ("${1", "${1"),
        ("${1 }", "${1 }"),
        ("${$1}", "${http}"),
        ("$4|$99", "|"),
        ("$999999999|$12345678901", "|"),
        ("$01|${00}", "|"),
        ("$é|$世|${nope}", "||"),
        ("$²", "$²"),
        (r"\1\n", r"\1\n"),
        ("", ""),
    ],
)
def test_expansion_follows_go(template, text):
    matches = "^(?P<first>[a-z]+)_(?P<second>[a-z]+)_(total)$"

    assert expanded(matches, template, "http_requests_total") == text


def test_reference_to_several_groups_takes_the_first_that_matched():
    assert expanded("(?P<x>a)?(?P<x>b)?", "[$x][$1][$2]", "b") == "[b][][b]"
    assert expanded("(?P<x>a)?(?P<x>b)?", "[$x][$1][$2]", "ab") == "[a][a][b]"


def test_digits_are_a_group_name_only_if_they_are_not_a_group_number():
    matches = "(a)(?P<1>b)(?P<01>c)(?P<1234567890>d)"

    assert expanded(matches, "$1-$01-$1234567890", "abcd") == "a-c-d"


@pytest.mark.parametrize(("depth", "accepted"), [(1000, True), (1001, False), (100_000, False)])
def test_groups_nest_as_deep_as_in_go(depth, accepted):
    text = "(" * depth + "a" + ")" * depth

    if accepted:
        assert patterns.compile(text).search("a")
    else:
        with pytest.raises(PatternError, match="nests too deeply"):
            patterns.compile(text)
