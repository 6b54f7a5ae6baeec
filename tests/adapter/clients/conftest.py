"""Fake Prometheus servers that record requests, connections to them, and a service account."""

from __future__ import annotations

import contextlib
import ssl
from typing import Any

import pytest
import yaml
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import settings
from adapter.clients import sources
from rules import ruleset
from rules.document.sources import key_of
from tests.adapter.clients.credentials import CA, EMPTY, FLAGS, holder
from tools.fakes import prometheus as fakes


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


@pytest.fixture(params=["flags", "source"])
def connect(request, tmp_path):
    """Return a function that connects to a URL with the settings of a way."""

    def place(value):
        if isinstance(value, str):
            return str(tmp_path / value)
        return {name: str(tmp_path / file) for name, file in value.items()}

    @contextlib.asynccontextmanager
    async def opened(url, given, **more):
        values = {field: place(value) for field, value in {"ca_file": "ca.crt", **given}.items()}
        values |= more
        if request.param == "source":
            source = {"url": url, **{key_of(field): value for field, value in values.items()}}
            loaded = ruleset.load([("f.yaml", yaml.safe_dump({"sources": {"far": source}}))])
            async with sources.connect_sources(loaded.sources) as clients:
                yield clients["far"]
            return
        argv = [f"--prometheus-url={url}"]
        for field, value in values.items():
            pairs = value.items() if isinstance(value, dict) else [("", value)]
            argv += [f"{FLAGS[field]}={f'{name}={text}' if name else text}" for name, text in pairs]
        async with sources.connect_prometheus(settings.parse(argv).prometheus) as client:
            yield client

    connect: Any = opened
    connect.named = {"flags": FLAGS.__getitem__, "source": key_of}[request.param]
    return connect


@pytest.fixture
async def serve_tls(aiohttp_server, tmp_path):
    """Start a fake server with TLS for 127.0.0.1, which `ca.crt` in the folder has signed."""
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    one = holder("one", CA, usages=[ExtendedKeyUsageOID.SERVER_AUTH], addresses=["127.0.0.1"])
    (tmp_path / "tls.pem").write_bytes(one.pem + one.bundle.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.pem")

    async def start(behave):
        fake = fakes.Prometheus(behave)
        server = await aiohttp_server(fake.app(), ssl=context)
        fake.url = f"https://127.0.0.1:{server.port}"
        return fake

    return start
