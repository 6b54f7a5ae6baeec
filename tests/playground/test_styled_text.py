from __future__ import annotations

import pytest

from tests.playground.styled_text import Span, length, render, truncate

LINE = (Span("load ", "strong"), Span("15 %", "load"))


@pytest.mark.parametrize(
    ("width", "text"),
    [(20, "load 15 %"), (9, "load 15 %"), (8, "load 15…"), (3, "lo…"), (1, "…"), (0, "")],
)
def test_too_long_line_is_truncated_with_an_ellipsis(width: int, text: str) -> None:
    assert render(truncate(LINE, width), colour=False) == text
    assert length(truncate(LINE, width)) == len(text)


def test_style_is_reset_after_each_span() -> None:
    line = (Span("a", "strong"), Span("b"), Span("", "load"), Span("c", "dim"))

    assert render(line, colour=True) == "\x1b[1ma\x1b[0mb\x1b[2mc\x1b[0m"


def test_without_colour_only_the_text_is_rendered() -> None:
    assert render(LINE, colour=False) == "load 15 %"
