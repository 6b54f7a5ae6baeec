"""printf: verbs, flags, widths, precisions and operands that do not fit, as in Go 1.26."""

from __future__ import annotations

import pytest

from rules import template

DATA = {
    "Series": "a_b",
    "LabelMatchers": "",
    "LabelValuesByName": {"pod": "web", "app": ""},
    "GroupBy": "",
    "GroupBySlice": ["x", "y"],
}

CASES = [
    # strings
    ("`%s|%5s|%-5s|%05s|%.1s` `ab` `ab` `ab` `ab` `éb`", "ab|   ab|ab   |000ab|é"),
    ('`%q %.1q` `a"é` `ab`', '"a\\"é" "a"'),
    ('`%q` "\\a\\x01\\x7f\\u200b"', '"\\a\\x01\\x7f\\u200b"'),
    ("`%x %X %.1x|%6x` `az` `az` `az` `a`", "617a 617A 61|    61"),
    ("`%v %d %t` `s` `s` `s`", "s %!d(string=s) %!t(string=s)"),
    # ints
    ("`%d %5d %-5d| %05d %+d % d` 42 42 42 42 42 42", "42    42 42   | 00042 +42  42"),
    ("`%x %X %o %b %c` 42 42 42 42 'é'", "2a 2A 52 101010 é"),
    ("`%05d %-05d| %+v` -42 7 7", "-0042 7    | 7"),
    ("`%c%c` -1 1114112", "\ufffd\ufffd"),
    ("`%05z` 7", "%!z(int=00007)"),
    ("`%s %t %e` 7 7 7", "%!s(int=7) %!t(int=7) %!e(int=7)"),
    # bools and nil
    ("`%t %v %5t %d` true false true true", "true false  true %!d(bool=true)"),
    ("`%v %d %6v` nil nil nil", "<nil> %!d(<nil>)  <nil>"),
    # floats
    (
        "`%v %g %f %.1f %e %E %F` 1.5 1.5 1.5 1.25 1.5 1.5 2.0",
        "1.5 1.5 1.500000 1.2 1.500000e+00 1.500000E+00 2.000000",
    ),
    (
        "`%v %v %v %v %v %v %v` 1e6 100000.0 1234567.0 0.0001 0.00001 1e-7 1e100",
        "1e+06 100000 1.234567e+06 0.0001 1e-05 1e-07 1e+100",
    ),
    (
        "`%v %g %.3g %.3g %.10g` 0.0 -0.0 1234.5 0.00012345 100000.0",
        "0 -0 1.23e+03 0.000123 100000",
    ),
    (
        "`%8.2f|%-8.2f|%08.2f|%+.1f|% .1f|%08.2f|%+08.1f` 3.14159 3.14159 3.14159 1.0 1.0 -1.5 1.5",
        "    3.14|3.14    |00003.14|+1.0| 1.0|-0001.50|+00001.5",
    ),
    ("`%d %s` 1.5 1.5", "%!d(float64=1.5) %!s(float64=1.5)"),
    # lists, maps, all data
    (
        "`%v %s %q %d` .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice",
        '[x y] [x y] ["x" "y"] [%!d(string=x) %!d(string=y)]',
    ),
    (
        "`%v %q %3s|` .LabelValuesByName .LabelValuesByName .LabelValuesByName",
        'map[app: pod:web] map["app":"" "pod":"web"] map[app:    pod:web]|',
    ),
    ("`%v` .", "{a_b  map[app: pod:web]  [x y]}"),
    # the format itself
    ("`100%% %5%`", "100% %"),
    ("`%`", "%!(NOVERB)"),
    ("`%5`", "%!(NOVERB)"),
    ("`%!` 5", "%!!(int=5)"),
    ("`%d %d` 1", "1 %!d(MISSING)"),
    ("`%d` 1 2 `a` nil", "1%!(EXTRA int=2, string=a, <nil>)"),
    ("`%[2]d %[1]d` 1 2", "2 1"),
    ("`%5[2]d|%s` 1 2", "    2|%!s(MISSING)"),
    ("`%[3]d %[0]d` 1 2", "%!d(BADINDEX) %!d(BADINDEX)"),
    ("`é%s世` `ü`", "éü世"),
]


@pytest.mark.parametrize(("arguments", "output"), CASES, ids=str)
def test_printf_prints_the_same_as_in_go(arguments, output):
    assert template.parse(f"<<printf {arguments}>>").render(DATA) == output


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("`%#x` 1", "%!#(int=1)x"),
        ("`%.3d` 1", "%!d(int=1)"),
        ("`%*d` 4 1", "%!*(int=4)d%!(EXTRA int=1)"),
        ("`%T` 1", "%!T(int=1)"),
    ],
)
def test_an_unsupported_directive_is_visible(arguments, output):
    assert template.parse(f"<<printf {arguments}>>").render(DATA) == output


def test_a_width_has_at_most_six_digits():
    output = template.parse("<<printf `%1000000d` 1>>").render(DATA)

    assert output.startswith("%!0(int= ")
