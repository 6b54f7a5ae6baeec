"""Each walkthrough has its subject above it, and below it how long it took."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.cluster import server
from tests.control_plane.plane import ControlPlane
from tests.walkthroughs.story import tell


@pytest.fixture(scope="session")
def _installed(control_plane: ControlPlane) -> Iterator[None]:
    """Our manifests, once for all: a namespace takes its time to go."""
    with server.installed(control_plane):
        yield


@pytest.fixture(autouse=True)
def _chapter(
    request: pytest.FixtureRequest, control_plane: ControlPlane, _installed: None
) -> Iterator[None]:
    subject, *_ = request.module.__doc__.splitlines()
    tell(f"\n\n=== {subject} (Kubernetes {control_plane.programs.version})")
    began = time.monotonic()
    yield
    tell(f"=== {time.monotonic() - began:.0f} s")
