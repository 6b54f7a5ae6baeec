"""Log handler that escapes control characters, cuts long messages and limits repeated ones.

Log messages quote names in requests, and responses of Prometheus and the API server.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TextIO

from rules.quoting import escaped

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

DEBUG_VERBOSITY = 6
"""Value of --v from which on messages at debug level are logged, as requests are by client-go."""
_MAX_MESSAGE = 2_000
"""Maximum characters of a message; two quoted names and the text of Prometheus fit."""
_MAX_TRACEBACK = 8_000
"""Maximum characters of a traceback; its end, which has the exception, is kept."""
_MAX_REPEATS = 30
"""Messages of one kind, by logger, level and format, that are written in one window."""
_WINDOW = 60.0
_MAX_KINDS = 1_000
"""Kinds that are counted; the code has fewer than 100."""
_MAX_EXAMPLE = 200


class TextFormatter(logging.Formatter):
    """Formats a record as klog does, in one line, followed by the indented lines of a traceback.

    `W1122 06:32:11.204000       1 missing.py:95] message`: severity, date, time, process, place.
    """

    def __init__(self) -> None:
        super().__init__(datefmt="%m%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (of the base class)
        """Return the line; control characters are escaped, and a long message is cut."""
        moment = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs * 1000):06}"
        place = f"{record.filename}:{record.lineno}"
        message = _cut(record.message, escaped)
        return f"{_severity(record)[0].upper()}{moment} {record.process:7} {place}] {message}"

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 (of the base class)
        """Return the traceback; no line of it can look like that of another message."""
        text = _cut_traceback(super().formatException(ei))
        return "\n".join(f"  {escaped(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object in one line, with the keys of Kubernetes' components.

    `ts` is in Unix milliseconds. `v` is the verbosity from which on a message is logged; warnings
    and errors have none. `severity` and `stacktrace` are additions.

    https://kubernetes.io/docs/concepts/cluster-administration/system-logs/#json-log-format
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, which is ASCII; a long message is cut."""
        document: dict[str, object] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "logger": record.name,
            "severity": _severity(record),
            "msg": _cut(record.getMessage(), str),
        }
        if record.levelno <= logging.INFO:
            document["v"] = 0 if record.levelno == logging.INFO else DEBUG_VERBOSITY
        if record.exc_info:
            document["stacktrace"] = _cut_traceback(self.formatException(record.exc_info))
        return json.dumps(document)


def _severity(record: logging.LogRecord) -> str:
    """Return the severity of klog, which knows verbosity instead of a debug level."""
    if record.levelno >= logging.ERROR:
        return "error"
    return "warning" if record.levelno >= logging.WARNING else "info"


def _cut(message: str, escape: Callable[[str], str]) -> str:
    text = escape(message[:_MAX_MESSAGE])
    if max(len(message), len(text)) <= _MAX_MESSAGE:
        return text
    return f"{text[:_MAX_MESSAGE]}… (message of {len(message)} characters)"


def _cut_traceback(text: str) -> str:
    if len(text) <= _MAX_TRACEBACK:
        return text
    return f"({len(text) - _MAX_TRACEBACK} characters)…{text[-_MAX_TRACEBACK:]}"


@dataclass(slots=True)
class _Repeats:
    """Messages of one kind in the current window."""

    count: int = 0
    example: str = ""
    """The first message that was not written."""


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes records; of one kind 30 within 60 s, and then the number of further ones.

    With `limited=False`, writes all of them. Records at debug level are never limited.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        formatter: logging.Formatter | None = None,
        limited: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self.setFormatter(formatter or TextFormatter())
        self._limited = limited
        self._monotonic = monotonic
        self._window_end = 0.0
        self._kinds: dict[tuple[str, int, str], _Repeats] = {}
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, unless there were too many of its kind."""
        if not self._limited or record.levelno <= logging.DEBUG or self._admits(record):
            super().emit(record)

    def close(self) -> None:
        """Write the numbers of messages that were not written, and close the handler."""
        self._end_window()
        super().close()

    def _admits(self, record: logging.LogRecord) -> bool:
        now = self._monotonic()
        if now >= self._window_end or len(self._kinds) >= _MAX_KINDS:
            self._end_window()
            self._window_end = now + _WINDOW
        kind = (record.name, record.levelno, str(record.msg)[:_MAX_EXAMPLE])
        repeats = self._kinds.setdefault(kind, _Repeats())
        repeats.count += 1
        if repeats.count <= _MAX_REPEATS:
            return True
        if not repeats.example:
            repeats.example = record.getMessage()[:_MAX_EXAMPLE]
            self._end_window_later(self._window_end - now)
        return False

    def _end_window_later(self, seconds: float) -> None:
        """End the window also if nothing more is logged."""
        if self._timer is None:
            self._timer = threading.Timer(seconds, self._end_window)
            self._timer.daemon = True
            self._timer.start()

    def _end_window(self) -> None:
        self.acquire()
        try:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for (name, level, _), repeats in self._kinds.items():
                if repeats.count > _MAX_REPEATS:
                    message = "%d more messages like this one were not logged (-v=6 logs all): %s"
                    arguments = (repeats.count - _MAX_REPEATS, repeats.example)
                    super().emit(
                        logging.LogRecord(name, level, __file__, 0, message, arguments, None)
                    )
            self._kinds.clear()
            self._window_end = 0.0
        finally:
            self.release()
