"""Files, flags and processes that the benchmarks and the attacks share, and their measurements.

A process writes its port, or its result, into the folder.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from certs.issue import issue_temporary
from tools.certificates import Holder
from tools.control_plane import daemon
from tools.control_plane.foreground import Steps
from tools.real import prometheus as real

progress = Steps(sys.stderr)
"""Prints what is done next on standard error."""
_CPUCLOCK_SCHED = 2
"""CPUCLOCK_SCHED of include/linux/posix-timers_types.h."""


def certificates(folder: Path) -> Holder:
    """Write the request-header CA and a serving certificate; return the front proxy's one."""
    now = dt.datetime.now(dt.UTC)
    proxy_ca = Holder("front-proxy-ca", ca=True, now=now)
    usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    (folder / "proxy-ca.crt").write_bytes(proxy_ca.pem)
    serving = issue_temporary(("127.0.0.1",), now=now)
    (folder / "tls.crt").write_bytes(serving.chain_pem)
    (folder / "tls.key").write_bytes(serving.key_pem)
    return Holder("front-proxy-client", proxy_ca, usages=usages, now=now)


def flags(folder: Path, prometheus: str, port: int) -> Sequence[str]:
    """Return the adapter's flags: those of the Deployment."""
    return (
        f"--prometheus-url={prometheus}",
        "--preset=gpu-dcgm",
        f"--lister-kubeconfig={folder / 'kubeconfig'}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    )


def trust(folder: Path) -> dict[str, str]:
    """Return the data of extension-apiserver-authentication for these certificates."""
    return {
        "requestheader-client-ca-file": (folder / "proxy-ca.crt").read_text(),
        "requestheader-allowed-names": '["front-proxy-client"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-uid-headers": '["X-Remote-Uid"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }


def write_result(folder: Path, name: str, number: int) -> None:
    """Write the port or the result of this process, for `read_result`."""
    partial = folder / f"{name}.partial"
    partial.write_text(str(number))
    partial.rename(folder / f"{name}.result")


def read_result(folder: Path, name: str) -> int:
    """Wait for the port or the result of a process, and return it."""
    file = folder / f"{name}.result"
    real.wait_for(file.exists, f"the process {name} has a result")
    return int(file.read_text())


@contextlib.contextmanager
def start_python(folder: Path, *arguments: str) -> Iterator[int]:
    """Run a Python process until the context ends; its value is the process id."""
    command = (sys.executable, *arguments)
    with daemon.running("python", command, folder / "log", lambda: True) as process:
        yield process.pid


def mebibytes(pid: int, field: str) -> float:
    """Return a size in /proc/PID/status, such as VmRSS, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid: int) -> float:
    """Return the user plus system time of a process, in nanoseconds' resolution.

    /proc/PID/stat has a resolution of 10 ms only. The clock is that of clock_getcpuclockid(3).
    """
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)


def own_time(pid: int) -> float:
    """Return a time in seconds that passes only for a process.

    It stands still while the main thread is ready to run, but a busy machine runs others.
    """
    delayed = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    return time.monotonic() - delayed / 1e9
