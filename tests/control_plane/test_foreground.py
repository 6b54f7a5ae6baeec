from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = """\
import sys, time
from tests.control_plane import foreground

with foreground.program(stopped=7):
    try:
        print("up", flush=True)
        {body}
    finally:
        print("ending", flush=True)
        sys.stdin.read()  # until the test has said all that it has to say
        print("ended", flush=True)
"""


@pytest.fixture(autouse=True)
def _hangups_arrive() -> Iterator[None]:
    """Also where the tests themselves run under nohup, whose children ignore SIGHUP as it does."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


@contextlib.contextmanager
def running(body: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-c", PROGRAM.format(body=body)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_told_to_stop_it_ends_in_order_however_often_it_is_told(number: signal.Signals) -> None:
    with running("time.sleep(60)") as process:
        process.send_signal(number)
        assert process.stdout.readline() == "ending\n"
        for again in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(again)
        told, complaints = process.communicate(timeout=20)

    assert (told, complaints, process.returncode) == ("ended\n", "", 7)


def test_under_nohup_a_closed_terminal_does_not_end_it() -> None:
    with running("sys.stdin.read()", "nohup") as process:
        process.send_signal(signal.SIGHUP)
        told, _ = process.communicate(timeout=20)

    assert (told, process.returncode) == ("ending\nended\n", 0)


def test_failure_is_told_without_a_traceback() -> None:
    with running("raise TimeoutError('not within 3 s: it is ready')") as process:
        _, complaints = process.communicate(timeout=20)

    assert (complaints, process.returncode) == ("not within 3 s: it is ready\n", 1)
