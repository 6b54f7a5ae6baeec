"""Certificates in files, followed: whoever renews the files need tell nobody.

What cannot be used is logged once and changes nothing, so that a pair of which one half has been
written, or that does not match, never breaks what is served.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.tls import context
from certs.bundle import Bundle, CertificateError, Named

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertKeyPair:
    """The files of a certificate, and the names it is for: none stands for those it has itself."""

    certificate: Path
    key: Path
    domains: tuple[str, ...] = ()


def sni(text: str) -> CertKeyPair:
    """A pair as `--tls-sni-cert-key` takes it: `CERT,KEY[:DOMAIN,...]`.

    Raises ValueError in the words of Kubernetes' NamedCertKey.
    """
    files, colon, names = text.partition(":")
    if colon and not names.strip():
        raise ValueError("empty names list is not allowed")
    certificate, *keys = files.split(",")
    if len(keys) != 1:
        raise ValueError("expected comma separated certificate and key file paths")
    domains = tuple(name.strip() for name in names.split(",")) if colon else ()
    return CertKeyPair(
        certificate=Path(certificate.strip()), key=Path(keys[0].strip()), domains=domains
    )


@dataclass(slots=True, kw_only=True)
class _Followed:
    pair: CertKeyPair
    digest: bytes = b""
    bundle: Bundle | None = None
    problem: str = ""

    def look(self) -> bool:
        """Whether the files hold something else than at the last look."""
        digest = b"".join(map(_digest, (self.pair.certificate, self.pair.key)))
        if digest == self.digest:
            return False
        self.digest = digest
        try:
            self.bundle = context.load(self.pair.certificate, self.pair.key)
            self.problem = ""
        except CertificateError as error:
            self.problem = str(error)
        return True


class CertificateWatcher:
    """Serves what the files of `pair` hold, and to whom asks for their names those of `named`.

    Without `pair`, what `live` serves to the others is left to somebody else.
    """

    def __init__(
        self,
        live: context.ReloadingContext,
        pair: CertKeyPair | None,
        named: Iterable[CertKeyPair] = (),
        *,
        interval: float = INTERVAL,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._live = live
        self._main = None if pair is None else _Followed(pair=pair)
        self._named = tuple(_Followed(pair=each) for each in named)
        self._interval = interval
        self._sleep = sleep

    def once(self) -> tuple[str, ...]:
        """Serve what is new; tells what is wrong with those files that have changed."""
        problems: list[str] = []
        if self._main is not None and self._main.look():
            problems.append(self._main.problem or _problem(self._live.serve, self._main.bundle))
        changed = [each for each in self._named if each.look()]
        problems += [each.problem for each in changed]
        if any(not each.problem for each in changed):
            named = [
                Named(bundle=each.bundle, domains=each.pair.domains)
                for each in self._named
                if each.bundle is not None
            ]
            problems.append(_problem(self._live.sni, named))
        return tuple(filter(None, problems))

    async def run(self) -> None:
        """Look again and again."""
        while True:
            await self._sleep(self._interval)
            for problem in self.once():
                log.warning("%s; the certificate from before is served on", problem)


def _problem(serve: Callable[[Any], None], what: object) -> str:
    try:
        serve(what)
    except CertificateError as error:
        return str(error)
    return ""


def _digest(file: Path) -> bytes:
    try:
        return hashlib.sha256(file.read_bytes()).digest()
    except OSError as error:
        return repr(error).encode()
