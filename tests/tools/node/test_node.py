"""What a cluster leaves: nothing after its end, and nothing after SIGKILL and the next start.

`pytest -s` prints what there is before, while and after it runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapter.cli.local_prometheus import binary
from tools.control_plane import build
from tools.control_plane.daemon import Daemon
from tools.node import programs, runs
from tools.node.__main__ import check_machine
from tools.node.root import SYSCTLS
from tools.real.prometheus import wait_for

CACHE = binary.cache(os.environ)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("apt-get"), reason="needs root and Debian"
)


@dataclass(frozen=True, kw_only=True)
class Traces:
    """What a cluster could leave on the machine."""

    processes: frozenset[str]
    mounts: frozenset[str]
    links: frozenset[str]
    rules: frozenset[str]
    settings: frozenset[str]
    cgroups: frozenset[str]
    folders: frozenset[str]

    def __str__(self) -> str:
        return ", ".join(f"{len(value)} {name}" for name, value in vars(self).items())


def traces(namespaces: frozenset[str] = frozenset(), run: str = "none") -> Traces:
    """Return the processes in namespaces, and the cgroups and folders of a run.

    Mounts, links, rules and settings are those of the machine, outside of the run's namespaces.
    """
    nft = ("chroot", CACHE / programs.SUITE / "node-root", "nft", "list", "ruleset")
    return Traces(
        processes=frozenset(
            each.name for each in processes() if not namespaces.isdisjoint(of_process(each))
        ),
        mounts=lines(Path("/proc/self/mounts")),
        links=frozenset(each.name for each in Path("/sys/class/net").iterdir()),
        rules=frozenset(output(*nft).splitlines()),
        settings=frozenset(f"{name} {Path('/proc/sys', name).read_text()}" for name in SYSCTLS),
        cgroups=frozenset(map(str, runs.CGROUPS.rglob(run))),
        folders=frozenset(map(str, (CACHE / "runs").glob(run))),
    )


def processes() -> Iterator[Path]:
    return (each for each in Path("/proc").iterdir() if each.name.isdecimal())


def of_process(process: Path) -> Iterator[str]:
    """Yield the namespaces of a process; none if it has ended."""
    with contextlib.suppress(OSError):
        for kind in ("mnt", "net", "pid"):
            yield str((process / "ns" / kind).readlink())


def lines(path: Path) -> frozenset[str]:
    with contextlib.suppress(OSError):
        return frozenset(path.read_text().splitlines())
    return frozenset()


def output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Cluster:
    """`make cluster` without an adapter, with a pod; `before` is what the machine had."""

    def __init__(self, log: Path) -> None:
        with runs.running(CACHE / "runs") as (folder, _):
            programs.node_root(folder)  # has the program that lists rules
        self.before = traces()
        self.daemon = Daemon(
            "make cluster",
            [sys.executable, "-m", "tools.node", "--empty"],
            log,
            lambda: "is running" in log.read_text(),
            ready_timeout=600,
        )
        self.daemon.start()
        kubeconfig = re.findall(r"KUBECONFIG=(\S+)", log.read_text())[-1]
        self.run = Path(kubeconfig).parent.name
        self.namespaces = frozenset(
            each
            for process in processes()
            if any(self.run in line for line in lines(process / "cmdline"))
            for each in of_process(process)
        ) - frozenset(of_process(Path("/proc/self")))
        kubectl = (build.ensure_programs().kubectl, f"--kubeconfig={kubeconfig}")
        output(*kubectl, "run", "pod", "--image=busybox:local", "--image-pull-policy=Never")
        output(*kubectl, "wait", "--for=condition=Ready", "pod/pod", "--timeout=60s")

    def traces(self) -> Traces:
        return traces(self.namespaces, self.run)


@pytest.fixture
def cluster(real_servers, tmp_path: Path) -> Iterator[Cluster]:
    running = Cluster(tmp_path / "log")
    yield running
    running.daemon.kill()


@needs_root
def test_nothing_is_left_after_the_end(cluster):
    running = cluster.traces()

    started = time.monotonic()
    exit_status = cluster.daemon.stop()

    seconds = time.monotonic() - started
    after = cluster.traces()
    print(f"\nbefore:    {cluster.before}\nrunning:   {running}\nafter {seconds:.1f} s: {after}")
    assert exit_status == 0
    assert len(running.processes) > 8
    assert running.cgroups
    assert after == cluster.before


@needs_root
def test_the_next_start_removes_what_sigkill_left(cluster):
    cluster.daemon.kill()

    wait_for(lambda: not cluster.traces().processes, "its processes have ended")
    killed = cluster.traces()
    with runs.running(CACHE / "runs"):
        after = cluster.traces()
    print(f"\nbefore: {cluster.before}\nkilled: {killed}\nafter:  {after}")
    assert killed.folders
    assert after == cluster.before


@pytest.fixture
def hierarchies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of cgroups of version 2."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "cgroup.controllers").write_text("cpu memory\n")
    monkeypatch.setattr(runs, "CGROUPS", folder)
    return folder


def test_a_run_has_a_cgroup_of_version_2_with_all_controllers(hierarchies, tmp_path):
    with runs.running(tmp_path / "runs") as (folder, _):
        assert (hierarchies / folder.name).is_dir()
        assert (hierarchies / "cgroup.subtree_control").read_text() == "+cpu +memory"

    assert not (hierarchies / folder.name).exists()
    assert not folder.exists()


def test_a_start_keeps_the_folders_of_runs_that_go_on(hierarchies, tmp_path):
    with runs.running(tmp_path / "runs") as (first, _):
        (tmp_path / "runs" / "ended").mkdir()
        with runs.running(tmp_path / "runs") as (second, _):
            assert {each.name for each in (tmp_path / "runs").iterdir()} == {
                first.name,
                second.name,
            }


@pytest.mark.parametrize(("user", "message"), [(1000, "sudo"), (0, "needs apt-get, dpkg-deb")])
def test_it_says_what_it_needs(user: int, message: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setenv("PATH", "")

    with pytest.raises(RuntimeError, match=message):
        check_machine()
