"""Fixtures and markers for all tests."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator

import hypothesis
import pytest

from tools.control_plane.daemon import Daemon
from tools.real import prometheus
from tools.real.prometheus import Prometheus

pytest_plugins = ("tests.tools.control_plane.fixtures",)

# `--hypothesis-profile=NAME` chooses another one; `make test` chooses `ci`, which tries the same
# examples in each run, so that a change does not fail for what an earlier one did. At night, new
# ones are tried.
_COMMON = hypothesis.settings(
    deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.register_profile("dev", _COMMON, max_examples=25)
hypothesis.settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
# The comparison of shared queries tries 15 times as many: 20 250.
hypothesis.settings.register_profile("thorough", _COMMON, max_examples=1350)
hypothesis.settings.load_profile("dev")

_start = Daemon.start
_COVERAGE = {"COVERAGE_PROCESS_CONFIG", "COVERAGE_PROCESS_START"}
"""Variables with which Python traces the programs that tests start."""


@pytest.fixture(scope="session")
def real_servers() -> None:
    """Permit a test to start servers and programs; marks each test that uses it as `real`."""


@pytest.fixture(scope="module")
def empty_prometheus(
    real_servers: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """Real Prometheus without samples; one for each file, so that files use the same names."""
    with prometheus.run(tmp_path_factory.mktemp("prometheus")) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "real_servers" in getattr(item, "fixturenames", ()):
            item.add_marker("real")
    # Slow files first: with several workers the fast ones then fill the gaps at the end.
    items.sort(key=lambda item: item.get_closest_marker("real") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Do not trace tests that are `real`: the others hold the gates of coverage."""
    if item.get_closest_marker("real") is None:
        return (yield)
    traces = sys.gettrace(), threading.gettrace()
    programs = {name: os.environ.pop(name) for name in _COVERAGE & os.environ.keys()}
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        os.environ.update(programs)
        threading.settrace(traces[1])
        sys.settrace(traces[0])


def pytest_runtest_setup(item: pytest.Item) -> None:
    Daemon.start = _start if item.get_closest_marker("real") else _refuse_to_start


def _refuse_to_start(daemon: Daemon) -> None:
    pytest.fail(f"the test starts {daemon.name} without the fixture real_servers", pytrace=False)
