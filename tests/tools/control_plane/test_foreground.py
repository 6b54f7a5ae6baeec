from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = """\
import sys, time
from tools.control_plane import foreground

with foreground.program(signal_status=7):
    try:
        print("up", flush=True)
        {body}
    finally:
        print("cleaning up", flush=True)
        sys.stdin.read()  # until the test has sent all its signals
        print("done", flush=True)
"""


@pytest.fixture(autouse=True)
def _default_sighup() -> Iterator[None]:
    """Do not ignore SIGHUP even if pytest runs under nohup; child processes inherit that."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


@contextlib.contextmanager
def running(body: str, *wrapper: str) -> Iterator[subprocess.Popen[str]]:
    command = [*wrapper, sys.executable, "-c", PROGRAM.format(body=body)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_starts_the_cleanup_and_later_ones_are_ignored(number: signal.Signals) -> None:
    with running("time.sleep(600)") as process:
        process.send_signal(number)
        assert process.stdout.readline() == "cleaning up\n"
        for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process.send_signal(later)
        stdout, stderr = process.communicate(timeout=90)

    assert (stdout, stderr, process.returncode) == ("done\n", "", 7)


def test_under_nohup_a_closed_terminal_does_not_end_the_program() -> None:
    with running("sys.stdin.read()", "nohup") as process:
        process.send_signal(signal.SIGHUP)
        stdout, _ = process.communicate(timeout=90)

    assert (stdout, process.returncode) == ("cleaning up\ndone\n", 0)


def test_error_is_printed_without_a_traceback() -> None:
    with running("raise TimeoutError('timed out after 3 s')") as process:
        _, stderr = process.communicate(timeout=90)

    assert (stderr, process.returncode) == ("timed out after 3 s\n", 1)
