"""Identities of a pod in AWS, Google and Azure, with endpoints for their credentials."""

from __future__ import annotations

import json
import logging
import sys
from base64 import b64encode
from urllib.parse import parse_qsl, quote_plus, urlsplit

import pytest
from aiohttp import web
from botocore import auth, awsrequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from adapter import errors
from adapter.clients import identities
from rules.connection import PrometheusConnection
from tests.adapter.clients.credentials import EMPTY, sent, wants
from tools.fakes import prometheus as fakes

QUERY = 'sum by (pod) (up{a=~"b|c+d e/*", ü="~%"})'
KEY, SECRET, SESSION = "AKIDEXAMPLE", "s3cret-key-of-aws", "sess1on-t0ken-of-aws"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch, tmp_path):
    """Remove the identities of this machine."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))


def store(folder, key=KEY, *, token=""):
    lines = ["[default]", f"aws_access_key_id={key}", f"aws_secret_access_key={SECRET}"]
    lines += [f"aws_session_token={token}"] if token else []
    (folder / "credentials").write_text("\n".join(lines))


def signature(request, body, key):
    """Return the Authorization that botocore computes for what the server received.

    The query is decoded and quoted again, as a server does it.
    """
    given = request.headers["Authorization"]
    signed = given.partition("SignedHeaders=")[2].partition(",")[0].split(";")
    url = urlsplit(f"{request.url.origin()}{request.raw_path}")
    again = awsrequest.AWSRequest(
        request.method,
        url._replace(query="").geturl(),
        data=body,
        params=parse_qsl(url.query, keep_blank_values=True),
        headers={name: request.headers[name] for name in signed if name != "host"},
    )
    again.context["timestamp"] = request.headers["X-Amz-Date"]
    signer = auth.SigV4Auth(Credentials(key, SECRET), "aps", "eu-central-1")
    text = signer.string_to_sign(again, signer.canonical_request(again))
    return (
        f"AWS4-HMAC-SHA256 Credential={signer.scope(again)}, "
        f"SignedHeaders={';'.join(signed)}, Signature={signer.signature(text, again)}"
    )


def wants_signature(key, status=401):
    """Respond if botocore computes the same signature; otherwise repeat all headers."""

    async def behave(request, received):
        body = await request.read()
        valid = received.headers["Authorization"] == signature(request, body, key)
        text = EMPTY if valid else json.dumps(dict(request.headers))
        return await fakes.says(text, status=200 if valid else status)(request, received)

    return behave


AWS = {"identity": "aws", "aws_region": "eu-central-1"}


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_signature_is_that_of_botocore(connect, serve_tls, tmp_path, verb):
    store(tmp_path, token=SESSION)
    fake = await serve_tls(wants_signature(KEY))
    url = f"{fake.url}/workspaces/ws-1?team=a b/c&x=1%2B2"
    async with connect(url, {}, verb=verb, **AWS) as client:
        await client.query(QUERY)
        with pytest.raises(errors.Broken, match="dict, not list"):
            await client.names("{__name__=~'a.+'}", 1.0, 2.5)

    query, names = fake.requests
    assert (query.verb, query.parameters["query"]) == (verb, QUERY)
    assert names.parameters["match[]"] == "{__name__=~'a.+'}"
    for request in (query, names):
        assert (request.parameters["team"], request.parameters["x"]) == ("a b/c", "1+2")
        assert request.headers["X-Amz-Security-Token"] == SESSION
        assert "x-amz-security-token" in request.headers["Authorization"]


async def test_changed_aws_credentials_are_used_after_a_401(connect, serve_tls, tmp_path):
    store(tmp_path)
    fake = await serve_tls(wants_signature(KEY))
    async with connect(fake.url, {}, **AWS) as client:
        await client.query("up")
        fake.behave = wants_signature("AKIDOTHER")
        store(tmp_path, "AKIDOTHER")
        await client.query("up")
        await client.query("up")

    keys = [each.partition("Credential=")[2].partition("/")[0] for each in sent(fake)]
    assert keys == [KEY, KEY, "AKIDOTHER", "AKIDOTHER"]


async def test_a_refusal_names_the_identity_and_no_secret(connect, serve_tls, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    store(tmp_path, token=SESSION)
    fake = await serve_tls(wants_signature("AKIDOTHER", status=403))
    async with connect(fake.url, {}, **AWS) as client:
        with pytest.raises(errors.Refused, match="403") as caught:
            await client.query("up")

    assert f"the AWS identity and {tmp_path}/credentials" in str(caught.value)
    assert fake.url in str(caught.value)
    for secret in (SECRET, SESSION):
        assert secret not in str(caught.value) + caplog.text


async def test_a_pod_identity_and_a_profile_are_used(
    connect, serve_tls, serve, tmp_path, monkeypatch
):
    """EKS Pod Identity has an endpoint on each node, and a token in a file."""
    agent = await serve(
        fakes.says(
            json.dumps(
                {
                    "AccessKeyId": KEY,
                    "SecretAccessKey": SECRET,
                    "Token": SESSION,
                    "Expiration": "2099-01-01T00:00:00Z",
                }
            )
        )
    )
    (tmp_path / "pod-token").write_text("p0d")
    (tmp_path / "config").write_text("[profile far]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent.url)
    monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "pod-token"))
    fake = await serve_tls(wants_signature(KEY))
    async with connect(fake.url, {}, identity="aws", aws_profile="far") as client:
        await client.query("up")
        await client.query("up")

    assert sent(agent) == ["p0d"]


async def test_missing_aws_credentials_are_an_error_of_the_request(connect, serve_tls):
    fake = await serve_tls(fakes.says(EMPTY))
    async with connect(fake.url, {}, **AWS) as client:
        with pytest.raises(errors.NoCredentials, match="the AWS identity: Unable to locate"):
            await client.query("up")

    assert fake.requests == []


START = {
    "no region": ({"identity": "aws"}, "the AWS region is not known: set it, or AWS_REGION"),
    "no profile": ({**AWS, "aws_profile": "none"}, "The config profile (none) could not be found"),
}


@pytest.mark.parametrize(("given", "words"), START.values(), ids=START)
async def test_a_missing_setting_of_aws_is_an_error_at_the_start(connect, tmp_path, given, words):
    with pytest.raises(errors.StartError) as caught:
        async with connect("https://a", {}, **given):
            pass

    assert words in str(caught.value)
    assert f"{connect.named('identity')}=aws: " in str(caught.value)


@pytest.mark.parametrize(
    ("name", "module"), [("aws", "botocore"), ("google", "google.auth"), ("azure", "azure")]
)
async def test_a_missing_library_is_an_error_that_says_how_to_install_it(
    connect, monkeypatch, name, module
):
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(errors.StartError) as caught:
        async with connect("https://a", {}, identity=name):
            pass

    assert f"{connect.named('identity')}={name}: {module}" in str(caught.value)
    assert f"install gpu-metrics-adapter[{name}]" in str(caught.value)


# Google and Azure issue tokens

CLOUDS = {"google": "the Google identity and {}", "azure": "the Azure identity"}


@pytest.fixture(scope="module")
def google_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(params=CLOUDS)
async def cloud(request, serve, monkeypatch, tmp_path, google_key):
    """Endpoint of a cloud that issues the tokens `t0ken-1`, `t0ken-2` and so on."""

    async def issue(_, received):
        fake.issued += 1
        token = {"access_token": f"t0ken-{fake.issued}", "expires_in": 3600, "resource": "x"}
        token["expires_on"] = 4102444800
        return web.json_response(
            token if fake.works else {"error": "no"}, status=400 - 200 * fake.works
        )

    fake = await serve(issue)
    fake.issued, fake.works, fake.cloud = 0, True, request.param
    if request.param == "google":
        account = {
            "type": "service_account",
            "project_id": "p",
            "client_email": "adapter@p.iam.gserviceaccount.com",
            "private_key": google_key,
            "token_uri": f"{fake.url}token",
        }
        (tmp_path / "account.json").write_text(json.dumps(account))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    else:
        monkeypatch.setenv("IDENTITY_ENDPOINT", f"{fake.url}token")
        monkeypatch.setenv("IDENTITY_HEADER", "x")
    fake.origin = CLOUDS[request.param].format(tmp_path / "account.json")
    return fake


@pytest.mark.slow
async def test_a_token_of_the_cloud_is_sent_and_replaced_once_after_a_401(
    connect, serve_tls, cloud
):
    fake = await serve_tls(wants({"Authorization": "Bearer t0ken-1"}))
    async with connect(fake.url, {}, identity=cloud.cloud) as client:
        await client.query("up")
        await client.query("up")
        fake.behave = wants({"Authorization": "Bearer t0ken-2"})
        await client.query("up")
        fake.behave = wants({"Authorization": "Bearer other"})
        with pytest.raises(errors.Refused) as caught:
            await client.query("up")

    assert sent(fake) == [f"Bearer t0ken-{each}" for each in (1, 1, 1, 2, 2)]
    assert f"the credentials are those of {cloud.origin}" in str(caught.value)
    assert "t0ken-2" not in str(caught.value)


@pytest.mark.slow
async def test_a_failure_of_the_cloud_is_an_error_that_names_the_identity(
    connect, serve_tls, cloud
):
    cloud.works = False
    fake = await serve_tls(fakes.says(EMPTY))
    async with connect(fake.url, {}, identity=cloud.cloud) as client:
        with pytest.raises(errors.NoCredentials, match=f"{cloud.origin}: "):
            await client.query("up")

    assert fake.requests == []


@pytest.mark.parametrize(
    ("url", "scope"),
    [
        ("https://w.eastus.prometheus.monitor.azure.com", "prometheus.monitor.azure.com"),
        ("https://w.usgovvirginia.prometheus.monitor.azure.us", "prometheus.monitor.azure.us"),
        ("https://proxy.example", "prometheus.monitor.azure.com"),
    ],
)
async def test_the_scope_of_azure_follows_the_cloud_of_the_url(monkeypatch, url, scope):
    scopes = []
    monkeypatch.setattr(
        "azure.identity.get_bearer_token_provider", lambda _, asked: scopes.append(asked)
    )
    identities.azure(PrometheusConnection(url=url))

    assert scopes == [f"https://{scope}/.default"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("AWS_SECRET_ACCESS_KEY", str),
        ("AZURE_CLIENT_SECRET", quote_plus),
        ("AZURE_FEDERATED_TOKEN_FILE", lambda text: b64encode(text.encode()).decode()),
    ],
)
async def test_an_error_of_a_library_reveals_no_secret(monkeypatch, tmp_path, name, shown):
    secret = "s3cret/of+the cloud"
    (tmp_path / "token").write_text(secret)
    value = str(tmp_path / "token") if name.endswith("_FILE") else secret
    monkeypatch.setenv(name, value)

    def load():
        def sign(_request):
            raise ValueError(f"{'x' * 280} refused {shown(secret)}")

        return sign

    identity = identities.CloudIdentity("AWS", load, failure=ValueError)
    with pytest.raises(errors.NoCredentials, match=r"refused \.\.\.$"):
        await identity.headers(None)
