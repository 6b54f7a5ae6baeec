from __future__ import annotations

import pytest

from rules.quoting import escaped, listed, quote, shorten_middle


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("web-0 é 世 😀", '"web-0 é 世 😀"'),
        ('a"b\\c', r'"a\"b\\c"'),
        ("\a\b\f\n\r\t\v", r'"\a\b\f\n\r\t\v"'),
        ("\x00\x1b\x7f", r'"\x00\x1b\x7f"'),
        ("\udcff", r'"\xff"'),
        ("\u00a0\u200b\ufeff", r'"\u00a0\u200b\ufeff"'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
    ids=ascii,
)
def test_text_is_quoted_as_in_go(text, quoted):
    assert quote(text) == quoted


def test_what_is_not_printable_is_escaped():
    hostile = "ä\x1b[2J\u202e\u2028\ud800\n"
    assert escaped(hostile) == r"ä\x1b[2J\u202e\u2028\ud800\n"
    assert escaped(hostile, keep="\n") == r"ä\x1b[2J\u202e\u2028\ud800" + "\n"


def test_three_names_are_listed_and_the_others_counted():
    assert listed([]) == ""
    assert listed("abc") == "a, b, c"
    assert listed("abcdefgh") == "a, b, c and 5 more"
    assert listed("abcd", "pod") == "a, b, c and 1 more pod"
    assert listed("abc", "pod", count=8) == "a, b, c and 5 more pods"


def test_the_end_of_a_shortened_sentence_stays():
    assert shorten_middle("short", 5) == "short"
    assert shorten_middle("0123456789 Do it", 11) == "01234…Do it"
