"""Each way to authenticate to a Prometheus, by flags and by keys of a source, over TLS.

The server refuses everything but the expected headers, and repeats in its error what it got.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import logging
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
import yaml
from aiohttp import web
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import errors, settings
from adapter.app import sources
from adapter.clients import credentials
from adapter.settings.flag import fields_of
from rules import ruleset
from rules.document.sources import key_of
from tests.adapter.app.credentials import CA, EMPTY, holder
from tests.fakes import prometheus as fakes

SERVING = [ExtendedKeyUsageOID.SERVER_AUTH]
FLAGS = {field: f"--{flag.name}" for field, flag in fields_of(settings.Prometheus)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A way to authenticate: its settings, whose values name files, and the headers it sends."""

    set: Mapping[str, str | Mapping[str, str]]
    files: Mapping[str, str]
    sent: Mapping[str, str]
    renewed: Mapping[str, str]
    """Contents of files after a rotation."""
    resent: Mapping[str, str]
    previous: str = "token"

    def secrets(self):
        return [*self.files.values(), *(each.split()[-1] for each in self.sent.values())]


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


WAYS = {
    "bearer": Way(
        set={"token_file": "token"},
        files={"token": "first-t0ken"},
        sent={"Authorization": "Bearer first-t0ken"},
        renewed={"token": "second-t0ken\n"},
        resent={"Authorization": "Bearer second-t0ken"},
    ),
    "basic": Way(
        set={"username_file": "username", "password_file": "password"},
        files={"username": "123456-user", "password": "first-w0rd:ä"},
        sent={"Authorization": basic("123456-user", "first-w0rd:ä")},
        renewed={"password": "second-w0rd\n"},
        resent={"Authorization": basic("123456-user", "second-w0rd")},
        previous="password",
    ),
    "headers": Way(
        set={"header_files": {"Authorization": "key", "X-Scope-OrgID": "tenant"}},
        files={"key": "Api-Key first-k3y", "tenant": "tenant-of-a"},
        sent={"Authorization": "Api-Key first-k3y", "X-Scope-OrgID": "tenant-of-a"},
        renewed={"tenant": "tenant-of-b"},
        resent={"Authorization": "Api-Key first-k3y", "X-Scope-OrgID": "tenant-of-b"},
        previous="value",
    ),
}


@pytest.fixture(params=WAYS)
def way(request, tmp_path):
    found = WAYS[request.param]
    write(tmp_path, found.files)
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    return found


def write(folder, files):
    for name, content in files.items():
        (folder / name).write_text(content)


@pytest.fixture(params=["flags", "source"])
def connect(request, tmp_path):
    """Return a function that connects to a URL with the settings of a way."""

    def place(value):
        if isinstance(value, str):
            return str(tmp_path / value)
        return {name: str(tmp_path / file) for name, file in value.items()}

    @contextlib.asynccontextmanager
    async def connect(url, given, **more):
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

    connect.named = {"flags": FLAGS.__getitem__, "source": key_of}[request.param]
    return connect


@pytest.fixture
async def serve_tls(aiohttp_server, tmp_path):
    """Start a fake Prometheus with TLS for 127.0.0.1."""
    one = holder("one", CA, usages=SERVING, addresses=["127.0.0.1"])
    (tmp_path / "tls.pem").write_bytes(one.pem + one.bundle.key_pem)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "tls.pem")

    async def start(behave):
        fake = fakes.Prometheus(behave)
        server = await aiohttp_server(fake.app(), ssl=context)
        fake.url = f"https://127.0.0.1:{server.port}"
        return fake

    return start


def wants(headers):
    """Respond if a request has `headers`; otherwise refuse it, and repeat those that it has."""

    async def behave(request, received):
        got = {name: received.headers.get(name) for name in headers}
        body = EMPTY if got == headers else f"not {' '.join(map(str, got.values()))}"
        return await fakes.says(body, status=200 if got == headers else 401)(request, received)

    return behave


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_credentials_are_sent_and_renewed_once_after_a_401(
    way, connect, serve_tls, tmp_path, verb
):
    fake = await serve_tls(wants(way.sent))
    async with connect(fake.url, way.set, verb=verb) as client:
        await client.query("up")
        fake.behave = wants(way.resent)
        write(tmp_path, way.renewed)
        await client.query("up")
        await client.query("up")

    assert len(fake.requests) == 4
    assert {(each.verb, each.parameters["query"]) for each in fake.requests} == {(verb, "up")}


async def test_a_refusal_names_the_files_and_the_server_and_no_secret(
    way, connect, serve_tls, tmp_path, caplog
):
    caplog.set_level(logging.DEBUG)
    fake = await serve_tls(wants({**way.sent, "X-Other": "missing"}))
    async with connect(fake.url, way.set) as client:
        with pytest.raises(errors.Refused, match="401") as caught:
            await client.query("up")

    message = str(caught.value)
    assert len(fake.requests) == 1
    assert fake.url in message
    assert f"the credentials are those of {' and '.join(paths(tmp_path, way))}" in message
    assert [each for each in way.secrets() if each in message + caplog.text] == []


def paths(folder, way):
    return [str(folder / name) for name in way.files]


async def test_credentials_are_read_again_when_their_files_change(
    way, connect, serve_tls, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    fake = await serve_tls(fakes.says(EMPTY))
    name = next(iter(way.renewed))
    async with connect(fake.url, way.set) as client:
        await client.query("up")
        (tmp_path / name).write_text(" ")
        await client.query("up")
        write(tmp_path, way.renewed)
        await client.query("up")

    sent = [{name: each.headers[name] for name in way.sent} for each in fake.requests]
    assert sent == [way.sent, way.sent, way.resent]
    assert [each.message for each in caplog.records if each.levelno == logging.WARNING] == [
        f"{tmp_path / name}: the file is empty; the previous {way.previous} stays in use"
    ]


async def test_a_redirect_to_another_host_carries_nothing(way, connect, serve_tls):
    other = await serve_tls(fakes.says(EMPTY))

    async def elsewhere(request, received):
        raise web.HTTPTemporaryRedirect(f"{other.url}{request.path_qs}")

    fake = await serve_tls(elsewhere)
    async with connect(fake.url, way.set) as client:
        with pytest.raises(errors.Broken, match=f"redirects to {other.url}"):
            await client.query("up")

    assert (len(fake.requests), other.requests) == (1, [])


@pytest.mark.parametrize(
    ("content", "words"), [(None, "No such file"), ("", "is empty"), ("a\nb", "control character")]
)
async def test_an_unusable_file_is_an_error_at_the_start(way, connect, tmp_path, content, words):
    name, path = next((name, tmp_path / name) for name in way.files)
    path.unlink() if content is None else path.write_text(content)

    with pytest.raises(errors.StartError, match=words) as caught:
        async with connect("https://127.0.0.1:9", way.set):
            pass

    assert str(path) in str(caught.value)
    assert all(connect.named(field) in str(caught.value) for field in way.set), name


async def test_a_user_with_a_colon_is_an_error_at_the_start(connect, tmp_path):
    write(tmp_path, {"username": "a:b", "password": "x"})
    (tmp_path / "ca.crt").write_bytes(CA.pem)

    with pytest.raises(errors.StartError, match="username: contains a colon"):
        async with connect("https://127.0.0.1:9", WAYS["basic"].set):
            pass


async def test_header_files_come_with_another_way(connect, serve_tls, tmp_path):
    (tmp_path / "ca.crt").write_bytes(CA.pem)
    write(tmp_path, {"token": "t0ken", "tenant": "b"})
    wanted = {"Authorization": "Bearer t0ken", "X-Scope-OrgID": "b"}
    fake = await serve_tls(wants(wanted))

    async with connect(
        fake.url, {"token_file": "token", "header_files": {"X-Scope-OrgID": "tenant"}}
    ) as client:
        await client.query("up")


def test_flags_and_keys_are_the_same():
    keys = {each.name for each in dataclasses.fields(sources.PrometheusSource)}

    assert keys - {"name", "where"} == set(FLAGS) - {"query_freshness", "allow_partial_responses"}
