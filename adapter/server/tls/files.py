"""Serving certificates in files: watches the files and serves what they contain.

`serving_certificate` serves the certificate in the Secret that the replicas share.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from adapter.file_watcher import FileWatcher
from adapter.files import read_file
from adapter.server.tls.context import ReloadingContext
from adapter.settings.serving import CertKeyPair
from certs.bundle import Bundle, CertificateError, Named

log = logging.getLogger(__name__)

_INTERVAL = 1.0
_FALLBACK = "the previous certificate stays in use"


class CertificateWatcher:
    """Serves the certificate of `default` by default, and those of `named` to clients by SNI.

    `tls` serves the first value of `default`. Without it, `serving_certificate` sets the default.
    A pair that cannot be loaded or served is logged once and changes nothing, so the two files need
    not be replaced at once.
    """

    def __init__(
        self,
        tls: ReloadingContext,
        default: FileWatcher[Bundle] | None,
        named: Iterable[CertKeyPair] = (),
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Serve the certificates of `named`. Raises CertificateError for an unusable one."""
        self._tls = tls
        self._default = default
        self._named = tuple((watch(each), each.domains) for each in named)
        self._sleep = sleep
        self._serve_named()

    def poll(self) -> None:
        """Serve the certificates whose files have changed."""
        try:
            if self._default is not None and self._default.poll():
                self._tls.serve(self._default.value)
            changed = [watcher.poll() for watcher, _ in self._named]
            if any(changed):
                self._serve_named()
        except CertificateError as error:  # refused by OpenSSL
            log.warning("%s; %s", error, _FALLBACK)

    async def run(self) -> None:
        """Poll the files every second."""
        while True:
            await self._sleep(_INTERVAL)
            self.poll()

    def _serve_named(self) -> None:
        self._tls.serve_sni(
            [Named(bundle=watcher.value, domains=domains) for watcher, domains in self._named]
        )


def watch(pair: CertKeyPair) -> FileWatcher[Bundle]:
    """Return a watcher of a certificate and its key. Raises CertificateError, naming the files."""

    def load() -> Bundle:
        try:
            return Bundle.parse(read_file(pair.certificate), read_file(pair.key))
        except OSError as error:
            raise CertificateError(f"{error.filename} cannot be read: {error.strerror}") from error
        except CertificateError as error:
            raise CertificateError(f"{pair.certificate} and {pair.key}: {error}") from error

    return FileWatcher(
        pair.certificate, pair.key, load=load, failure=CertificateError, fallback=_FALLBACK
    )
