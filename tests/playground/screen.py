"""Where the playground is shown: in place on a terminal, or a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Protocol, Self, TextIO

from tests.playground import chart, drawing
from tests.playground.view import View

SECONDS_BETWEEN = 5.0
"""From a line to the next, if nothing changes."""

# https://invisible-island.net/xterm/ctlseqs/ctlseqs.html: the other screen, the cursor, and whole
# frames (2026) where the terminal knows them.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
_HOME, _REST, _ALL = "\x1b[H", "\x1b[K", "\x1b[2J"

_PLAIN = str.maketrans(f"{chart.BLOCKS}{chart.BEYOND}{chart.GAP}▏╌…", " _,:=+*#@^.|-~")
"""For a terminal of another encoding, on which a chart would be question marks of one height."""


class Screen(Protocol):
    def show(self, view: View) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def choose(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Screen:
    """What suits `stream`. https://no-color.org"""
    if stream.isatty() and environ.get("TERM", "dumb") != "dumb":
        return Terminal(stream, colour=not environ.get("NO_COLOR"))
    return Log(stream)


class Terminal:
    """Leaves on the terminal's own screen what was there, and the last frame below it."""

    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self._stream = stream
        self._colour = colour
        self._size = os.terminal_size((0, 0))
        self._last: list[str] = []

    def show(self, view: View) -> None:
        size = os.get_terminal_size(self._stream.fileno())
        if not (size.columns and size.lines):
            size = os.terminal_size((80, 24))
        lines = drawing.frame(view, width=size.columns, height=size.lines, colour=self._colour)
        # A line that the terminal breaks would lose its last character to what erases its rest.
        clear = _ALL if size != self._size else ""
        body = "\r\n".join(_REST + line for line in lines)
        self._write(f"{_BEGIN}{_HOME}{clear}{body}{_END}")
        self._size, self._last = size, lines

    def __enter__(self) -> Self:
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the terminal itself may be gone
            self._write(_LEAVE)
            self._write("".join(f"{line}\n" for line in self._last))

    def _write(self, text: str) -> None:
        _write(self._stream, text)


class Log:
    """A line each few seconds and at each change, and the events."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._due = 0.0
        self._state: tuple[object, ...] = ()
        self._events = 0

    def show(self, view: View) -> None:
        if not self._state:
            self._say("", *drawing.commands(view), "")
        self._say(*(drawing.event(each) for each in view.events[self._events :]))
        self._events = len(view.events)
        now = view.now
        state = (now.load, now.wanted, now.ready, now.value is None, view.autoscaler is None)
        if state != self._state or now.seconds >= self._due:
            self._say(drawing.line(view))
            self._due = now.seconds + SECONDS_BETWEEN
        self._state = state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _say(self, *lines: str) -> None:
        _write(self._stream, "".join(f"{line}\n" for line in lines))


def _write(stream: TextIO, text: str) -> None:
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_PLAIN)
    stream.write(text)
    stream.flush()
