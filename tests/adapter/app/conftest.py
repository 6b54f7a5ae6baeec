"""A fake Prometheus that records requests, and the service account of a pod."""

from __future__ import annotations

import pytest

from tests.adapter.app.credentials import CA, EMPTY
from tests.fakes import prometheus as fakes


@pytest.fixture
async def fake(serve):
    """A Prometheus that accepts every request and records them."""
    return await serve(fakes.says(EMPTY))


@pytest.fixture
def account(tmp_path, monkeypatch):
    """The directory of a pod's service account, with its token and CA."""
    path = "kubernetes.aio.config.incluster_config.SERVICE_"
    (tmp_path / "token").write_text("from-the-kubelet\n")
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    monkeypatch.setattr(f"{path}TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{path}CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    return tmp_path
