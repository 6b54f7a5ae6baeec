"""Credentials for Prometheus by flags.

A real Prometheus checks TLS, passwords and client certificates; a fake one checks tokens, which
Prometheus does not support.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from adapter import errors, settings
from adapter.cli.commands import check, presets
from adapter.cli.doctor import checks as doctor_checks
from adapter.clients import credentials, sources
from tests.adapter.clients.credentials import (
    BASIC,
    CA,
    EMPTY,
    HASHED,
    OTHER_CA,
    PASSWORD,
    TOKEN,
    USER,
    holder,
    kubeconfig,
    sent,
)
from tools.fakes import prometheus as fakes
from tools.real import prometheus as real

CLIENT = holder("adapter", CA, usages=[ExtendedKeyUsageOID.CLIENT_AUTH])
SERVING = [ExtendedKeyUsageOID.SERVER_AUTH]


def files(folder, name, one):
    """Write the certificate and key of a holder; return their paths."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(one.pem)
    key.write_bytes(one.bundle.key_pem)
    return str(certificate), str(key)


def data(pem):
    return base64.b64encode(pem).decode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A directory with `ca.crt`, `other.crt`, and a client's `client.crt` and `client.key`."""
    folder = tmp_path_factory.mktemp("files")
    files(folder, "ca", CA)
    files(folder, "other", OTHER_CA)
    files(folder, "client", CLIENT)
    return folder


def serving(folder, name, one, **more):
    certificate, key = files(folder, name, one)
    return {"tls_server_config": {"cert_file": certificate, "key_file": key, **more}}


@pytest.fixture(scope="module")
def password_protected(real_servers, folder, tmp_path_factory):
    """URL of a Prometheus with a certificate for 127.0.0.1 that demands the password."""
    config = serving(folder, "one", holder("one", CA, usages=SERVING, addresses=["127.0.0.1"]))
    config["basic_auth_users"] = {USER: HASHED}
    with real.run(
        tmp_path_factory.mktemp("prometheus"),
        web=yaml.safe_dump(config),
        headers={"Authorization": BASIC},
        context=ssl.create_default_context(cafile=str(folder / "ca.crt")),
    ) as server:
        yield server.url


@pytest.fixture(scope="module")
def certificate_protected(real_servers, folder, tmp_path_factory):
    """URL of a Prometheus for `prometheus.monitoring` that demands client certificates."""
    one = holder("two", CA, usages=SERVING, dns=["prometheus.monitoring"])
    ca = str(folder / "ca.crt")
    config = serving(
        folder, "two", one, client_ca_file=ca, client_auth_type="RequireAndVerifyClientCert"
    )
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    with real.run(
        tmp_path_factory.mktemp("prometheus"), web=yaml.safe_dump(config), context=context
    ) as server:
        yield server.url


def connected(url, *flags):
    """Connect with the credentials of `flags`."""
    parsed = settings.parse((f"--prometheus-url={url}", "--prometheus-timeout=90s", *flags))
    return sources.connect_prometheus(parsed.prometheus)


async def query_once(url, *flags):
    """Send one query with the credentials of `flags`."""
    async with connected(url, *flags) as client:
        return (await client.query("vector(1)")).samples


# CAs, client certificates and passwords


CA_DATA = {"certificate-authority-data": data(CA.pem)}
LOGIN = {"username": USER, "password": PASSWORD}
ACCEPTED = {
    "password": ("password", CA_DATA, LOGIN),
    # The server address is not used.
    "other address": (
        "password",
        {"certificate-authority": "ca.crt", "server": "http://192.0.2.1"},
        LOGIN,
    ),
    "no address": ("password", {"certificate-authority": "ca.crt", "server": None}, LOGIN),
    "certificate files": (
        "certificate",
        {"certificate-authority": "ca.crt", "tls-server-name": "prometheus.monitoring"},
        {"client-certificate": "client.crt", "client-key": "client.key"},
    ),
    "inline certificate": (
        "certificate",
        {"insecure-skip-tls-verify": True},
        {
            "client-certificate-data": data(CLIENT.pem),
            "client-key-data": data(CLIENT.bundle.key_pem),
        },
    ),
}


@pytest.mark.parametrize(("demanded", "cluster", "user"), ACCEPTED.values(), ids=ACCEPTED)
async def test_what_a_kubeconfig_has_is_used(
    password_protected, certificate_protected, folder, demanded, cluster, user
):
    url = password_protected if demanded == "password" else certificate_protected

    assert len(await query_once(url, kubeconfig(folder, cluster, user))) == 1


async def test_client_certificate_flags_complement_a_kubeconfig(certificate_protected, folder):
    config = kubeconfig(folder, {"insecure-skip-tls-verify": True})

    assert await query_once(
        certificate_protected,
        config,
        f"--prometheus-client-tls-cert-file={folder}/client.crt",
        f"--prometheus-client-tls-key-file={folder}/client.key",
    )
    with pytest.raises(errors.Unreachable):
        await query_once(certificate_protected, config)


async def test_the_ca_file_flag_takes_precedence_over_a_kubeconfig(password_protected, folder):
    config = kubeconfig(folder, {"certificate-authority": "other.crt"}, LOGIN)

    assert await query_once(password_protected, config, f"--prometheus-ca-file={folder}/ca.crt")
    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        await query_once(password_protected, config)


async def test_the_ca_file_flag_overrides_insecure_skip_tls_verify(password_protected, folder):
    config = kubeconfig(folder, {"insecure-skip-tls-verify": True}, LOGIN)

    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        await query_once(password_protected, config, f"--prometheus-ca-file={folder}/other.crt")


async def test_only_the_ca_of_the_service_account_is_trusted(password_protected, account):
    in_cluster = "--prometheus-auth-incluster"
    password = f"--prometheus-header=Authorization={BASIC}"

    assert await query_once(password_protected, in_cluster, password)
    (account / "ca.crt").write_bytes(OTHER_CA.pem)
    with pytest.raises(errors.Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
        await query_once(password_protected, in_cluster, password)


async def test_the_ca_file_flag_keeps_the_service_account_token(account, folder, aiohttp_server):
    one = holder("one", OTHER_CA, usages=SERVING, addresses=["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files(account, "one", one))
    fake = fakes.Prometheus(fakes.says(EMPTY))
    server = await aiohttp_server(fake.app(), ssl=context)

    await query_once(
        f"https://127.0.0.1:{server.port}",
        "--prometheus-auth-incluster",
        f"--prometheus-ca-file={folder}/other.crt",
    )

    assert sent(fake) == ["Bearer from-the-kubelet"]


async def test_client_certificate_files_are_reread(
    certificate_protected, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    stranger = holder("stranger", OTHER_CA, usages=[ExtendedKeyUsageOID.CLIENT_AUTH])
    files(tmp_path, "mine", stranger)
    certificate, key = tmp_path / "mine.crt", tmp_path / "mine.key"
    user = {"client-certificate": "mine.crt", "client-key": "mine.key"}
    config = kubeconfig(tmp_path, {"insecure-skip-tls-verify": True}, user)
    async with connected(certificate_protected, config) as client:
        with pytest.raises(errors.Unreachable):
            await client.query("vector(1)")
        certificate.write_bytes(CLIENT.pem)
        for _ in range(2):
            with pytest.raises(errors.Unreachable):
                await client.query("vector(1)")
        key.write_bytes(CLIENT.bundle.key_pem)
        await client.query("vector(1)")
        certificate.unlink()
        await client.query("vector(1)")

    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warned) == 2
    assert warned[0].startswith(f"{certificate}: [X509: KEY_VALUES_MISMATCH]")
    assert warned[1].endswith("No such file or directory; the previous TLS files stay in use")


# Tokens and their renewal


async def test_the_token_of_a_kubeconfig_is_sent_with_other_headers(fake, tmp_path):
    await query_once(fake.url, kubeconfig(tmp_path))
    config = kubeconfig(tmp_path, user={"token": TOKEN})
    await query_once(fake.url, config, "--prometheus-header=X-Scope-OrgID=gpu")

    assert sent(fake) == [None, f"Bearer {TOKEN}"]
    assert fake.requests[1].headers["X-Scope-OrgID"] == "gpu"


@pytest.fixture(params=["account", "kubeconfig", "flag"])
def of_token(request, account):
    """The flag for the token file of the service account, in each way to give one."""
    return {
        "account": "--prometheus-auth-incluster",
        "kubeconfig": kubeconfig(account, user={"tokenFile": "token"}),
        "flag": f"--prometheus-token-file={account}/token",
    }[request.param]


async def test_a_token_file_is_reread(fake, account, of_token, monkeypatch, caplog):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    token = account / "token"
    async with connected(fake.url, of_token) as client:
        await client.query("up")
        for content in (b"", b"\xff", b"two\nlines", b"again"):
            token.write_bytes(content)
            await client.query("up")
        token.unlink()
        await client.query("up")
        await client.query("up")

    first = "Bearer from-the-kubelet"
    assert sent(fake) == [first, first, first, first, *["Bearer again"] * 3]
    warned = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.removeprefix(f"{token}: ") for each in warned] == [
        "the file is empty; the previous token stays in use",
        "not UTF-8 text; the previous token stays in use",
        "contains a control character; the previous token stays in use",
        "No such file or directory; the previous token stays in use",
    ]


async def test_a_token_file_is_not_reread_for_each_query(fake, account):
    async with connected(fake.url, "--prometheus-auth-incluster") as client:
        await client.query("up")
        (account / "token").write_text("again")
        await client.query("up")

    assert sent(fake) == ["Bearer from-the-kubelet"] * 2


PLUGIN = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[1])
counter.write_text(counter.read_text() + "I" if counter.exists() else "I")
print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                  "status": {"token": counter.read_text()}}))
"""


async def test_a_credential_plugin_is_run_again(fake, tmp_path, monkeypatch):
    monkeypatch.setattr(credentials, "MAX_AGE", -1.0)
    execute = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": ["-c", PLUGIN, str(tmp_path / "runs")],
    }
    async with connected(fake.url, kubeconfig(tmp_path, user={"exec": execute})) as client:
        await client.query("up")
        await client.query("up")

    first, second = sent(fake)
    assert first.startswith("Bearer I")
    assert second == f"{first}I"


# Precedence


async def test_only_one_authorization_is_sent(fake, tmp_path):
    (tmp_path / "token").write_text("of-the-flag")
    url = urlsplit(fake.url)
    named = f"{url.scheme}://{USER}:{PASSWORD}@{url.netloc}"
    config = kubeconfig(tmp_path, user={"token": TOKEN})
    file = f"--prometheus-token-file={tmp_path}/token"

    await query_once(fake.url, config)
    await query_once(fake.url, config, file)
    await query_once(named, config, file)
    await query_once(named, config, file, "--prometheus-header=authorization=Negotiate x")

    assert sent(fake) == [f"Bearer {TOKEN}", "Bearer of-the-flag", BASIC, "Negotiate x"]


async def test_the_proxy_of_a_kubeconfig_is_used(fake, tmp_path):
    config = kubeconfig(tmp_path, {"proxy-url": fake.url}, {"token": TOKEN})

    await query_once("http://prometheus.invalid", config)

    assert sent(fake) == [f"Bearer {TOKEN}"]


# Errors at the start


INVALID_KUBECONFIGS = {
    "no YAML": (f"users: [{{user: {{token: '{TOKEN}}}", "not YAML in line 1"),
    "no such tag": (f"token: !{TOKEN} x", "not YAML in line 1"),
    "text": (TOKEN, "a kubeconfig is a mapping, not str"),
    "bytes": (TOKEN.encode() + b"\xff", "not YAML"),
    "empty": ("", "a kubeconfig is a mapping, not NoneType"),
    "no clusters": (f"token: {TOKEN}", "not a kubeconfig with a context, a cluster and a user"),
}


@pytest.mark.parametrize(
    ("content", "words"), INVALID_KUBECONFIGS.values(), ids=INVALID_KUBECONFIGS
)
async def test_an_invalid_kubeconfig_is_reported_without_its_content(tmp_path, content, words):
    path = tmp_path / "kubeconfig"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(errors.StartError, match=words) as caught:
        await query_once("http://127.0.0.1:9", f"--prometheus-auth-config={path}")

    assert str(caught.value).startswith(f"--prometheus-auth-config={path}: ")
    assert TOKEN not in str(caught.value)


UNUSABLE_CREDENTIALS = {
    "a value is missing": ({}, {"token": None, "password": TOKEN}, "Expected key token in"),
    "two lines": ({}, {"token": f"{TOKEN}\nb"}, "contains a control character"),
    "no file": ({}, {"tokenFile": "none"}, "none: No such file"),
    "no token": ({}, {"tokenFile": "kubeconfig"}, "kubeconfig: contains a control character"),
    "a command": (
        {},
        {
            "exec": {
                "apiVersion": "v1",
                "command": "/none",
                "args": [TOKEN],
                "env": [{"name": "A", "value": TOKEN}],
            }
        },
        "the exec command '/none' cannot be run: No such file or directory$",
    ),
    "neither nor": (
        {"insecure-skip-tls-verify": True, "certificate-authority-data": data(CA.pem)},
        {},
        "exclude each other: remove one",
    ),
    "no CA": ({"certificate-authority": "/none"}, {}, "/none"),
    "no base64": ({"certificate-authority-data": "x"}, {}, "Error"),
    "no certificate": ({"certificate-authority-data": data(b"x")}, {}, "TLS for Prometheus"),
}


@pytest.mark.parametrize(
    ("cluster", "user", "words"), UNUSABLE_CREDENTIALS.values(), ids=UNUSABLE_CREDENTIALS
)
async def test_unusable_credentials_are_reported_at_the_start(
    tmp_path, caplog, cluster, user, words
):
    with pytest.raises(errors.StartError, match=words) as caught:
        await query_once("http://127.0.0.1:9", kubeconfig(tmp_path, cluster, user))

    assert TOKEN not in str(caught.value) + caplog.text


async def test_an_encrypted_key_is_an_error_and_not_a_prompt(folder, tmp_path):
    key = tmp_path / "encrypted.key"
    key.write_bytes(
        CLIENT.bundle.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    flags = (
        f"--prometheus-client-tls-cert-file={folder / 'client.crt'}",
        f"--prometheus-client-tls-key-file={key}",
    )

    with pytest.raises(errors.StartError, match=r"client\.crt: the key is encrypted"):
        await query_once("https://127.0.0.1:1", *flags)


async def test_incluster_authentication_outside_a_pod_is_an_error(monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    with pytest.raises(errors.StartError) as caught:
        await query_once("http://127.0.0.1:9", "--prometheus-auth-incluster")

    assert str(caught.value).splitlines() == [
        "--prometheus-auth-incluster: in-cluster configuration: Service host/port is not set.",
        "outside a pod, use --prometheus-token-file and --prometheus-ca-file",
    ]


# Commands and logs


def test_presets_detect_uses_the_credentials(password_protected, tmp_path, capsys):
    config = kubeconfig(tmp_path, CA_DATA, LOGIN)

    code = presets.main(["detect", f"--prometheus-url={password_protected}", config])

    assert (code, "No preset matches" in capsys.readouterr().out) == (1, True)


async def test_check_and_doctor_use_the_credentials(password_protected, folder, tmp_path, capsys):
    (tmp_path / "user").write_text(USER)
    (tmp_path / "password").write_text(PASSWORD)
    (tmp_path / "rules.yaml").write_text("rules: []")
    flags = (
        f"--prometheus-url={password_protected}",
        f"--prometheus-ca-file={folder}/ca.crt",
        f"--prometheus-username-file={tmp_path}/user",
        f"--prometheus-password-file={tmp_path}/password",
    )

    (first, *_) = await doctor_checks._prometheus(settings.parse(flags).prometheus)
    code = await asyncio.to_thread(check.main, [*flags, str(tmp_path / "rules.yaml")])

    assert first.fact == "answers queries"
    assert code == 0, capsys.readouterr()


async def test_secrets_are_never_logged(password_protected, fake, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    await query_once(password_protected, kubeconfig(tmp_path, CA_DATA, LOGIN))
    await query_once(fake.url, kubeconfig(tmp_path, user={"token": TOKEN}))
    with pytest.raises(errors.Refused):
        await query_once(password_protected, kubeconfig(tmp_path, CA_DATA, {"token": TOKEN}))

    assert caplog.records
    for secret in (TOKEN, PASSWORD, BASIC.split()[1]):
        assert secret not in caplog.text
