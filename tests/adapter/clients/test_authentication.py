"""Each way to authenticate to a Prometheus, by flags and by keys of a source, over TLS.

The server refuses everything but the expected headers, and repeats in its error what it got.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote_plus

import pytest

from adapter import errors
from adapter.clients import credentials
from tests.adapter.clients.credentials import CA, EMPTY, wants, write
from tools.fakes import prometheus as fakes


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


async def test_a_password_is_hidden_also_where_the_server_repeats_it_decoded(
    connect, serve_tls, tmp_path
):
    way = WAYS["basic"]
    write(tmp_path, way.files)
    password = way.files["password"]
    # The body is cut inside the second one.
    text = f"not {password}, {quote_plus(password)} {'x' * 960} {password}"
    fake = await serve_tls(fakes.says(text, status=403))
    async with connect(fake.url, way.set) as client:
        with pytest.raises(errors.Refused, match=r"not [.]{3}, [.]{3} xxx") as caught:
            await client.query("up")

    assert "first-w" not in str(caught.value)


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
