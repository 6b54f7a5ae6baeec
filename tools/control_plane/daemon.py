"""Background processes of the tests: start, readiness, stop."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path

from adapter.cli.local_prometheus.process import child_command

READY_TIMEOUT = 90.0
"""Seconds until a started process must be ready, on a machine that also does other work."""
STOP_TIMEOUT = 90.0
"""Seconds between SIGTERM and SIGKILL."""

# The kernel kills a child when the thread that started it ends (PR_SET_PDEATHSIG). This thread
# lives as long as the interpreter, so no process outlives the tests, however they end.
_STARTER = futures.ThreadPoolExecutor(max_workers=1)


class Daemon:
    """Process that can be stopped, killed and started again with the same command line."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        ready: Callable[[], bool],
        *,
        ready_timeout: float = READY_TIMEOUT,
    ) -> None:
        self.name = name
        self.log = log
        self.command = command
        self._ready = ready
        self._ready_timeout = ready_timeout
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id; the process must have been started."""
        assert self._process
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not exited."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises RuntimeError as `wait_ready`."""
        self.launch()
        self.wait_ready()

    def launch(self) -> None:
        """Start the process without waiting."""
        assert not self.running
        _STARTER.submit(self._launch).result()

    def wait_ready(self) -> None:
        """Wait until the process is ready.

        Raises RuntimeError with the end of the log when it exits or is not ready in time.
        """
        deadline = time.monotonic() + self._ready_timeout
        while not self._ready():
            if not self.running:
                raise RuntimeError(f"{self.name} exited before it was ready:\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{self.name} is not ready after {self._ready_timeout} s:\n{self.last_lines()}"
                )
            time.sleep(0.05)

    def stop(self) -> int:
        """Send SIGTERM, after STOP_TIMEOUT SIGKILL, and return the exit status.

        kube-apiserver uses the full timeout while any client has a watch open; `kill` is fast.
        """
        process = self._started_process()
        if process is None:
            return 0
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT)
        self.kill()
        status: int = process.returncode
        return status

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        if process := self._started_process():
            process.kill()
            process.wait()
            self._process = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the process not run within this context."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def last_lines(self, count: int = 20) -> str:
        """Return the last lines of the log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def _started_process(self) -> subprocess.Popen[bytes] | None:
        # Ctrl-C may have interrupted `launch` while the starter thread was still at work. The
        # thread runs one call at a time, so this waits for that call.
        _STARTER.submit(lambda: None).result()
        return self._process

    def _launch(self) -> None:
        command = child_command(*self.command)
        with self.log.open("ab") as log:
            # In its own session: Ctrl-C must reach only the parent, which stops the daemons in
            # the right order.
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True
            )


@contextlib.contextmanager
def running(
    name: str, command: Sequence[str | Path], log: Path, ready: Callable[[], bool]
) -> Iterator[Daemon]:
    """Run a process until the context ends; it is ready then. Raises RuntimeError."""
    daemon = Daemon(name, command, log, ready)
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.kill()
