"""Who asks: by a front proxy's word, a certificate, or a token; else nobody in particular.

The order and the rules are Kubernetes': the first way that succeeds counts, a way that fails does
not end the search, but where one failed and none succeeded nobody is let in as anonymous.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakKeyDictionary

from multidict import MultiMapping

from adapter import errors
from adapter.auth import request_headers, tokens, x509
from adapter.auth import user as users
from adapter.auth.trust import Trust
from adapter.auth.user import User
from certs.bundle import CertificateError
from certs.chain import Authorities, Verified

log = logging.getLogger(__name__)

_DOUBT = 10.0
"""Seconds for which a certificate stays refused that another second may make good."""


class Peer(Protocol):
    """A client that showed certificates when it connected, and holds the key of the first."""

    @property
    def chain(self) -> Sequence[bytes]:
        """In DER, its own first."""

    @property
    def connection(self) -> object:
        """The same for all its requests; hashable, and can be referenced weakly."""


class Tokens(Protocol):
    """Knows whose a token is."""

    async def user(self, token: str) -> User:
        """Raises Unauthenticated."""


class Meter(Protocol):
    """Knows how to show who was let in."""

    def authenticated(self, name: str) -> None: ...

    def unauthenticated(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """What a connection's certificates are worth."""

    is_front_proxy: bool
    user: User | None
    problems: tuple[str, ...]
    until: float


class TrustVerifier:
    """Judges by one generation of trust, and remembers by connection."""

    def __init__(self, trust: Trust) -> None:
        self.trust = trust
        self.reader = request_headers.Reader(trust.headers)
        self.judgements: WeakKeyDictionary[object, PeerIdentity] = WeakKeyDictionary()
        self._proxies = Authorities(trust.proxy_cas) if trust.proxy_cas else None
        self._clients = Authorities(trust.client_cas) if trust.client_cas else None

    def judge(self, chain: Sequence[bytes], now: float) -> PeerIdentity:
        problems: list[str] = []
        ends = [now + _DOUBT]
        is_front_proxy = False
        user = None
        at = datetime.fromtimestamp(now, UTC)
        try:
            if self._proxies is not None:
                verified = self._proxies.verify(chain, now=at)
                self._check_name(verified)
                is_front_proxy = True
                ends.append(verified.until.timestamp())
        except (CertificateError, errors.Unauthenticated) as error:
            problems.append(f"as a front proxy: {error}")
        try:
            if self._clients is not None:
                verified = self._clients.verify(chain, now=at)
                user = x509.user(verified.leaf)
                ends.append(verified.until.timestamp())
        except (CertificateError, errors.Unauthenticated) as error:
            problems.append(f"as a user: {error}")
        if not problems:
            del ends[0]
        return PeerIdentity(
            is_front_proxy=is_front_proxy,
            user=user,
            problems=tuple(problems),
            until=min(ends, default=now + _DOUBT),
        )

    def _check_name(self, verified: Verified) -> None:
        allowed = self.trust.headers.allowed_names
        if allowed and (name := x509.common_name(verified.leaf)) not in allowed:
            raise errors.Unauthenticated(f"subject with cn={name} is not in the allowed list")


class Authenticator:
    """Knows who a caller is."""

    def __init__(
        self,
        trust: Callable[[], Trust],
        reviews: Tokens,
        *,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trust = trust
        self._reviews = reviews
        self._meter = meter
        self._clock = clock
        self._believed = TrustVerifier(trust())

    async def authenticate(self, peer: Peer | None, headers: MultiMapping[str]) -> User:
        """Raises ApiError (401) where credentials were given and none of them is any good.

        https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/authenticatorfactory/delegating.go
        """
        try:
            user = await self._user(peer, headers)
        except errors.ApiError:
            if self._meter is not None:
                self._meter.unauthenticated()
            raise
        if self._meter is not None:
            self._meter.authenticated(user.name)
        return user

    async def _user(self, peer: Peer | None, headers: MultiMapping[str]) -> User:
        problems: tuple[str, ...] = ()
        if peer is not None:
            judgement = self._judged(peer)
            if judgement.is_front_proxy:
                user = self._believed.reader.user(headers)
                if user is not None:
                    return user
            if judgement.user is not None:
                return judgement.user
            problems = judgement.problems
        for find in (tokens.bearer, tokens.websocket):
            try:
                if token := find(headers):
                    return await self._reviews.user(token)
            except errors.Unauthenticated as error:
                problems = (*problems, str(error))
        if problems:
            log.info("said 401: %s", "; ".join(problems))
            raise errors.ApiError(401, "Unauthorized", reason="Unauthorized")
        return users.ANONYMOUS

    def _judged(self, peer: Peer) -> PeerIdentity:
        trust = self._trust()
        if trust is not self._believed.trust:
            self._believed = TrustVerifier(trust)
        now = self._clock()
        known = self._believed.judgements.get(peer.connection)
        if known is not None and now < known.until:
            return known
        judgement = self._believed.judge(peer.chain, now)
        self._believed.judgements[peer.connection] = judgement
        return judgement
