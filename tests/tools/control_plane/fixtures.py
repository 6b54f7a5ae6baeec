"""Session fixtures that give tests a real control plane; tests/conftest.py loads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.control_plane import build, plane


@pytest.fixture(scope="session")
def programs(real_servers: None, request: pytest.FixtureRequest) -> build.Programs:
    """Programs of the control plane; builds missing ones, which takes minutes."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    # Shows the progress of the build even though pytest captures stderr.
    with capture.global_and_fixture_disabled():
        return build.ensure_programs()


@pytest.fixture(scope="session")
def reader(programs: build.Programs) -> Path:
    """Program that reads metrics with the Go clients of Kubernetes."""
    return build.ensure_reader(programs.version)


@pytest.fixture(scope="session")
def control_plane(
    programs: build.Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[plane.ControlPlane]:
    """One control plane for the whole run; each test must remove the objects it creates."""
    with plane.running(tmp_path_factory.mktemp("control-plane"), programs) as running:
        yield running
