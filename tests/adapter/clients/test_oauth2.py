"""Tokens of OAuth 2.0 client credentials, by a token server with TLS."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import web

from adapter import errors
from adapter.clients.credentials import OutgoingRequest
from adapter.clients.oauth2 import ClientCredentials
from tests.adapter.clients.credentials import EMPTY, sent, wants
from tools.fakes import prometheus as fakes
from tools.waiting import Clock

SECRET = "cl1ent-s3cret/+"
PASSWORD = "Basic " + base64.b64encode(b"adapter+1:cl1ent-s3cret%2F%2B").decode()


class TokenServer:
    """Issues `issued-1`, `issued-2` and so on, to a client that authenticates in one `style`."""

    def __init__(self, style="password", **document):
        self.style = style
        self.document = {"token_type": "Bearer", **document}
        self.issued = 0
        self.status = 200

    async def __call__(self, request, received):
        by_password = received.headers.get("Authorization") == PASSWORD
        by_parameter = received.parameters.get("client_secret") == SECRET
        if (
            self.status != 200
            or not {"password": by_password, "parameters": by_parameter}[self.style]
        ):
            text = json.dumps({"error": "invalid_client", "of": dict(received.parameters)})
            return web.Response(status=self.status if self.status != 200 else 401, text=text)
        self.issued += 1
        return web.json_response({"access_token": f"issued-{self.issued}", **self.document})


@pytest.fixture
async def tokens(serve_tls, tmp_path):
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    behave = TokenServer()
    fake = await serve_tls(behave)
    fake.tokens = behave
    return fake


def given(tokens, tmp_path, **more):
    return {
        "oauth2_token_url": f"{tokens.url}/token?code=s3cret-code",
        "oauth2_client_id": "adapter 1",
        "oauth2_client_secret_file": str(tmp_path / "secret"),
        "oauth2_ca_file": str(tmp_path / "ca.crt"),
        **more,
    }


@pytest.mark.parametrize("style", ["password", "parameters"])
async def test_one_token_is_issued_for_all_requests(connect, serve_tls, tokens, tmp_path, style):
    tokens.tokens.style = style
    fake = await serve_tls(wants({"Authorization": "Bearer issued-1"}))
    parameters = {"scope": "metrics.read", "audience": "https://p"}
    async with connect(
        fake.url, {}, **given(tokens, tmp_path, oauth2_parameters=parameters)
    ) as client:
        await asyncio.gather(*(client.query(f"vector({each})") for each in range(5)))

    *_, request = tokens.requests
    assert request.verb == "POST"
    assert parameters.items() <= request.parameters.items()
    assert request.parameters["grant_type"] == "client_credentials"
    assert ("client_secret" in request.parameters) == (style == "parameters")
    assert len(tokens.requests) == (1 if style == "password" else 2)
    assert len(fake.requests) == 5


async def test_a_refused_token_is_replaced_once_and_then_the_error_names_file_and_servers(
    connect, serve_tls, tokens, tmp_path
):
    fake = await serve_tls(wants({"Authorization": "Bearer issued-2"}))
    async with connect(fake.url, {}, **given(tokens, tmp_path)) as client:
        await client.query("up")
        fake.behave = wants({"Authorization": "Bearer other"})
        with pytest.raises(errors.Refused, match="401") as caught:
            await client.query("up")

    assert sent(fake) == [f"Bearer issued-{each}" for each in (1, 2, 2)]
    for part in (fake.url, str(tmp_path / "secret"), f"{tokens.url}/token"):
        assert part in str(caught.value)
    for secret in ("issued-2", "s3cret-code"):
        assert secret not in str(caught.value)


async def test_a_changed_secret_is_used_for_the_next_token(connect, serve_tls, tokens, tmp_path):
    fake = await serve_tls(wants({"Authorization": "Bearer issued-1"}))
    (tmp_path / "secret").write_text("wrong-s3cret")
    async with connect(fake.url, {}, **given(tokens, tmp_path)) as client:
        with pytest.raises(errors.NoCredentials) as caught:
            await client.query("up")
        (tmp_path / "secret").write_text(SECRET)
        await client.query("up")

    message = str(caught.value)
    assert f"no token from {tokens.url}/token for the client secret in {tmp_path}/secret" in message
    assert "401" in message
    assert "invalid_client" in message
    assert "s3cret-code" not in message
    assert "wrong-s3cret" not in message
    assert len(fake.requests) == 1
    assert client.reachability.check().fact == "answers"


@pytest.mark.parametrize("form", ["header", "body"])
async def test_a_server_that_repeats_the_request_reveals_no_secret(
    connect, serve_tls, tokens, tmp_path, form
):
    repeated = []

    async def repeat(request, received):
        body = (await request.read()).decode()
        repeated.append(request.headers["Authorization"] if form == "header" else body)
        # A client that is refused as a password is sent as a parameter, too.
        by_password = "Authorization" in request.headers
        if form == "body" and by_password:
            return web.Response(status=401)
        return web.Response(status=403, text=f"refused: {repeated[-1]}{'x' * 1000}")

    tokens.behave = repeat
    fake = await serve_tls(fakes.says(EMPTY))
    async with connect(fake.url, {}, **given(tokens, tmp_path)) as client:
        with pytest.raises(errors.NoCredentials, match="refused: ") as caught:
            await client.query("up")

    message = str(caught.value)
    assert "..." in message
    encoded = base64.b64encode(SECRET.encode()).decode().rstrip("=")
    quoted = PASSWORD.removeprefix("Basic ")
    for secret in (SECRET, "s3cret%2F%2B", encoded, quoted, quoted[16:]):
        assert secret not in message


async def test_no_token_is_a_degradation_that_names_the_cause(connect, serve_tls, tokens, tmp_path):
    tokens.tokens.status = 503
    fake = await serve_tls(fakes.says(EMPTY))
    async with connect(fake.url, {}, **given(tokens, tmp_path)) as client:
        with pytest.raises(errors.NoCredentials, match="503"):
            await client.query("up")

        assert "has no credentials (the log says why; check" in client.reachability.check().fact
    assert (len(tokens.requests), fake.requests) == (1, [])


RESPONSES = {
    "no JSON": "issued",
    "a list": "[]",
    "no token": '{"expires_in": 1}',
    "a header": '{"access_token": "a\\nb"}',
    "a lifetime": '{"access_token": "a", "expires_in": "soon"}',
}


@pytest.mark.parametrize("body", RESPONSES.values(), ids=RESPONSES)
async def test_a_malformed_response_is_an_error(connect, serve_tls, tokens, tmp_path, body):
    tokens.behave = fakes.says(body)
    async with connect("https://127.0.0.1:9", {}, **given(tokens, tmp_path)) as client:
        with pytest.raises(errors.NoCredentials, match="no token from"):
            await client.query("up")


async def test_the_secret_is_not_sent_after_a_redirect(connect, serve_tls, tokens, tmp_path):
    other = await serve_tls(fakes.says("{}"))

    async def elsewhere(request, received):
        raise web.HTTPTemporaryRedirect(other.url)

    tokens.behave = elsewhere
    async with connect("https://127.0.0.1:9", {}, **given(tokens, tmp_path)) as client:
        with pytest.raises(errors.NoCredentials, match="307"):
            await client.query("up")

    assert other.requests == []


@pytest.mark.parametrize("file", ["secret", "ca.crt"])
async def test_a_missing_file_is_an_error_at_the_start(connect, tokens, tmp_path, file):
    field = {"secret": "oauth2_client_secret_file", "ca.crt": "oauth2_ca_file"}[file]
    with pytest.raises(errors.StartError) as caught:
        async with connect("https://a", {}, **given(tokens, tmp_path, **{field: "/none"})):
            pass

    assert connect.named(field) in str(caught.value)
    assert "/none: " in str(caught.value)


# When tokens are replaced

REQUEST = OutgoingRequest(method="GET", url=None, headers={}, body=b"")


@pytest.fixture
def issued(tokens, tmp_path):
    """Return a function that returns the token at a time, in seconds."""
    clock = Clock()
    authorization = ClientCredentials(
        f"{tokens.url}/token",
        "adapter 1",
        tmp_path / "secret",
        parameters={},
        ca_file=str(tmp_path / "ca.crt"),
        monotonic=clock,
    )

    async def issued(at, *, renew=False):
        clock.now = at
        headers = await authorization.headers(REQUEST, renew=renew)
        return int(headers["Authorization"].removeprefix("Bearer issued-"))

    return issued


async def test_a_token_is_replaced_before_its_end(tokens, issued):
    tokens.tokens.document["expires_in"] = 300

    assert [await issued(at) for at in (0, 239, 240, 300, 479, 480)] == [1, 1, 2, 2, 2, 3]
    tokens.tokens.document["expires_in"] = 30
    assert [await issued(at) for at in (720, 734, 735)] == [4, 4, 5]


async def test_a_token_stays_in_use_until_its_end_while_the_token_server_fails(
    tokens, issued, caplog
):
    tokens.tokens.document["expires_in"] = 300
    await issued(0)
    tokens.tokens.status = 503

    assert [await issued(at) for at in (240, 249, 250, 299)] == [1] * 4
    assert len(tokens.requests) == 1 + 3
    assert "the previous token is valid for now" in caplog.text
    with pytest.raises(errors.NoCredentials):
        await issued(300)
    tokens.tokens.status = 200
    assert await issued(301) == 2


async def test_a_token_without_a_lifetime_stays_in_use(tokens, issued):
    tokens.tokens.document["expires_in"] = 0

    assert [await issued(at) for at in (0, 1, 1e9)] == [1, 1, 1]


async def test_refusals_cause_one_token_in_ten_seconds(tokens, issued):
    assert [await issued(at, renew=True) for at in (1, 1, 2, 10.9, 11, 12)] == [1, 1, 1, 1, 2, 2]
