from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging

import pytest

from adapter import errors
from adapter.server.auth.trust import FILES_INTERVAL, RequestHeaderConfig, Trust, TrustSource
from certs.bundle import CertificateError
from tools import certificates
from tools.fakes import kubernetes
from tools.waiting import until

CLIENT = certificates.Holder("client-ca", ca=True).pem.decode()
PROXY = certificates.Holder("front-proxy-ca", ca=True).pem.decode()
OTHER = certificates.Holder("front-proxy-ca", ca=True).pem.decode()

DATA = {
    "client-ca-file": CLIENT,
    "requestheader-client-ca-file": PROXY,
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
HEADERS = RequestHeaderConfig(
    allowed_names=("front-proxy-client",),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
TRUST = Trust(client_cas=CLIENT.encode(), proxy_cas=PROXY.encode(), headers=HEADERS)
FLAG_HEADERS = RequestHeaderConfig(allowed_names=("proxy",), username_headers=("x-remote-user",))


@pytest.fixture
def cluster():
    cluster = kubernetes.Cluster()
    cluster.resources.append(kubernetes.CONFIGMAPS)
    return cluster


@contextlib.asynccontextmanager
async def running(source):
    task = asyncio.create_task(source.run())
    yield
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_config_map_has_all_settings(cluster, api):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = TrustSource(api)

    await source.start()

    assert source.current == TRUST


async def test_uid_headers_are_optional(cluster, api):
    """API servers before Kubernetes 1.33 do not publish them."""
    data = {key: value for key, value in DATA.items() if "uid" not in key}
    cluster.put(*kubernetes.TRUST, data={**data, "requestheader-allowed-names": "[]"})
    source = TrustSource(api)

    await source.start()

    assert source.current.headers.uid_headers == ()
    assert source.current.headers.allowed_names == ()


async def test_changes_of_the_config_map_are_followed_and_published(cluster, api, caplog):
    caplog.set_level(logging.INFO)
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = TrustSource(api)
    await source.start()
    snapshots = []
    source.subscribe(snapshots.append)

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": PROXY + OTHER})
        await until(lambda: len(snapshots) == 2)
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": OTHER})
        await until(lambda: len(snapshots) == 3)
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": OTHER})
        cluster.put(*kubernetes.TRUST, data={"client-ca-file": CLIENT})
        await until(lambda: len(snapshots) == 4)

    assert snapshots == [
        TRUST,
        dataclasses.replace(TRUST, proxy_cas=(PROXY + OTHER).encode()),
        dataclasses.replace(TRUST, proxy_cas=OTHER.encode()),
        Trust(client_cas=CLIENT.encode()),
    ]
    assert source.current is snapshots[-1]
    assert [record.message for record in caplog.records if "settings" in record.message] == [
        "authentication settings changed: client CA, request-header CA, request-header settings",
        "authentication settings changed: request-header CA",
        "authentication settings changed: request-header CA",
        "authentication settings changed: request-header CA, request-header settings",
    ]


async def test_a_deleted_config_map_clears_all_settings(cluster, api):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = TrustSource(api)
    await source.start()

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.remove(*kubernetes.TRUST)
        await until(lambda: source.current == Trust())


async def test_a_config_map_created_after_the_start_is_used(cluster, api, caplog):
    source = TrustSource(api)
    await source.start()
    before = source.current

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data=DATA)
        await until(lambda: source.current == TRUST)

    assert before == Trust()
    assert "no front proxy is trusted until it appears" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "field"),
    [
        ("client-ca-file", "no PEM", "client_cas"),
        ("requestheader-client-ca-file", PROXY[:200], "proxy_cas"),
        ("requestheader-allowed-names", "[", "headers"),
        ("requestheader-username-headers", '"X-Remote-User"', "headers"),
        ("requestheader-group-headers", "[1]", "headers"),
    ],
)
async def test_an_invalid_key_keeps_its_previous_value(cluster, api, caplog, key, value, field):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = TrustSource(api)
    await source.start()
    changed = {
        "client-ca-file": OTHER,
        "requestheader-client-ca-file": OTHER,
        "requestheader-allowed-names": json.dumps(["other"]),
    }

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data={**DATA, **changed, key: value})
        await until(lambda: source.current != TRUST)

    unchanged = {
        name
        for name in ("client_cas", "proxy_cas", "headers")
        if getattr(source.current, name) == getattr(TRUST, name)
    }
    assert unchanged == {field}
    assert "the previous value stays" in caplog.text


@pytest.mark.slow
async def test_outages_of_the_api_server_keep_the_settings(cluster, api, caplog):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = TrustSource(api)
    await source.start()
    cluster.fail("/api", status=503, times=2)

    async with running(source):
        await until(lambda: len(cluster.requests) >= 3)
        assert source.current == TRUST
        cluster.put(*kubernetes.TRUST, data={**DATA, "client-ca-file": OTHER})
        await until(lambda: source.current != TRUST)


@pytest.mark.parametrize(("failure"), [{"status": 403}, {"status": 500}, {"drop": True}])
async def test_an_unreadable_config_map_prevents_the_start(cluster, api, failure):
    cluster.fail("/api", **failure)
    source = TrustSource(api)

    with pytest.raises(errors.BackendError, match="extension-apiserver-authentication"):
        await source.start()


async def test_tolerant_starts_without_the_config_map(cluster, api, caplog):
    cluster.put(*kubernetes.TRUST, data=DATA)
    cluster.fail("/api", status=403, message="not for you")
    source = TrustSource(api, tolerant=True)

    await source.start()
    assert source.current == Trust()
    async with running(source):
        await until(lambda: source.current == TRUST)

    assert "not for you; started without it" in caplog.text


async def test_a_request_header_ca_file_makes_the_config_map_optional(
    cluster, api, tmp_path, caplog
):
    cluster.fail("/api", status=403)
    (tmp_path / "proxy.crt").write_text(PROXY)
    source = TrustSource(api, proxy_ca_file=tmp_path / "proxy.crt", headers=FLAG_HEADERS)

    await source.start()

    assert source.current == Trust(proxy_cas=PROXY.encode(), headers=FLAG_HEADERS)


async def test_a_file_replaces_only_its_part_of_the_config_map(cluster, api, tmp_path):
    cluster.put(*kubernetes.TRUST, data=DATA)
    (tmp_path / "ca.crt").write_text(OTHER)
    client = TrustSource(api, client_ca_file=tmp_path / "ca.crt", headers=FLAG_HEADERS)
    proxy = TrustSource(api, proxy_ca_file=tmp_path / "ca.crt", headers=FLAG_HEADERS)

    await client.start()
    await proxy.start()

    assert (client.current.client_cas, client.current.proxy_cas, client.current.headers) == (
        OTHER.encode(),
        PROXY.encode(),
        HEADERS,
    )
    assert (proxy.current.client_cas, proxy.current.proxy_cas, proxy.current.headers) == (
        CLIENT.encode(),
        OTHER.encode(),
        FLAG_HEADERS,
    )


async def test_without_an_api_server_only_files_are_used(tmp_path):
    (tmp_path / "ca.crt").write_text(CLIENT)
    source = TrustSource(None, client_ca_file=tmp_path / "ca.crt", headers=FLAG_HEADERS)

    await source.start()

    assert source.current == Trust(client_cas=CLIENT.encode())


async def test_run_returns_if_there_is_nothing_to_follow():
    source = TrustSource(None)

    await source.start()
    await source.run()

    assert source.current == Trust()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), ("no PEM", "cannot read a CA bundle")],
)
async def test_an_unusable_ca_file_prevents_the_start(tmp_path, content, message):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    source = TrustSource(None, client_ca_file=path)

    with pytest.raises(CertificateError, match=f"ca.crt.*{message}"):
        await source.start()


async def test_files_are_followed_and_each_problem_is_logged_once(tmp_path, caplog):
    path = tmp_path / "ca.crt"
    path.write_text(CLIENT)
    intervals = asyncio.Semaphore(0)
    reads = asyncio.Semaphore(0)

    async def sleep(seconds):
        assert seconds == FILES_INTERVAL
        reads.release()
        await intervals.acquire()

    source = TrustSource(None, client_ca_file=path, sleep=sleep)
    await source.start()

    async def read():
        intervals.release()
        await reads.acquire()
        return source.current.client_cas

    async with running(source):
        await reads.acquire()
        unchanged = await read()
        path.unlink()
        missing = [await read(), await read()]
        path.write_text(CLIENT + OTHER)
        both = await read()

    assert unchanged == CLIENT.encode()
    assert missing == [unchanged, unchanged]
    assert both == (CLIENT + OTHER).encode()
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "ca.crt cannot be read" in warning.getMessage()


async def test_a_subscriber_that_rejects_the_cas_is_logged(caplog):
    def subscriber(current):
        raise CertificateError("OpenSSL cannot load it")

    source = TrustSource(None)
    source.subscribe(subscriber)

    assert "OpenSSL cannot load it; clients are not asked for" in caplog.text
