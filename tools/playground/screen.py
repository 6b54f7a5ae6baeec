"""Output of the playground: redrawn in place on a terminal, else one line at each change."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Self, TextIO

from tools.playground import drawing
from tools.playground.view import View

LOG_INTERVAL = 5.0
"""Seconds between two lines of a log if nothing changes."""

# https://invisible-island.net/xterm/ctlseqs/ctlseqs.html: alternate screen, cursor, and
# synchronised output (mode 2026) for terminals that support it.
_ENTER = "\x1b[?1049h\x1b[?25l"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_BEGIN_FRAME, _END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
_HOME, _ERASE_LINE, _ERASE_ALL = "\x1b[H", "\x1b[K", "\x1b[2J"


def choose(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Terminal | Log:
    """Return the output that `stream` supports. Follows https://no-color.org."""
    if stream.isatty() and environ.get("TERM", "dumb") != "dumb":
        return Terminal(stream, colour=not environ.get("NO_COLOR"))
    return Log(stream)


class Terminal:
    """Draws frames on the alternate screen; on exit, prints the last frame on the normal one."""

    def __init__(self, stream: TextIO, *, colour: bool) -> None:
        self._stream = stream
        self._colour = colour
        self._size = os.terminal_size((0, 0))
        self._last: list[str] = []

    def show(self, view: View) -> None:
        """Draw a frame over the one before."""
        size = os.get_terminal_size(self._stream.fileno())
        if not (size.columns and size.lines):
            size = os.terminal_size((80, 24))
        lines = drawing.frame(view, width=size.columns, height=size.lines, colour=self._colour)
        erase = _ERASE_ALL if size != self._size else ""
        # Erase before the text, not after it: after a line of full width the cursor is still on
        # its last character, and erasing would delete that.
        body = "\r\n".join(_ERASE_LINE + line for line in lines)
        self._write(f"{_BEGIN_FRAME}{_HOME}{erase}{body}{_END_FRAME}")
        self._size, self._last = size, lines

    def __enter__(self) -> Self:
        self._write(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # the terminal may have been closed
            self._write(_LEAVE)
            self._write("".join(f"{line}\n" for line in self._last))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Log:
    """Prints the commands, then the events, and a line at each change and every LOG_INTERVAL."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next_line = 0.0
        self._state: tuple[object, ...] = ()
        self._events = 0

    def show(self, view: View) -> None:
        """Print new events, and a line if it is due."""
        if not self._state:
            self._print("", *drawing.commands(view), "")
        self._print(*(drawing.event(each) for each in view.events[self._events :]))
        self._events = len(view.events)
        now = view.now
        state = (now.load, now.desired, now.ready, now.value is None, view.autoscaler is None)
        if state != self._state or now.seconds >= self._next_line:
            self._print(drawing.line(view))
            self._next_line = now.seconds + LOG_INTERVAL
        self._state = state

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def _print(self, *lines: str) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
