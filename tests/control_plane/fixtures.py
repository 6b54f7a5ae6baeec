"""Fixtures for whoever needs a real control plane: `from tests.control_plane.fixtures import *`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.control_plane import build, plane

__all__ = ["control_plane", "programs"]


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> build.Programs:
    """The programs; what is missing is built first, which takes minutes and is told."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        return build.find()


@pytest.fixture(scope="session")
def control_plane(
    programs: build.Programs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[plane.ControlPlane]:
    """One control plane for the whole run: leave it as you found it."""
    with plane.running(tmp_path_factory.mktemp("control-plane"), programs) as running:
        yield running
