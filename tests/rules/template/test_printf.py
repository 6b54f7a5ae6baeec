"""printf: what the golden cases lack, and what differs from Go 1.26 on purpose.

The cases of templates.json have verbs, flags, widths, precisions and operands that do not fit.
"""

from __future__ import annotations

import pytest

from rules import template


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ("`%c%c` -1 1114112", "\ufffd\ufffd"),
        (
            "`%f %.1f %e %E %F` 1.5 1.25 1.5 1.5 2.0",
            "1.500000 1.2 1.500000e+00 1.500000E+00 2.000000",
        ),
        ("`%d` 1 2 `a` nil", "1%!(EXTRA int=2, string=a, <nil>)"),
    ],
)
def test_printf_prints_the_same_as_in_go(arguments, output):
    assert template.parse(f"<<printf {arguments}>>").render({}) == output


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
    assert template.parse(f"<<printf {arguments}>>").render({}) == output


def test_a_width_has_at_most_six_digits():
    output = template.parse("<<printf `%1000000d` 1>>").render({})

    assert output.startswith("%!0(int= ")
