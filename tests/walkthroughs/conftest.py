"""Prints the subject of each walkthrough before it, and its duration after it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tools.cluster import server
from tools.cluster.walkthrough import echo
from tools.control_plane.plane import ControlPlane
from tools.hpa import proposals


@pytest.fixture(scope="session")
def _installed(control_plane: ControlPlane) -> Iterator[None]:
    """Install the adapter's manifests once: the deletion of a namespace takes long."""
    with server.installed(control_plane):
        yield


@pytest.fixture(autouse=True)
def _heading(
    request: pytest.FixtureRequest, control_plane: ControlPlane, _installed: None
) -> Iterator[None]:
    subject, *_ = request.module.__doc__.splitlines()
    echo(f"\n\n=== {subject} (Kubernetes {control_plane.programs.version})")
    started = time.monotonic()
    yield
    echo(f"=== {time.monotonic() - started:.0f} s")


@pytest.fixture(autouse=True)
def _proposals(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    _heading: None,
) -> Iterator[None]:
    """Compare the series of proposed replicas with the controller's, if it lasts long enough."""
    if request.node.name == "test_replacement":
        yield  # two processes listen on one port, and each gets a part of the requests
        return
    with proposals.recording(control_plane) as record:
        yield
    result = record.result(sync=2)
    echo(f"proposed replicas: {result}")
    if result.wrong:
        pytest.fail("\n".join(result.wrong), pytrace=False)  # an assertion would cut them off
