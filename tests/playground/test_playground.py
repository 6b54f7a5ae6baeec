"""The playground: what it prints to try is tried, and the replicas move.

It runs as a process of its own, without a terminal, and ends as Ctrl-C ends it.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.real.prometheus import wait_for
from tests.walkthroughs.story import PATIENCE

COMMAND = re.compile(r" {3}\S.*? {2,}((?:export|kubectl) .*)")
"""A line that says what for, and what to type."""
REPLICAS = re.compile(r"bert-intent-detection .* (\d+) +\S+")
"""A line of `kubectl get hpa`."""


class Process:
    """A program whose lines are read as they come."""

    def __init__(self, command: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def end(self, number: signal.Signals) -> int:
        """Its status after this signal. Raises TimeoutExpired."""
        self.popen.send_signal(number)
        return self.popen.wait(PATIENCE)

    def close(self) -> None:
        """End it at once where it still runs; all that it said has been read then."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        assert self.popen.stdout
        self.popen.stdout.close()

    def _read(self) -> None:
        assert self.popen.stdout
        for line in self.popen.stdout:
            self.lines.append(line.rstrip("\n"))


@contextlib.contextmanager
def running(*command: str) -> Iterator[Process]:
    with contextlib.closing(Process(command)) as found:
        try:
            yield found
        finally:
            if found.popen.poll() is None:
                found.end(signal.SIGTERM)


def test_playground() -> None:
    with running(sys.executable, "-m", "tests.playground") as playground:
        wait_for(lambda: commands(playground), "it tells what to try", seconds=2 * PATIENCE)
        print("\n".join(playground.lines))
        enter, watch, ask, higher, none = commands(playground)
        folder = Path(re.search(r"KUBECONFIG=(\S+)", enter)[1]).parent
        with running("bash", "-c", f"{enter} && exec {watch}") as hpa:
            wait_for(lambda: scaled(hpa)[-1:] == [1], "one pod is enough", seconds=PATIENCE)
            (item,) = json.loads(shell(enter, ask))["items"]
            assert item["describedObject"]["name"].startswith("bert-intent-detection-")
            assert 10 <= float(item["value"]) <= 20

            shell(enter, higher)
            wait_for(lambda: scaled(hpa)[-1] >= 5, "there are more pods", seconds=PATIENCE)
            shell(enter, none)
            wait_for(lambda: " 0/20 " in hpa.lines[-1], "there is no load", seconds=PATIENCE)
            wait_for(lambda: scaled(hpa)[-1] == 1, "one pod is enough again", seconds=PATIENCE)
            print("\n".join(hpa.lines))
        assert running_in(folder)
        assert playground.end(signal.SIGINT) == 0

    told = "\n".join(playground.lines)
    print("\n".join(playground.lines[-8:]))
    assert re.search(
        r"^\d\d:\d\d  scaled to \d+: pods metric duty_cycle_current above", told, re.MULTILINE
    )
    assert "  load 15 % -> 120 %: 8 x bert-load\n" in told
    assert not folder.exists()
    assert not running_in(folder)


def commands(playground: Process) -> list[str]:
    """All of those that it prints, in order, or none."""
    assert playground.popen.poll() is None, "it ended"
    found = [match[1] for match in map(COMMAND.fullmatch, playground.lines) if match]
    return found if len(found) == 5 else []


def shell(*lines: str) -> str:
    """What one terminal shows. Raises CalledProcessError."""
    print(f"$ {lines[-1]}")
    done = subprocess.run(
        ["bash", "-c", " && ".join(lines)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


def scaled(hpa: Process) -> list[int]:
    """The replicas of each line so far, but for what repeats the one before."""
    counts = [int(match[1]) for match in map(REPLICAS.match, hpa.lines) if match]
    return [each for at, each in enumerate(counts) if not at or counts[at - 1] != each]


def running_in(folder: Path) -> list[str]:
    """The processes whose command lines name `folder`."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = each.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(folder) in line:
                found.append(line)
    return found
