from __future__ import annotations

import asyncio
import datetime as dt
import logging
from pathlib import Path

import pytest

from adapter.server.tls import context
from adapter.settings import serving
from certs.bundle import Bundle, CertificateError
from certs.issue import issue_temporary
from tools.certificates import Holder

NOW = dt.datetime.now(dt.UTC)
FIRST, SECOND = (issue_temporary(("127.0.0.1",), now=NOW) for _ in range(2))
NAMED = Holder("named", now=NOW, dns=("own.test",)).bundle


def write(folder: Path, bundle: Bundle, *domains: str) -> serving.CertKeyPair:
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(bundle.chain_pem)
    (folder / "tls.key").write_bytes(bundle.key_pem)
    return serving.CertKeyPair(
        certificate=folder / "tls.crt", key=folder / "tls.key", domains=domains
    )


class RecordingContext:
    """Stands in for ReloadingContext and records what it is to serve."""

    def __init__(self) -> None:
        self.served = []
        self.named = []

    def serve(self, bundle):
        context.context(bundle)
        self.served.append(bundle.leaf)

    def serve_sni(self, named):
        self.named.append([(each.bundle.leaf, each.domains) for each in named])


@pytest.fixture
def tls():
    return RecordingContext()


@pytest.mark.parametrize(
    ("text", "certificate", "key", "domains"),
    [
        ("a.crt,a.key", "a.crt", "a.key", ()),
        (" /x/a.crt , /x/a.key ", "/x/a.crt", "/x/a.key", ()),
        ("a.crt,a.key:one.test, *.two.test", "a.crt", "a.key", ("one.test", "*.two.test")),
    ],
)
def test_sni_flag_is_parsed(text, certificate, key, domains):
    assert serving.parse_sni_pair(text) == serving.CertKeyPair(
        certificate=Path(certificate), key=Path(key), domains=domains
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.crt", "expected comma separated certificate and key file paths"),
        ("a,b,c", "expected comma separated certificate and key file paths"),
        ("a.crt,a.key: ", "empty names list is not allowed"),
    ],
)
def test_malformed_sni_flag_is_refused_with_the_messages_of_kubernetes(text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        serving.parse_sni_pair(text)


def test_only_changed_files_are_served_again(tmp_path, tls):
    named = write(tmp_path / "sni", NAMED, "a.test")
    watcher = context.CertificateWatcher(
        tls, context.watch(write(tmp_path / "main", FIRST)), [named]
    )

    watcher.poll()
    assert (tls.served, tls.named) == ([], [[(NAMED.leaf, ("a.test",))]])
    write(tmp_path / "main", SECOND)
    watcher.poll()
    assert (tls.served, len(tls.named)) == ([SECOND.leaf], 1)
    write(tmp_path / "sni", SECOND)
    watcher.poll()

    assert tls.served == [SECOND.leaf]
    assert tls.named[1:] == [[(SECOND.leaf, ("a.test",))]]


def test_half_replaced_pair_is_logged_once_and_served_when_it_is_complete(tmp_path, tls, caplog):
    pair = write(tmp_path, FIRST)
    watcher = context.CertificateWatcher(tls, context.watch(pair))

    pair.certificate.write_bytes(SECOND.chain_pem)
    for _ in range(2):
        watcher.poll()

    (record,) = caplog.records
    assert record.getMessage().startswith(f"{pair.certificate} and {pair.key}: ")
    assert record.getMessage().endswith("; the previous certificate stays in use")
    assert tls.served == []
    pair.key.write_bytes(SECOND.key_pem)
    watcher.poll()
    assert tls.served == [SECOND.leaf]


def test_bad_pair_does_not_stop_the_others_from_being_reloaded(tmp_path, tls, caplog):
    bad, good = write(tmp_path / "bad", FIRST), write(tmp_path / "good", FIRST)
    watcher = context.CertificateWatcher(tls, None, [bad, good])

    bad.key.unlink()
    write(tmp_path / "good", NAMED)
    watcher.poll()

    assert "tls.key cannot be read: No such file" in caplog.text
    assert tls.named[-1] == [(FIRST.leaf, ()), (NAMED.leaf, ())]
    assert tls.served == []


def test_unusable_pair_prevents_the_start(tmp_path, tls):
    missing = serving.CertKeyPair(certificate=tmp_path / "none.crt", key=tmp_path / "none.key")

    with pytest.raises(CertificateError, match=r"none\.crt cannot be read"):
        context.CertificateWatcher(tls, context.watch(write(tmp_path, FIRST)), [missing])


def test_certificate_that_openssl_refuses_changes_nothing(tmp_path, tls, caplog):
    watcher = context.CertificateWatcher(tls, context.watch(write(tmp_path, FIRST)))
    mismatched = Bundle(chain=SECOND.chain, key=FIRST.key)
    tls.serve = lambda _: context.context(mismatched)

    write(tmp_path, SECOND)
    for _ in range(2):
        watcher.poll()

    (record,) = caplog.records
    assert "cannot be served" in record.getMessage()
    assert tls.served == []
    del tls.serve  # as when there is space for its files again
    watcher.poll()
    assert tls.served == [SECOND.leaf]


async def test_run_polls_every_second(tmp_path, tls, caplog):
    polls, polled = asyncio.Queue(), asyncio.Queue()

    async def sleep(seconds):
        assert seconds == 1.0
        polled.put_nowait(None)
        await polls.get()

    pair = write(tmp_path, FIRST)
    watcher = context.CertificateWatcher(tls, context.watch(pair), sleep=sleep)
    running = asyncio.create_task(watcher.run())
    await polled.get()

    for contents in (b"nonsense", SECOND.chain_pem):
        pair.certificate.write_bytes(contents)
        pair.key.write_bytes(SECOND.key_pem)
        polls.put_nowait(None)
        await polled.get()
    running.cancel()

    assert tls.served == [SECOND.leaf]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
