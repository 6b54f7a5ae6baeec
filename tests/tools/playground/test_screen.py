from __future__ import annotations

import contextlib
import io
import os
import pty
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from tests.tools.playground import sample_view
from tools.playground import drawing, screen
from tools.playground.view import Event


@contextlib.contextmanager
def terminal(columns: int, lines: int) -> Iterator[tuple[TextIO, int]]:
    """Yield both ends of a pseudo-terminal: the program's, and the one that shows its output."""
    display, program = pty.openpty()
    termios.tcsetwinsize(program, (lines, columns))
    attributes = termios.tcgetattr(program)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(program, termios.TCSANOW, attributes)
    try:
        with os.fdopen(program, "w", encoding="utf-8") as stream:
            yield stream, display
    finally:
        os.close(display)


def read(display: int, until: str = "\x1b[?2026l") -> str:
    output = b""
    while not output.endswith(until.encode()):
        output += os.read(display, 65536)
    return output.decode()


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
    ids=["colour", "NO_COLOR"],
)
def test_terminal_is_redrawn_in_place(environ: dict[str, str], *, coloured: bool) -> None:
    view = sample_view.view()
    with terminal(100, 30) as (stream, display):
        output = screen.choose(stream, environ)
        output.show(view)
        first = read(display)
        output.show(view)
        second = read(display)

    body = drawing.frame(view, width=100, height=30, colour=coloured)
    frame = "\r\n".join(f"\x1b[K{line}" for line in body)
    assert first == f"\x1b[?2026h\x1b[H\x1b[2J{frame}\x1b[?2026l"
    assert second == f"\x1b[?2026h\x1b[H{frame}\x1b[?2026l"
    assert ("\x1b[36m" in first) == coloured


def test_terminal_is_erased_after_a_change_of_its_size() -> None:
    with terminal(100, 30) as (stream, display):
        output = screen.choose(stream, {"TERM": "xterm"})
        output.show(sample_view.view())
        read(display)
        termios.tcsetwinsize(stream.fileno(), (24, 80))
        output.show(sample_view.view())

        assert "\x1b[2J" in read(display)


@pytest.mark.parametrize("term", [{}, {"TERM": "dumb"}], ids=["none", "dumb"])
def test_dumb_terminal_gets_a_log(term: dict[str, str]) -> None:
    with terminal(100, 30) as (stream, _):
        assert isinstance(screen.choose(stream, term), screen.Log)


def test_log_prints_the_commands_and_a_line_every_five_seconds() -> None:
    stream = io.StringIO()
    output = screen.choose(stream, {"TERM": "xterm"})
    for second in (4, 5, 6, 10, 11):
        output.show(sample_view.view_at(second, events=()))

    commands, _, lines = stream.getvalue().strip("\n").partition("\n\n")
    assert commands.splitlines() == drawing.commands(sample_view.view())
    assert [line[:5] for line in lines.splitlines()] == ["00:04", "00:10"]


def test_log_prints_each_event_once_and_each_change_at_once() -> None:
    stream = io.StringIO()
    output = screen.choose(stream, {})
    event = Event(seconds=64, text="scaled to 5")
    output.show(sample_view.view_at(63, events=()))
    stream.truncate(0)
    output.show(sample_view.view_at(64, events=(event,)))
    output.show(sample_view.view_at(65, events=(event,)))

    assert stream.getvalue().strip("\0").splitlines() == [
        "01:04  scaled to 5",
        "01:04  load 120 %  duty_cycle_current 100.0/20  replicas 5 (1 ready)",
    ]


def test_last_frame_remains_after_the_end() -> None:
    with terminal(100, 30) as (stream, display):
        with screen.choose(stream, {"TERM": "xterm", "NO_COLOR": "1"}) as output:
            output.show(sample_view.view())
            read(display)
        frame = drawing.frame(sample_view.view(), width=100, height=30, colour=False)
        rest = read(display, until=f"{frame[-1]}\n")

    assert rest == "\x1b[?25h\x1b[?1049l" + "".join(f"{line}\n" for line in frame)
