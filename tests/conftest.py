"""Fixtures and markers for all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
from collections.abc import Iterator
from unittest import mock

import hypothesis
import pytest

from adapter.cli.commands import presets_detect
from adapter.cli.doctor import autoscalers, backend, checks, client, registration, report
from adapter.server.api import explain
from adapter.server.causes import collector, evidence
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
hypothesis.settings.register_profile("dev", _COMMON, max_examples=10)
hypothesis.settings.register_profile("ci", _COMMON, max_examples=100, derandomize=True)
# The comparison of shared queries tries 15 times as many: 20 250.
hypothesis.settings.register_profile("thorough", _COMMON, max_examples=1350)
hypothesis.settings.load_profile("dev")

SLOWEST = (
    "tools/playground/test_playground.py",
    "tools/faults/test_autoscalers.py",
    "tools/faults/test_faults.py",
    "tools/replay/",
    "adapter/server/app/",
    "tools/cluster/",
    "manifests/",
    "rules/query/test_scope_property.py",
    "golden/test_golden.py",
    "test_packaging.py",
    "adapter/cli/test_program.py",
    "adapter/clients/test_fuzz.py",
)
"""Parts of paths of the files that take longest, from 100 s to 20 s, the longest first."""

NIGHTLY = ("tools/backends/", "tools/bench/", "tools/node/")
"""Folders whose tests with real servers run at night: they prove other servers and programs."""

_start = Daemon.start
_NO_ROOTS = {"SSL_CERT_FILE": os.devnull}
"""No certificates in a default TLS context: reading those of the machine takes 40 ms each time."""
_COMMANDS = "tests/adapter/cli/"
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


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let causes, explanations, doctor and detect wait for all answers on a busy machine."""
    for module in (collector, evidence, explain, checks, report, presets_detect):
        monkeypatch.setattr(module, "_TIMEOUT", 60.0)
    for name in ("_ANSWER_TIMEOUT", "_SHORT_TIMEOUT"):
        monkeypatch.setattr(explain, name, 60.0)
    for name in ("_DIAL_TIMEOUT", "_TITLE_TIMEOUT"):
        monkeypatch.setattr(registration, name, 60.0)
    for name in ("_EXPLAIN_SECONDS", "_SECONDS"):
        monkeypatch.setattr(autoscalers, name, 60.0)
    monkeypatch.setattr(backend, "_PODS_SECONDS", 60.0)
    monkeypatch.setattr(client, "_METRIC_TIMEOUT", 60.0)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect without garbage collections: what is allocated lives until the end of the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "real_servers" in getattr(item, "fixturenames", ()):
            item.add_marker("real")
            if any(each in item.nodeid for each in NIGHTLY):
                item.add_marker("nightly")
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, bool]:
    """Return when a test runs: slow ones first, so that fast ones fill the gaps at the end."""
    place = next((i for i, each in enumerate(SLOWEST) if each in item.nodeid), len(SLOWEST))
    return place, item.get_closest_marker("real") is None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Measure no coverage in slow and real tests, nor in those with random examples.

    Measured tests take up to three times as long, and the others hold the gates. Real tests of
    commands are measured: commands have few others. Only real tests trust the certificates of the
    machine: they may download programs.
    """
    is_real = item.get_closest_marker("real") is not None
    with contextlib.ExitStack() as stack:
        if not is_real:
            stack.enter_context(mock.patch.dict(os.environ, _NO_ROOTS))
        if is_real or any(map(item.get_closest_marker, ("slow", "hypothesis"))):
            stack.enter_context(_unmeasured(programs_only=_COMMANDS in item.nodeid))
        return (yield)


@contextlib.contextmanager
def _unmeasured(*, programs_only: bool) -> Iterator[None]:
    """Measure no coverage here, or only none of the programs that are started."""
    traces = sys.gettrace(), threading.gettrace()
    programs = {name: os.environ.pop(name) for name in _COVERAGE & os.environ.keys()}
    if not programs_only:
        sys.settrace(None)
        threading.settrace(None)
    try:
        yield
    finally:
        os.environ.update(programs)
        threading.settrace(traces[1])
        sys.settrace(traces[0])


def pytest_runtest_setup(item: pytest.Item) -> None:
    Daemon.start = _start if item.get_closest_marker("real") else _refuse_to_start


def _refuse_to_start(daemon: Daemon) -> None:
    pytest.fail(f"the test starts {daemon.name} without the fixture real_servers", pytrace=False)
