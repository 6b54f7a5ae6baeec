"""The cluster of $KUBECONFIG, else one on this machine, and what was measured in it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator

import pytest

from tools.control_plane.daemon import Daemon
from tools.e2e import installation
from tools.e2e.installation import Cluster

_LINES: list[str] = []
_KUBECONFIG = re.compile(r"^ *export KUBECONFIG=(\S+)", re.MULTILINE)
_START_TIMEOUT = 1800.0
"""Seconds: the first start builds programs and images."""


@pytest.fixture(scope="session")
def _kubeconfig(real_servers: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set $KUBECONFIG; unless it is set, start a cluster of one node, which needs root."""
    if "KUBECONFIG" in os.environ:
        yield
        return
    log = tmp_path_factory.mktemp("node") / "log"
    node = Daemon(
        "tools.node",
        (sys.executable, "-m", "tools.node", "--empty"),
        log,
        lambda: bool(_KUBECONFIG.search(log.read_text())),
        ready_timeout=_START_TIMEOUT,
    )
    try:
        node.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", _KUBECONFIG.findall(log.read_text())[-1])
            yield
    finally:
        node.stop()


@pytest.fixture(scope="session")
def cluster(_kubeconfig: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Cluster with Prometheus, simulated GPUs, a Deployment and its HPA."""
    with installation.running(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[Cluster]:
    """Cluster with the chart of this repository, whose metric the HPA has."""
    cluster.install()
    cluster.settled()
    cluster.wait(cluster.has_metric, "the HPA has its metric")
    yield cluster
    cluster.uninstall()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Print a figure at once and again at the end of the run."""

    def say(figure: object) -> None:
        line = f"{request.node.name.removeprefix('test_')}: {figure}"
        _LINES.append(line)
        print(f"\n{line}", flush=True)

    return say


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print all figures."""
    if _LINES:
        terminalreporter.section("figures")
        for line in _LINES:
            terminalreporter.write_line(line)
