from __future__ import annotations

import asyncio
import contextlib
import json
import logging

import pytest

from adapter import errors
from adapter.auth import trust
from certs.bundle import CertificateError
from tests import certificates
from tests.fakes import kubernetes

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
HEADERS = trust.Headers(
    allowed_names=("front-proxy-client",),
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
FLAGS = trust.Headers(allowed_names=("proxy",), username_headers=("x-remote-user",))


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


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - whatever it is, it has no event
            await asyncio.sleep(0.01)


async def test_everything_comes_from_the_config_map(cluster, api):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = trust.TrustSource(api)

    await source.start()

    assert source.current == trust.Trust(
        generation=1, client_cas=CLIENT.encode(), proxy_cas=PROXY.encode(), headers=HEADERS
    )


async def test_a_cluster_that_tells_no_uid_headers_has_none(cluster, api):
    """As before Kubernetes 1.33."""
    data = {key: value for key, value in DATA.items() if "uid" not in key}
    cluster.put(*kubernetes.TRUST, data={**data, "requestheader-allowed-names": "[]"})
    source = trust.TrustSource(api)

    await source.start()

    assert source.current.headers.uid_headers == ()
    assert source.current.headers.allowed_names == ()


async def test_what_changes_holds_at_once_and_is_told(cluster, api):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = trust.TrustSource(api)
    await source.start()
    told = []
    source.subscribe(lambda current: told.append(current.generation))

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": PROXY + OTHER})
        await until(lambda: source.current.generation == 2)
        both = source.current.proxy_cas
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": OTHER})
        await until(lambda: source.current.generation == 3)
        cluster.put(*kubernetes.TRUST, data={**DATA, "requestheader-client-ca-file": OTHER})
        cluster.put(*kubernetes.TRUST, data={"client-ca-file": CLIENT})
        await until(lambda: source.current.generation == 4)

    assert both == (PROXY + OTHER).encode()
    assert source.current == trust.Trust(generation=4, client_cas=CLIENT.encode())
    assert told == [1, 2, 3, 4]


async def test_a_config_map_that_goes_away_takes_the_trust_along(cluster, api):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = trust.TrustSource(api)
    await source.start()

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.remove(*kubernetes.TRUST)
        await until(lambda: source.current.generation == 2)

    assert source.current == trust.Trust(generation=2)


async def test_a_config_map_that_appears_later_is_taken(cluster, api):
    source = trust.TrustSource(api)
    await source.start()
    before = source.current

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data=DATA)
        await until(lambda: source.current.generation == 1)

    assert before == trust.Trust()
    assert source.current.headers == HEADERS


@pytest.mark.parametrize(
    ("key", "value", "part"),
    [
        ("client-ca-file", "no PEM", "client_cas"),
        ("requestheader-client-ca-file", PROXY[:200], "proxy_cas"),
        ("requestheader-allowed-names", "[", "headers"),
        ("requestheader-username-headers", '"X-Remote-User"', "headers"),
        ("requestheader-group-headers", "[1]", "headers"),
    ],
)
async def test_a_part_that_cannot_be_read_stays_as_it_was(cluster, api, caplog, key, value, part):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = trust.TrustSource(api)
    await source.start()
    before = source.current
    changed = {
        "client-ca-file": OTHER,
        "requestheader-client-ca-file": OTHER,
        "requestheader-allowed-names": json.dumps(["other"]),
    }

    async with running(source):
        await until(lambda: cluster.watching)
        cluster.put(*kubernetes.TRUST, data={**DATA, **changed, key: value})
        await until(lambda: source.current.generation == 2)

    same = {
        each
        for each in ("client_cas", "proxy_cas", "headers")
        if getattr(source.current, each) == getattr(before, each)
    }
    assert same == {part}
    assert "stays" in caplog.text


async def test_outages_leave_what_was_there(cluster, api, caplog):
    cluster.put(*kubernetes.TRUST, data=DATA)
    source = trust.TrustSource(api)
    await source.start()
    cluster.fail("/api", status=503, times=2)

    async with running(source):
        await until(lambda: len(cluster.requests) >= 3)
        assert source.current.generation == 1
        cluster.put(*kubernetes.TRUST, data={**DATA, "client-ca-file": OTHER})
        await until(lambda: source.current.generation == 2)


@pytest.mark.parametrize(("failure"), [{"status": 403}, {"status": 500}, {"drop": True}])
async def test_a_config_map_that_cannot_be_read_prevents_the_start(cluster, api, failure):
    cluster.fail("/api", **failure)
    source = trust.TrustSource(api)

    with pytest.raises(errors.BackendError, match="extension-apiserver-authentication"):
        await source.start()


async def test_a_failure_is_tolerated_where_that_is_wanted(cluster, api, caplog):
    cluster.put(*kubernetes.TRUST, data=DATA)
    cluster.fail("/api", status=403, message="not for you")
    source = trust.TrustSource(api, tolerant=True)

    await source.start()
    assert source.current == trust.Trust()
    async with running(source):
        await until(lambda: source.current.generation == 1)

    assert "not for you; going on without" in caplog.text


async def test_a_failure_is_tolerated_where_the_proxy_is_known_from_a_file(
    cluster, api, tmp_path, caplog
):
    cluster.fail("/api", status=403)
    (tmp_path / "proxy.crt").write_text(PROXY)
    source = trust.TrustSource(api, proxy_ca_file=tmp_path / "proxy.crt", headers=FLAGS)

    await source.start()

    assert source.current == trust.Trust(generation=1, proxy_cas=PROXY.encode(), headers=FLAGS)


async def test_files_stand_for_their_parts_alone(cluster, api, tmp_path):
    cluster.put(*kubernetes.TRUST, data=DATA)
    (tmp_path / "ca.crt").write_text(OTHER)
    client = trust.TrustSource(api, client_ca_file=tmp_path / "ca.crt", headers=FLAGS)
    proxy = trust.TrustSource(api, proxy_ca_file=tmp_path / "ca.crt", headers=FLAGS)

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
        FLAGS,
    )


async def test_without_a_lookup_only_files_are_believed(tmp_path):
    (tmp_path / "ca.crt").write_text(CLIENT)
    source = trust.TrustSource(None, client_ca_file=tmp_path / "ca.crt", headers=FLAGS)

    await source.start()

    assert source.current == trust.Trust(generation=1, client_cas=CLIENT.encode())


async def test_without_anything_to_follow_there_is_nothing_to_run():
    source = trust.TrustSource(None)

    await source.start()
    await source.run()

    assert source.current == trust.Trust()


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read: No such file"), ("no PEM", "cannot read a CA bundle")],
)
async def test_a_file_that_holds_no_cas_prevents_the_start(tmp_path, content, message):
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_text(content)
    source = trust.TrustSource(None, client_ca_file=path)

    with pytest.raises(CertificateError, match=f"ca.crt.*{message}"):
        await source.start()


async def test_files_are_followed_and_bad_ones_told_once(tmp_path, caplog):
    path = tmp_path / "ca.crt"
    path.write_text(CLIENT)
    looks = asyncio.Semaphore(0)
    done = asyncio.Semaphore(0)

    async def sleep(seconds):
        assert seconds == trust.FILES_INTERVAL
        done.release()
        await looks.acquire()

    source = trust.TrustSource(None, client_ca_file=path, sleep=sleep)
    await source.start()

    async def look():
        looks.release()
        await done.acquire()
        return source.current.generation, source.current.client_cas

    async with running(source):
        await done.acquire()
        unchanged = await look()
        path.unlink()
        gone = [await look(), await look()]
        path.write_text(CLIENT + OTHER)
        both = await look()

    assert unchanged == (1, CLIENT.encode())
    assert gone == [unchanged, unchanged]
    assert both == (2, (CLIENT + OTHER).encode())
    (problem,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "ca.crt cannot be read" in problem.getMessage()


async def test_a_follower_that_cannot_take_the_cas_is_told_about(tmp_path, caplog):
    def follower(current):
        raise CertificateError("OpenSSL does not like it")

    source = trust.TrustSource(None)
    source.subscribe(follower)

    assert "OpenSSL does not like it" in caplog.text
