"""printf: verbs, flags, widths, precisions and what does not fit; each case is Go 1.26's answer."""

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
    # text
    ("`%s|%5s|%-5s|%05s|%.1s` `ab` `ab` `ab` `ab` `éb`", "ab|   ab|ab   |000ab|é"),
    ('`%q %+q %#q %#q` `a"é` `é😀` `a` "`"', '"a\\"é" "\\u00e9\\U0001f600" `a` "`"'),
    ('`%q` "\\a\\x01\\x7f\\u200b\\xff"', '"\\a\\x01\\x7f\\u200b\\xff"'),
    ("`%x %X %# x %#X %.1x` `az` `az` `az` `az` `az`", "617a 617A 0x61 0x7a 0X617A 61"),
    ("`% x|%#x` `` ``", "|"),
    ("`%v %d %t` `s` `s` `s`", "s %!d(string=s) %!t(string=s)"),
    ("`%6x|%-6x|%06x` `a` `a` `a`", "    61|61    |000061"),
    # integers
    ("`%d %5d %-5d| %05d %+d % d` 42 42 42 42 42 42", "42    42 42   | 00042 +42  42"),
    (
        "`%x %X %#x %o %#o %O %b %#b` 42 42 42 42 42 42 42 42",
        "2a 2A 0x2a 52 052 0o52 101010 0b101010",
    ),
    ("`%05d %.3d %6.3d %.0d| %5.0d|%-05d|` -42 7 7 0 0 7", "-0042 007    007 |      |7    |"),
    ("`%#o %#.3o %#X` 0 8 255", "0 010 0XFF"),
    (
        "`%c %c %q %+q %q %U %#U %#U %.6U %q` 65 -1 'é' 'é' '\\'' 65 65 10 65 '\"'",
        "A \ufffd 'é' '\\u00e9' '\\'' U+0041 U+0041 'A' U+000A U+000041 '\"'",
    ),
    ("`%c%q%U` 0xD800 1114112 -1", "\ufffd'\ufffd'U+FFFFFFFFFFFFFFFF"),
    ("`%s %t %e` 7 7 7", "%!s(int=7) %!t(int=7) %!e(int=7)"),
    ("`%05z` 7", "%!z(int=00007)"),
    # booleans and nil
    ("`%t %v %5t %d` true false true true", "true false  true %!d(bool=true)"),
    ("`%v %d %5v %T` nil nil nil nil", "<nil> %!d(<nil>) <nil> <nil>"),
    # floats
    (
        "`%v %g %f %.1f %e %E %G %F` 1.5 1.5 1.5 1.25 1.5 1.5 1e20 2.0",
        "1.5 1.5 1.500000 1.2 1.500000e+00 1.500000E+00 1E+20 2.000000",
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
    (
        "`%x %X %.2x %.0x %.20x %x %x` 1.5 0.1 0.1 1.5 1.5 0.0 5e-324",
        (
            "0x1.8p+00 0X1.999999999999AP-04 0x1.9ap-04 0x1p+01 0x1.80000000000000000000p+00 "
            "0x0p+00 0x1p-1074"
        ),
    ),
    ("`%.0x %.1x` 1.0 1.99", "0x1p+00 0x1.0p+01"),
    ("`%b %b %b` 1.5 0.0 5e-324", "6755399441055744p-52 0p-1074 1p-1074"),
    (
        "`%#g %#.3g %#v %#.0f %#x %#e %#g %#b` 1.0 1.0 1.0 1.0 1.0 1.0 0.0 1.0",
        "1.00000 1.00 1 1. 0x1.0000p+00 1.000000e+00 0.00000 4503599627370496p-52",
    ),
    ("`%d %s` 1.5 1.5", "%!d(float64=1.5) %!s(float64=1.5)"),
    # complex
    ("`%v %.1f %d` 1i 1-2i 1i", "(0+1i) (1.0-2.0i) %!d(complex128=(0+1i))"),
    # lists, maps, the data
    (
        "`%v %s %q %d` .GroupBySlice .GroupBySlice .GroupBySlice .GroupBySlice",
        '[x y] [x y] ["x" "y"] [%!d(string=x) %!d(string=y)]',
    ),
    (
        "`%v %q %3s|` .LabelValuesByName .LabelValuesByName .LabelValuesByName",
        'map[app: pod:web] map["app":"" "pod":"web"] map[app:    pod:web]|',
    ),
    (
        "`%#v %#v` .GroupBySlice .LabelValuesByName",
        '[]string{"x", "y"} map[string]string{"app":"", "pod":"web"}',
    ),
    (
        "`%w %w %w` .GroupBySlice .LabelValuesByName `a`",
        "%!w([]string=[x y]) %!w(map[string]string=map[app: pod:web]) %!w(string=a)",
    ),
    (
        "`%+v` .",
        (
            "{Series:a_b LabelMatchers: LabelValuesByName:map[app: pod:web] "
            "GroupBy: GroupBySlice:[x y]}"
        ),
    ),
    (
        "`%#v` .",
        (
            'naming.queryTemplateArgs{Series:"a_b", LabelMatchers:"", '
            'LabelValuesByName:map[string]string{"app":"", "pod":"web"}, GroupBy:"", '
            'GroupBySlice:[]string{"x", "y"}}'
        ),
    ),
    # types and bytes
    (
        "`%T %T %T %T %T %T` 1 1.0 true `s` .GroupBySlice (index `a` 0)",
        "int float64 bool string []string uint8",
    ),
    (
        "`%v %#v %s %p` (index `a` 0) (index `a` 0) (index `a` 0) 1",
        "97 0x61 %!s(uint8=97) %!p(int=1)",
    ),
    # the format itself
    ("`100%% %5%`", "100% %"),
    ("`%`", "%!(NOVERB)"),
    ("`%5`", "%!(NOVERB)"),
    ("`%.` 5", "%!.(int=5)"),
    ("`%!` 5", "%!!(int=5)"),
    ("`%d %d` 1", "1 %!d(MISSING)"),
    ("`%d` 1 2 `a` nil", "1%!(EXTRA int=2, string=a, <nil>)"),
    ("`%*d|%-*d|%.*f|%*d` 4 7 4 7 2 3.14159 -4 7", "   7|7   |3.14|7   "),
    ("`%*d` `a` 7", "%!(BADWIDTH)7"),
    ("`%*d` 2000000 7", "%!(BADWIDTH)7"),
    ("`%.*d` -1 7", "%!(BADPREC)7"),
    ("`%.*d` true 7", "%!(BADPREC)7"),
    ("`%*`", "%!(BADWIDTH)%!(NOVERB)"),
    ("`%99999999d` 7", "%!(NOVERB)%!(EXTRA int=7)"),
    ("`%[2]d %[1]d` 1 2", "2 1"),
    ("`%[2]*[1]d` 7 4", "   7"),
    ("`%.[2]*[1]f` 3.14159 2", "3.14"),
    ("`%[3]d %[x]d %[` 1 2", "%!d(BADINDEX) %!d(BADINDEX) %!(NOVERB)"),
    ("`%[1]2d %[1].2d %[]d` 1", "%!d(BADINDEX) %!d(BADINDEX) %!d(BADINDEX)"),
    ("`%[0]d %[5d` 1", "%!d(BADINDEX) %!d(BADINDEX)"),
    ("`%.[1]5d` 1", "00001"),
    ("`é%s世` `ü`", "éü世"),
]


@pytest.mark.parametrize(("arguments", "output"), CASES, ids=str)
def test_printf_prints_as_in_go(arguments, output):
    assert template.parse(f"<<printf {arguments}>>").render(DATA) == output
