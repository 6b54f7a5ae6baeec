"""Compare answers of `make run LOAD=gpu` with nvidia-smi, while a load on the GPU takes steps.

    python -m tools.gpu [--pytorch PYTHON]

Needs an NVIDIA GPU, and PyTorch for the interpreter PYTHON. Prints the means of both for each step,
and fails if a mean differs by more than a limit.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools import quantity
from tools.certificates import INSECURE
from tools.control_plane.daemon import free_ports

_STEPS = ((0.0, 1), (0.25, 10), (0.5, 40), (0.75, 80), (1.0, 100), (0.5, 20), (0.0, 1))
"""Share of the time in which the GPU is busy, and GiB in use."""
_SETTLE_SECONDS = 8.0
"""From a scrape to an answer pass up to three seconds; the driver averages over one."""
_SAMPLES = 20
_INTERVAL = 1.0
_START_SECONDS = 120.0
_METRICS: Mapping[str, tuple[str, float, float]] = {
    "duty_cycle_current": ("utilization.gpu", 1, 3),
    "memory_used_bytes_current": ("memory.used", 1 << 20, 64),
    "temperature_celsius_current": ("temperature.gpu", 1, 2),
    "power_usage_milliwatts_current": ("power.draw", 1000, 25),
}
"""Metric -> column of nvidia-smi, its unit, and the largest difference of two means in that unit.

Both read at different moments of the same second."""


def main() -> int:
    """Print the table; return 1 if a mean differs by more than its limit."""
    parser = argparse.ArgumentParser(prog="python -m tools.gpu", description=main.__doc__)
    parser.add_argument("--pytorch", default="python3", help="interpreter that has PyTorch")
    arguments = parser.parse_args()
    (port,) = free_ports(1)
    problems = 0
    with _running(sys.executable, "-m", "adapter", "demo", "--load=gpu", f"--secure-port={port}"):
        _wait_ready(lambda: _answer(port, "duty_cycle_current"))
        program = Path(__file__).with_name("load.py")
        with _running(arguments.pytorch, str(program)) as load:
            assert load.stdin is not None
            print("  busy   GiB  " + "".join(f"{name:>34}" for name in _METRICS))
            for share, gibibytes in _STEPS:
                load.stdin.write(f"{share} {gibibytes}\n".encode())
                load.stdin.flush()
                time.sleep(_SETTLE_SECONDS)
                problems += _step(port, f"{share:>6.0%} {gibibytes:>5}  ")
    print(f"{problems} means differ too much" if problems else "all means agree")
    return 1 if problems else 0


def _step(port: int, title: str) -> int:
    """Print the means of one step; return how many differ too much."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in _METRICS}
    for _ in range(_SAMPLES):
        theirs = _nvidia_smi()
        for name, (_column, unit, _limit) in _METRICS.items():
            seen[name].append((_answer(port, name) / unit, theirs[name]))
        time.sleep(_INTERVAL)
    problems = 0
    cells = []
    for name, pairs in seen.items():
        ours, theirs_mean = (statistics.mean(column) for column in zip(*pairs, strict=True))
        too_far = abs(ours - theirs_mean) > _METRICS[name][2]
        problems += too_far
        cells.append(f"{ours:>16.1f} |{theirs_mean:>12.1f} {'!' if too_far else ' '}  ")
    print(title + "".join(f"{cell:>34}" for cell in cells), flush=True)
    return problems


def _nvidia_smi() -> Mapping[str, float]:
    columns = ",".join(column for column, _unit, _limit in _METRICS.values())
    line = subprocess.run(
        ["nvidia-smi", "--id=0", f"--query-gpu={columns}", "--format=csv,noheader,nounits"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return dict(zip(_METRICS, map(float, line.split(",")), strict=True))


def _answer(port: int, metric: str) -> float:
    """Return the value of the pod of the first GPU. Raises URLError."""
    path = f"/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/{metric}"
    with urllib.request.urlopen(f"https://127.0.0.1:{port}{path}", context=INSECURE) as response:
        return float(quantity.parse(json.load(response)["items"][0]["value"]))


def _wait_ready(answer: Callable[[], float]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            answer()
        except (urllib.error.URLError, KeyError, IndexError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no value after {_START_SECONDS:.0f} s") from error
            time.sleep(0.5)
        else:
            return


@contextlib.contextmanager
def _running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the context ends; it ends with its input or by SIGTERM."""
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
