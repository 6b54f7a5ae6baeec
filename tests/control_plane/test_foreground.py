from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = """\
import signal, sys, time
from tests.control_plane import foreground

with foreground.program(stopped=7):
    try:
        print("up", flush=True)
        {body}
    finally:
        print("ending", flush=True)
        time.sleep(0.3)
        print("ended", flush=True)
"""


@contextlib.contextmanager
def running(body: str, *before: str) -> Iterator[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-c", PROGRAM.format(body=body)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
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
    with running("time.sleep(0.5)", "nohup") as process:
        process.send_signal(signal.SIGHUP)
        told, _ = process.communicate(timeout=20)

    assert (told, process.returncode) == ("ending\nended\n", 0)


def test_failure_is_told_without_a_traceback() -> None:
    with running("raise TimeoutError('not within 3 s: it is ready')") as process:
        _, complaints = process.communicate(timeout=20)

    assert (complaints, process.returncode) == ("not within 3 s: it is ready\n", 1)
