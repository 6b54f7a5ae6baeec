"""What the golden cases of expand.json lack: messages, limits, and names of groups."""

from __future__ import annotations

import pytest

from rules import patterns
from rules.errors import PatternError


@pytest.mark.parametrize(
    ("matches", "text", "groups"),
    [
        pytest.param(r"\B", "aéb", None, id="no-boundary-inside-a-character"),
        pytest.param(r"\B.*", "aé b", (" b",), id="match-after-such-a-place"),
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
        (r"a\C", r"invalid escape sequence: \C"),
        (r"\Qa\E\C", r"invalid escape sequence: \C"),
        ("(?P<é>b)", "invalid named capture group: (?P<é>"),
    ],
)
def test_pattern_that_go_refuses_is_refused_with_the_reason(matches, reason, capfd):
    with pytest.raises(PatternError) as raised:
        patterns.compile(matches)

    assert reason in str(raised.value).replace("\\\\", "\\")
    assert repr(matches) in str(raised.value)
    assert capfd.readouterr().err == ""


@pytest.mark.slow
@pytest.mark.parametrize("matches", [".{1000}" * 100, r"\pL{1000}"], ids=["any", "letters"])
def test_large_pattern_that_go_accepts_is_accepted(matches):
    assert not patterns.compile(matches).search("a")


@pytest.mark.slow
def test_memory_for_a_pattern_is_bounded():
    with pytest.raises(PatternError, match="pattern too large"):
        patterns.compile(r"\pL{1000}" * 10)


@pytest.mark.parametrize(("depth", "accepted"), [(1000, True), (1001, False), (100_000, False)])
def test_groups_nest_as_deep_as_in_go(depth, accepted):
    text = "(" * depth + "a" + ")" * depth

    if accepted:
        assert patterns.compile(text).search("a")
    else:
        with pytest.raises(PatternError, match="nests too deeply"):
            patterns.compile(text)
