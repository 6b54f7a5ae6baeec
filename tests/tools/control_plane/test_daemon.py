from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.control_plane.daemon import Daemon
from tools.real.prometheus import wait_for
from tools.waiting import has_ended


def sleeper(folder: Path, script: str = "echo up; exec sleep 600") -> Daemon:
    log = folder / "sleeper.log"
    return Daemon("sleeper", ["sh", "-c", script], log, lambda: "up" in log.read_text())


@pytest.mark.usefixtures("real_servers")
def test_exit_before_readiness_raises_with_the_end_of_the_log(tmp_path):
    daemon = sleeper(tmp_path, "echo no such flag >&2; exit 2")

    with pytest.raises(RuntimeError, match="sleeper exited before it was ready:\nno such flag"):
        daemon.start()


@pytest.mark.usefixtures("real_servers")
def test_no_process_outlives_the_interpreter_that_started_it(tmp_path):
    script = (
        "import pathlib, sys, time\n"
        "from tests.tools.control_plane import test_daemon\n"
        "daemon = test_daemon.sleeper(pathlib.Path(sys.argv[1]))\n"
        "daemon.start()\n"
        "print(daemon.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)

    wait_for(lambda: has_ended(pid), "the process has exited")


def test_daemon_is_not_started_without_the_fixture_that_permits_it(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"starts sleeper without .* real_servers"):
        sleeper(tmp_path).start()
