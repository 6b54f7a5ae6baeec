from __future__ import annotations

import asyncio
import datetime as dt
import logging
from pathlib import Path

import pytest

from adapter.tls import context
from adapter.tls import files as pairs
from certs.bundle import Bundle
from tests.certificates import Holder

NOW = dt.datetime.now(dt.UTC)
FIRST, SECOND = (context.issued("127.0.0.1", now=NOW) for _ in range(2))
NAMED = Holder("named", now=NOW, dns=("own.test",)).bundle


def write(folder: Path, bundle: Bundle) -> pairs.CertKeyPair:
    folder.mkdir(exist_ok=True)
    (folder / "tls.crt").write_bytes(bundle.chain_pem)
    (folder / "tls.key").write_bytes(bundle.key_pem)
    return pairs.CertKeyPair(certificate=folder / "tls.crt", key=folder / "tls.key")


class ReloadingContext:
    """Stands for the TLS context: remembers what it is to serve."""

    def __init__(self) -> None:
        self.served = []
        self.named = []

    def serve(self, bundle):
        context.context(bundle)
        self.served.append(bundle.leaf)

    def sni(self, named):
        self.named.append([(each.bundle.leaf, each.domains) for each in named])


@pytest.mark.parametrize(
    ("text", "certificate", "key", "domains"),
    [
        ("a.crt,a.key", "a.crt", "a.key", ()),
        (" /x/a.crt , /x/a.key ", "/x/a.crt", "/x/a.key", ()),
        ("a.crt,a.key:one.test, *.two.test", "a.crt", "a.key", ("one.test", "*.two.test")),
    ],
)
def test_the_flag_of_a_pair_is_read(text, certificate, key, domains):
    pair = pairs.sni(text)

    assert pair == pairs.CertKeyPair(certificate=Path(certificate), key=Path(key), domains=domains)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.crt", "expected comma separated certificate and key file paths"),
        ("a,b,c", "expected comma separated certificate and key file paths"),
        ("a.crt,a.key: ", "empty names list is not allowed"),
    ],
)
def test_what_is_no_pair_is_refused_in_the_originals_words(text, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        pairs.sni(text)


def test_only_what_changed_is_served_anew(tmp_path):
    live = ReloadingContext()
    named = pairs.CertKeyPair(
        certificate=write(tmp_path / "sni", NAMED).certificate,
        key=tmp_path / "sni/tls.key",
        domains=("a.test",),
    )
    files = pairs.CertificateWatcher(live, write(tmp_path / "main", FIRST), [named])

    assert [files.once(), files.once()] == [(), ()]
    assert live.served == [FIRST.leaf]
    write(tmp_path / "main", SECOND)
    assert files.once() == ()

    assert live.served == [FIRST.leaf, SECOND.leaf]
    assert live.named == [[(NAMED.leaf, ("a.test",))]]


def test_a_secret_that_is_swapped_whole_is_noticed(tmp_path):
    write(tmp_path / "..1", FIRST)
    write(tmp_path / "..2", SECOND)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(Path("..data", name))
    live = ReloadingContext()
    files = pairs.CertificateWatcher(
        live, pairs.CertKeyPair(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")
    )
    files.once()

    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    files.once()

    assert live.served == [FIRST.leaf, SECOND.leaf]


def test_half_a_change_is_told_once_and_served_when_it_is_whole(tmp_path):
    live = ReloadingContext()
    pair = write(tmp_path, FIRST)
    files = pairs.CertificateWatcher(live, pair)
    files.once()

    pair.certificate.write_bytes(SECOND.chain_pem)
    first, second = files.once(), files.once()

    assert "the private key does not match the certificate" in first[0]
    assert second == ()
    assert live.served == [FIRST.leaf]
    pair.key.write_bytes(SECOND.key_pem)
    assert files.once() == ()
    assert live.served == [FIRST.leaf, SECOND.leaf]


def test_a_file_that_vanishes_is_told_once(tmp_path):
    live = ReloadingContext()
    pair = write(tmp_path, FIRST)
    files = pairs.CertificateWatcher(live, pair)
    files.once()

    pair.key.unlink()

    assert "tls.key cannot be read: No such file" in files.once()[0]
    assert files.once() == ()
    assert live.served == [FIRST.leaf]


def test_a_bad_pair_of_several_leaves_the_others(tmp_path):
    live = ReloadingContext()
    bad = pairs.CertKeyPair(certificate=tmp_path / "none.crt", key=tmp_path / "none.key")
    files = pairs.CertificateWatcher(live, None, [bad, write(tmp_path / "sni", NAMED)])

    (problem,) = files.once()

    assert "none.crt cannot be read" in problem
    assert live.named == [[(NAMED.leaf, ())]]
    assert live.served == []


def test_what_openssl_refuses_is_told(tmp_path):
    weak = context.issued("127.0.0.1", now=NOW)
    live = context.ReloadingContext(FIRST)
    live.serve = lambda _: context.context(Bundle(chain=weak.chain, key=FIRST.key))
    files = pairs.CertificateWatcher(live, write(tmp_path, SECOND))

    (problem,) = files.once()

    assert "cannot be served" in problem


async def test_a_change_is_served_within_a_look(tmp_path, caplog):
    looks = asyncio.Queue()

    async def sleep(seconds):
        assert seconds == 2.0
        await looks.get()

    live = ReloadingContext()
    pair = write(tmp_path, FIRST)
    files = pairs.CertificateWatcher(live, pair, interval=2.0, sleep=sleep)
    files.once()
    running = asyncio.create_task(files.run())

    for contents in (b"nonsense", SECOND.chain_pem):
        pair.certificate.write_bytes(contents)
        pair.key.write_bytes(SECOND.key_pem)
        looks.put_nowait(None)
        await asyncio.sleep(0.01)
    running.cancel()

    assert live.served == [FIRST.leaf, SECOND.leaf]
    ((_, level, message),) = caplog.record_tuples
    assert level == logging.WARNING
    assert message.endswith("the certificate from before is served on")
