from __future__ import annotations

import pytest

from rules import template


@pytest.mark.parametrize(
    "source",
    [
        "",
        "<<.M>>",
        "<<- .M ->>",
        "<<$.M>>",
        "<<if .S>><<.M>><<else>><<$.M>><<end>>",
        "<<range .L>><<.>><<$.M>><<end>>",
        "<<with .S>><<.>><<else>><<.M>><<end>>",
        '<<define "x">><<.>><<end>><<template "x" .S>>',
        "<<$x := .S>><<$x>>",
        '<<.S | printf "%s">>',
        "<<.L | len>>",
    ],
)
def test_fields_that_are_written_out(source):
    assert template.parse(source).reads(("M",)) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("<<if .M>><<end>>", [(".M", None, 5)]),
        ("<<.S>><<len .M>>", [(".M", None, 12)]),
        ("<<.M | len>>", [(".M", None, 2)]),
        ("<<$x := .M>>", [(".M", None, 8)]),
        ("<<len (print .M)>>", [(".M", None, 13)]),
        ("<<(print .M).x>>", [(".M", None, 9)]),
        ("<<.M.x>>", [(".M.x", None, 2)]),
        ('<<index .M "k">>', [(".M", "k", 8)]),
        ('<<if eq (index .M "k") "v">><<end>>', [(".M", None, 15)]),
        ('<<index .M.x "k">>', [(".M.x", None, 8)]),
        ('<<index .M "k" | len>>', [(".M", None, 8)]),
        ('<<$x := index .M "k">>', [(".M", None, 14)]),
        ('<<print (index .M "k")>>', [(".M", None, 15)]),
        ("<<index .M .S>>", [(".M", None, 8)]),
        ("<<range .M>><<else>><<end>>", [(".M", None, 8)]),
        ("<<with .S>><<else with .M>><<end>>", [(".M", None, 23)]),
        ("<<.>>", [(".", None, 2)]),
        ("<<print $>>", [("$", None, 8)]),
        ("<<with .>><<.M>><<end>>", [(".", None, 7)]),
        ('<<define "x">><<len .M>><<end>><<template "x" .>>', [(".M", None, 20), (".", None, 46)]),
        ("<<$x := .>><<$x.M>>", [(".", None, 8), (".M", None, 13)]),
        ("<<range .L>><<len $.M>><<end>>", [(".M", None, 18)]),
    ],
)
def test_reads(source, found):
    reads = template.parse(source).reads(("M",))
    assert [(each.name, each.key, each.offset) for each in reads] == found
