"""Serving certificates in files: watches the files and serves what they contain.

`serving_certificate` serves the certificate in the Secret that the replicas share.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable

from adapter.file_watcher import FileWatcher
from adapter.server.tls import context
from adapter.settings.sni import CertKeyPair
from certs.bundle import Bundle, CertificateError, Named

log = logging.getLogger(__name__)

_INTERVAL = 1.0
_FALLBACK = "the previous certificate stays in use"


class CertificateWatcher:
    """Serves the certificate of `pair` by default, and those of `named` to clients by SNI.

    Without `pair`, `serving_certificate` sets the default. A pair that cannot be loaded or served
    is logged once and changes nothing, so the two files need not be replaced at once.
    """

    def __init__(
        self,
        tls: context.ReloadingContext,
        pair: CertKeyPair | None,
        named: Iterable[CertKeyPair] = (),
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Serve the certificates. Raises CertificateError for one that cannot be used."""
        self._tls = tls
        self._default = None if pair is None else _watch(pair)
        self._named = tuple((_watch(each), each.domains) for each in named)
        self._sleep = sleep
        if self._default is not None:
            tls.serve(self._default.value)
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


def _watch(pair: CertKeyPair) -> FileWatcher[Bundle]:
    return FileWatcher(
        pair.certificate,
        pair.key,
        load=functools.partial(context.load, pair.certificate, pair.key),
        failure=CertificateError,
        fallback=_FALLBACK,
    )
