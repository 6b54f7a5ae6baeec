from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.control_plane.daemon import Daemon, free_ports
from tests.real.prometheus import wait_for


def sleeper(folder: Path, script: str = "echo up; exec sleep 60") -> Daemon:
    log = folder / "sleeper.log"
    return Daemon("sleeper", ["sh", "-c", script], log, lambda: "up" in log.read_text())


def test_it_is_started_and_ended_again_and_again(tmp_path):
    daemon = sleeper(tmp_path)
    for end in (daemon.stop, daemon.kill):
        daemon.start()
        pid = daemon.pid
        end()

        assert not daemon.running
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_stop_tells_how_it_ended(tmp_path):
    daemon = sleeper(tmp_path, "trap 'exit 3' TERM; echo up; while :; do sleep 0.01; done")
    daemon.start()

    assert daemon.stop() == 3
    assert daemon.stop() == 0


def test_end_at_the_start_is_told_with_its_last_words(tmp_path):
    daemon = sleeper(tmp_path, "echo no such flag >&2; exit 2")

    with pytest.raises(RuntimeError, match="sleeper ended:\nno such flag"):
        daemon.start()


def test_frozen_one_can_be_killed(tmp_path):
    daemon = sleeper(tmp_path)
    daemon.start()
    daemon.freeze()
    state = Path(f"/proc/{daemon.pid}/stat")
    wait_for(lambda: state.read_text().split()[2] == "T", "it stands still")
    daemon.thaw()
    wait_for(lambda: state.read_text().split()[2] == "S", "it goes on")
    daemon.freeze()

    daemon.kill()

    assert not daemon.running


def test_nothing_outlives_whoever_started_it(tmp_path):
    script = (
        "import pathlib, sys, time\n"
        "from tests.control_plane import test_daemon\n"
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

    wait_for(lambda: not alive(pid), "it ends")


def alive(pid: int) -> bool:
    try:
        # Nobody may be there to reap it.
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def test_ports_are_free_and_no_clients(tmp_path):
    ports = free_ports(3)

    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 3
    for port in ports:
        assert port < first_of_clients
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
