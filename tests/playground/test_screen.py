from __future__ import annotations

import contextlib
import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from tests.playground import drawing, sample, screen
from tests.playground.view import Event


@contextlib.contextmanager
def terminal(columns: int, lines: int) -> Iterator[tuple[TextIO, int]]:
    """Our side of a terminal of this size, and the other one."""
    other, ours = pty.openpty()
    termios.tcsetwinsize(ours, (lines, columns))
    attributes = termios.tcgetattr(ours)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(ours, termios.TCSANOW, attributes)
    try:
        with os.fdopen(ours, "w", encoding="utf-8") as stream:
            yield stream, other
    finally:
        os.close(other)


def read(other: int, until: str = "\x1b[?2026l") -> str:
    found = b""
    while not found.endswith(until.encode()):
        found += os.read(other, 65536)
    return found.decode()


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
    ids=["colour", "NO_COLOR"],
)
def test_a_terminal_is_redrawn_in_place(environ: dict[str, str], *, coloured: bool) -> None:
    view = sample.view()
    with terminal(100, 30) as (stream, other):
        shown = screen.choose(stream, environ)
        shown.show(view)
        first = read(other)
        shown.show(view)
        second = read(other)

    body = drawing.frame(view, width=100, height=30, colour=coloured)
    frame = "\r\n".join(f"\x1b[K{line}" for line in body)
    assert first == f"\x1b[?2026h\x1b[H\x1b[2J{frame}\x1b[?2026l"
    assert second == f"\x1b[?2026h\x1b[H{frame}\x1b[?2026l"
    assert ("\x1b[36m" in first) == coloured


def test_a_terminal_of_another_size_is_cleared_first() -> None:
    with terminal(100, 30) as (stream, other):
        shown = screen.choose(stream, {"TERM": "xterm"})
        shown.show(sample.view())
        read(other)
        termios.tcsetwinsize(stream.fileno(), (24, 80))
        shown.show(sample.view())

        assert "\x1b[2J" in read(other)


def test_a_terminal_of_another_encoding_gets_the_same_in_its_own_characters() -> None:
    with terminal(100, 30) as (stream, other):
        stream.reconfigure(encoding="ascii", errors="replace")
        screen.choose(stream, {"TERM": "xterm", "NO_COLOR": "1"}).show(sample.view())
        text = read(other)

    drawn = text.replace("\x1b[?2026", "")
    assert "?" not in drawn
    assert "^^" in drawn
    assert "@@" in drawn


@pytest.mark.parametrize("term", [{}, {"TERM": "dumb"}], ids=["none", "dumb"])
def test_a_terminal_that_cannot_move_gets_lines(term: dict[str, str]) -> None:
    with terminal(100, 30) as (stream, _):
        assert isinstance(screen.choose(stream, term), screen.Log)


def test_a_log_gets_the_commands_and_then_a_line_at_each_change_or_after_a_while() -> None:
    stream = io.StringIO()
    shown = screen.choose(stream, {"TERM": "xterm"})
    for second in (4, 5, 6, 10, 11):
        shown.show(sample.after(second, events=()))

    commands, _, lines = stream.getvalue().strip("\n").partition("\n\n")
    assert commands.splitlines() == drawing.commands(sample.view())
    assert [line[:5] for line in lines.splitlines()] == ["00:04", "00:10"]


def test_a_log_tells_each_event_once_and_each_change_at_once() -> None:
    stream = io.StringIO()
    shown = screen.choose(stream, {})
    event = Event(seconds=64, text="scaled to 5")
    shown.show(sample.after(63, events=()))
    stream.truncate(0)
    shown.show(sample.after(64, events=(event,)))
    shown.show(sample.after(65, events=(event,)))

    assert stream.getvalue().strip("\0").splitlines() == [
        "01:04  scaled to 5",
        "01:04  load 120 %  duty_cycle_current 100.0/20  replicas 5 (1 ready)",
    ]


def test_what_was_seen_last_stays_when_it_ends() -> None:
    with terminal(100, 30) as (stream, other):
        with screen.choose(stream, {"TERM": "xterm", "NO_COLOR": "1"}) as shown:
            shown.show(sample.view())
            read(other)
        frame = drawing.frame(sample.view(), width=100, height=30, colour=False)
        left = read(other, until=f"{frame[-1]}\n")

    assert left == "\x1b[?25h\x1b[?1049l" + "".join(f"{line}\n" for line in frame)
