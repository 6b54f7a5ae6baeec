from __future__ import annotations

import pytest

from tests.playground.ink import Ink, cut, length, render

LINE = (Ink("load ", "strong"), Ink("15 %", "load"))


@pytest.mark.parametrize(
    ("width", "text"),
    [(20, "load 15 %"), (9, "load 15 %"), (8, "load 15…"), (3, "lo…"), (1, "…"), (0, "")],
)
def test_a_line_is_cut_where_it_does_not_fit(width: int, text: str) -> None:
    assert render(cut(LINE, width), colour=False) == text
    assert length(cut(LINE, width)) == len(text)


def test_a_style_ends_with_its_piece() -> None:
    line = (Ink("a", "strong"), Ink("b"), Ink("", "load"), Ink("c", "dim"))

    assert render(line, colour=True) == "\x1b[1ma\x1b[0mb\x1b[2mc\x1b[0m"


def test_without_colour_there_is_nothing_but_text() -> None:
    assert render(LINE, colour=False) == "load 15 %"
