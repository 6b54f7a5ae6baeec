from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
import time

import pytest

from adapter import errors, log_handler
from adapter.cli.commands import serve
from adapter.log_handler import LogHandler
from adapter.server.apimachinery import middleware
from tests.adapter import wired
from tools.real.prometheus import wait_for

START = re.compile(r"[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.<>]*:\d+\] ")
FORGED = "I0101 00:00:00.000000       1 server.py:9] all is well"


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def handler(stream) -> LogHandler:
    return LogHandler(stream)


@pytest.fixture
def log(handler):
    # Without a parent, pytest does not keep the messages: xdist cannot send lone surrogates.
    logger = logging.Logger("adapter.test_log_handler")  # noqa: LOG001 - no other test sees it
    logger.addHandler(handler)
    yield logger
    handler.close()


@pytest.mark.parametrize(
    ("character", "escaped"),
    [
        ("\n", r"\n"),
        ("\r", r"\r"),
        ("\t", r"\t"),
        ("\x1b", r"\x1b"),
        ("\x7f", r"\x7f"),
        ("\x9b", r"\x9b"),
        ("\u2028", r"\u2028"),
        ("\u2029", r"\u2029"),
        ("\u202e", r"\u202e"),
        ("\u2066", r"\u2066"),
        ("\ud800", r"\ud800"),
    ],
)
def test_control_characters_are_escaped(log, stream, character, escaped):
    log.warning("pod %s", f"a{character}{FORGED}")

    assert START.sub("", stream.getvalue(), count=1) == (f"pod a{escaped}{FORGED}\n")


def test_other_text_stays_as_it_is(log, stream):
    log.warning("größer: 'é' \\n %s", "日本 🚀")

    assert stream.getvalue().endswith("] größer: 'é' \\n 日本 🚀\n")


@pytest.mark.parametrize("text", ["x" * 400_000, "\x1b" * 400_000], ids=["text", "escapes"])
def test_a_long_message_is_cut(log, stream, text):
    log.warning("%s", text)

    assert len(stream.getvalue()) < 2_200
    assert "… (message of 400000 characters)\n" in stream.getvalue()


def test_a_traceback_stays_readable_and_forges_no_line(log, stream):
    log.error("failed", exc_info=ValueError(f"bad\n{FORGED}\x1b[2J"))

    first, *rest = stream.getvalue().splitlines()
    assert START.match(first)
    assert rest == ["  ValueError: bad", f"  {FORGED}\\x1b[2J"]


def test_the_end_of_a_long_traceback_is_kept(log, stream):
    log.error("failed", exc_info=ValueError("x" * 400_000 + "end"))

    assert len(stream.getvalue()) < 8_200
    assert stream.getvalue().endswith("xend\n")


def test_repeats_are_counted_when_their_minute_ends(stream):
    now = 1000.0
    handler = LogHandler(stream, monotonic=lambda: now)

    def emit(message: str, argument: object, level: int = logging.WARNING) -> None:
        record = logging.LogRecord("name", level, "", 0, message, (argument,), None)
        handler.handle(record)

    for number in range(100):
        emit("rejected %d", number)
        emit("another %d", 1) if number == 50 else None
    for number in range(100):
        emit("rejected %d", number, logging.DEBUG)
    lines = stream.getvalue().splitlines()
    assert len([line for line in lines if line[0] == "W" and "rejected" in line]) == 30
    assert len([line for line in lines if line[0] == "I" and "rejected" in line]) == 100
    assert len(lines) == 131

    now += 60.0
    emit("another %d", 2)
    assert [START.sub("", line) for line in stream.getvalue().splitlines()[131:]] == [
        "70 more messages like this one were not logged (-v=6 logs all): rejected 30",
        "another 2",
    ]
    emit("rejected %d", 7)
    assert stream.getvalue().endswith("rejected 7\n")


def test_repeats_are_counted_if_nothing_more_is_logged(log, handler, stream, monkeypatch):
    handler._monotonic = lambda: 0.0  # all messages are of one window
    monkeypatch.setattr(log_handler, "_WINDOW", 0.05)
    with handler.lock:  # the window ends later
        for number in range(32):
            log.warning("rejected %d", number)

    wait_for(lambda: "more messages" in stream.getvalue(), "the repeats are counted")
    assert stream.getvalue().endswith("2 more messages like this one were not logged "
                                      "(-v=6 logs all): rejected 30\n")  # fmt: skip


def test_repeats_are_counted_at_the_end(log, handler, stream):
    for number in range(40):
        log.warning("rejected %d", number)

    handler.close()

    assert "10 more messages" in stream.getvalue()


def test_the_number_of_kinds_is_bounded(log, handler):
    for number in range(5_000):
        log.warning(f"kind {number}")  # noqa: G004 - many formats

    assert len(handler._kinds) <= 1_000


def test_a_line_has_the_format_of_klog(log, stream):
    log.info("ready")

    assert re.fullmatch(
        r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_log_handler\.py:\d+\] ready\n", stream.getvalue()
    )


@pytest.mark.parametrize(
    ("level", "known"),
    [
        (logging.DEBUG, {"severity": "info", "v": 6}),
        (logging.INFO, {"severity": "info", "v": 0}),
        (logging.WARNING, {"severity": "warning"}),
        (logging.CRITICAL, {"severity": "error"}),
    ],
)
def test_a_line_of_json_has_the_keys_of_kubernetes(log, handler, stream, level, known):
    handler.setFormatter(log_handler.JsonFormatter())
    before = time.time() * 1000

    log.log(level, "pod %s", "é\n\u202e\ud800")

    line = json.loads(stream.getvalue())
    assert stream.getvalue().isascii()
    assert stream.getvalue().count("\n") == 1
    assert before - 1 <= line.pop("ts") <= time.time() * 1000 + 1
    assert re.fullmatch(r"test_log_handler\.py:\d+", line.pop("caller"))
    assert line == {"logger": log.name, "msg": "pod é\n\u202e\ud800", **known}


def test_a_long_message_and_its_traceback_are_cut_in_json_too(log, handler, stream):
    handler.setFormatter(log_handler.JsonFormatter())

    log.error("x" * 400_000, exc_info=ValueError("y" * 400_000 + "end"))

    line = json.loads(stream.getvalue())
    assert line["msg"].endswith("x… (message of 400000 characters)")
    assert line["stacktrace"].endswith("yend")
    assert len(stream.getvalue()) < 10_500


def test_debug_verbosity_logs_every_message(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    handlers = []
    monkeypatch.setattr(logging, "basicConfig", lambda **given: handlers.extend(given["handlers"]))

    serve.set_up_logging(logging.DEBUG)

    for _ in range(100):
        handlers[0].handle(logging.LogRecord("name", logging.ERROR, "", 0, "again", (), None))
    assert stream.getvalue().count("again") == 100


@pytest.mark.slow
async def test_a_thousand_failed_requests_write_some_tens_of_short_lines(stream):
    handler = LogHandler(stream)
    logger = logging.getLogger("adapter")
    logger.addHandler(handler)
    logger.propagate = False  # pytest keeps every record

    async def fail(request, head):
        raise errors.Broken(f"{head.info.path}\n{FORGED}" + "x" * 5_000)

    request = b"GET /apis/g/v/pods HTTP/1.1\r\nHost: x\r\n\r\n"
    try:
        async with wired.listening(middleware.serving(fail)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(10):
                writer.write(request * 100)
                for _ in range(100):
                    head = await reader.readuntil(b"\r\n\r\n")
                    assert b" 500 " in head
                    await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
            writer.close()
    finally:
        logger.removeHandler(handler)
        logger.propagate = True
        handler.close()

    lines = stream.getvalue().splitlines()
    assert len(lines) == 31
    assert all(START.match(line) and len(line) < 2_200 for line in lines)
    assert "970 more messages" in lines[-1]
