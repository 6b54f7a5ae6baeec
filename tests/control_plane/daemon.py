"""One program that runs until it is told to stop, with a log, on ports that nobody else takes."""

from __future__ import annotations

import contextlib
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent import futures
from pathlib import Path

from adapter.demo import child

READY_WITHIN = 90.0
"""Seconds that a start may take on a machine with other work."""
STOP_WITHIN = 15.0

# A child dies with the thread that started it (PR_SET_PDEATHSIG), and this one lives as long as
# the interpreter: whatever ends the tests leaves no process behind.
_STARTER = futures.ThreadPoolExecutor(max_workers=1)


class Daemon:
    """A program that can be stopped, killed, frozen and started again, always the same way."""

    def __init__(
        self, name: str, command: Sequence[str | Path], log: Path, ready: Callable[[], bool]
    ) -> None:
        self.name = name
        self.log = log
        self.command = command
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it without waiting."""
        assert not self.running
        _STARTER.submit(self._launch).result()

    def wait(self) -> None:
        """Wait until it is ready. Raises RuntimeError with its last words where it is not."""
        until = time.monotonic() + READY_WITHIN
        while not self._ready():
            if not self.running:
                raise RuntimeError(f"{self.name} ended:\n{self.last_lines()}")
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{self.name} is not ready after {READY_WITHIN} s:\n{self.last_lines()}"
                )
            time.sleep(0.05)

    def stop(self) -> int:
        """Ask it to end, as an upgrade does; insist after STOP_WITHIN. Gives its exit status.

        An API server takes all of that while anybody watches something; `kill` is quick.
        """
        process = self._launched()
        if process is None:
            return 0
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_WITHIN)
        self.kill()
        status: int = process.returncode
        return status

    def kill(self) -> None:
        """End it at once, as a lost machine does; frozen or not."""
        if process := self._launched():
            process.kill()
            process.wait()
            self._process = None

    def freeze(self) -> None:
        """Keep its sockets open, and answer nothing."""
        assert self._process
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process
        self._process.send_signal(signal.SIGCONT)

    def last_lines(self, count: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def _launched(self) -> subprocess.Popen[bytes] | None:
        """The process, also where Ctrl-C left `launch` before it was there."""
        _STARTER.submit(lambda: None).result()  # one after the other, so this waits for it
        return self._process

    def _launch(self) -> None:
        command = child.command(*self.command)
        with self.log.open("ab") as log:
            # In a session of its own: Ctrl-C is for us to pass on, in order.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free, and stay so while their daemon is down.

    They lie below those that the kernel gives to clients: a client that tries again and again to
    reach a stopped server on one of these would in the end connect to itself.
    """
    found: list[int] = []
    with contextlib.ExitStack() as taken:
        while len(found) < count:
            port = random.randrange(20000, 32000)
            with contextlib.suppress(OSError):
                taken.enter_context(socket.socket()).bind(("127.0.0.1", port))
                found.append(port)
    return found
