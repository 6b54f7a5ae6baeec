from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tools.control_plane.daemon import Daemon, free_ports
from tools.real.prometheus import wait_for


def sleeper(folder: Path, script: str = "echo up; exec sleep 60") -> Daemon:
    log = folder / "sleeper.log"
    return Daemon("sleeper", ["sh", "-c", script], log, lambda: "up" in log.read_text())


@pytest.mark.usefixtures("real_servers")
def test_process_can_be_started_again_after_stop_and_kill(tmp_path):
    daemon = sleeper(tmp_path)
    for end in (daemon.stop, daemon.kill):
        daemon.start()
        pid = daemon.pid
        end()

        assert not daemon.running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.usefixtures("real_servers")
def test_stop_returns_the_exit_status(tmp_path):
    daemon = sleeper(tmp_path, "trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done")
    daemon.start()

    assert daemon.stop() == 3
    assert daemon.stop() == 0


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
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True
    ) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)

    wait_for(lambda: not alive(pid), "the process has exited")


def alive(pid: int) -> bool:
    try:
        # A zombie counts as dead: in a container there may be no init process to reap it.
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_daemon_is_not_started_without_the_fixture_that_permits_it(tmp_path):
    with pytest.raises(pytest.fail.Exception, match=r"starts sleeper without .* real_servers"):
        sleeper(tmp_path).start()


def test_free_ports_are_free_and_outside_the_ephemeral_range(tmp_path):
    ports = free_ports(3)

    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 3
    for port in ports:
        assert port < first_ephemeral
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", port))
