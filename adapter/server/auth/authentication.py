"""Authentication of a request: front proxy, client certificate, bearer token, else anonymous.

Order and rules are those of Kubernetes. The first method that succeeds determines the user. If one
failed and none succeeded, the answer is 401, not anonymous access. Authorization is in
`authorization`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from adapter import errors, telemetry
from adapter.server.apimachinery.heads import Head
from adapter.server.auth import request_headers, tokens
from adapter.server.auth.peer import Peer, PeerIdentity, certificate_user, common_name
from adapter.server.auth.trust import Trust
from adapter.server.auth.user import ANONYMOUS, User
from certs.bundle import CertificateError
from certs.chain import ClientCAs, Verified

log = logging.getLogger(__name__)

_TTL = 10.0
"""Maximum seconds to cache an identity: a certificate that is not yet valid may become valid."""


class TrustVerifier:
    """Verifier of client certificates against one `Trust`; it caches nothing."""

    def __init__(self, trust: Trust) -> None:
        self.trust = trust
        self._proxy_cas = ClientCAs(trust.proxy_cas) if trust.proxy_cas else None
        self._client_cas = ClientCAs(trust.client_cas) if trust.client_cas else None

    def identify(self, chain: Sequence[bytes], now: float) -> PeerIdentity:
        """Return who presents `chain` at Unix time `now`. Takes 0.15 ms."""
        at = datetime.fromtimestamp(now, UTC)
        is_front_proxy = False
        user = None
        failures: list[str] = []
        expires = now + _TTL
        try:
            if self._proxy_cas is not None:
                verified = self._proxy_cas.verify(chain, now=at)
                self._check_allowed_name(verified)
                is_front_proxy = True
                expires = min(expires, verified.until.timestamp())
        except (CertificateError, errors.Unauthenticated) as error:
            failures.append(f"as front proxy: {error}")
        try:
            if self._client_cas is not None:
                verified = self._client_cas.verify(chain, now=at)
                user = certificate_user(verified.leaf)
                expires = min(expires, verified.until.timestamp())
        except (CertificateError, errors.Unauthenticated) as error:
            failures.append(f"as client: {error}")
        return PeerIdentity(
            trust=self.trust,
            is_front_proxy=is_front_proxy,
            user=user,
            failures=tuple(failures),
            expires=expires,
        )

    def _check_allowed_name(self, verified: Verified) -> None:
        allowed = self.trust.headers.allowed_names
        if allowed and (name := common_name(verified.leaf)) not in allowed:
            raise errors.Unauthenticated(f"subject with cn={name} is not in the allowed list")


class Authenticator:
    """Authenticator by client certificates, under the current `Trust`, and by TokenReview."""

    def __init__(
        self,
        trust: Callable[[], Trust],
        reviews: tokens.TokenReviews,
        *,
        meter: telemetry.AuthMetrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._trust = trust
        self._reviews = reviews
        self._meter = meter or telemetry.AuthMetrics(CollectorRegistry())
        self._clock = clock
        self._verifier = TrustVerifier(trust())

    def known(self, peer: Peer, head: Head) -> User | None:
        """Return the user that the front proxy names, if that is known already."""
        trust = self._trust()
        identity = self._known_identity(peer, trust)
        if identity is None or not identity.is_front_proxy:
            return None
        return _known_user(head, trust)

    async def authenticate(self, peer: Peer, head: Head) -> User:
        """Return the user of a request. Raises ApiError (401) if all its credentials are rejected.

        https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/authenticatorfactory/delegating.go
        """
        try:
            user = await self._authenticate(peer, head)
        except errors.ApiError:
            self._meter.unauthenticated()
            raise
        self.count(user)
        return user

    def count(self, user: User) -> None:
        """Count an authenticated request."""
        self._meter.authenticated(user.name)

    async def _authenticate(self, peer: Peer, head: Head) -> User:
        failures: tuple[str, ...] = ()
        if peer.chain:
            identity = self._identify(peer)
            if identity.is_front_proxy:
                user = _front_proxy_user(head, identity.trust)
                if user is not None:
                    return user
            if identity.user is not None:
                return identity.user
            failures = identity.failures
        if token := tokens.bearer(head.headers):
            try:
                return await self._reviews.user(token)
            except errors.Unauthenticated as error:
                failures = (*failures, str(error))
        if failures:
            log.info("request rejected with 401: %s", "; ".join(failures))
            raise errors.ApiError(401, "Unauthorized", reason="Unauthorized")
        return ANONYMOUS

    def _known_identity(self, peer: Peer, trust: Trust) -> PeerIdentity | None:
        """Return the identity of `peer` under `trust`, if that is known and has not expired."""
        identity = peer.identity
        if identity is None or identity.trust is not trust or self._clock() >= identity.expires:
            return None
        return identity

    def _identify(self, peer: Peer) -> PeerIdentity:
        """Return the identity of `peer`, from the cache if it has not expired."""
        trust = self._trust()
        identity = self._known_identity(peer, trust)
        if identity is None:
            if trust is not self._verifier.trust:
                self._verifier = TrustVerifier(trust)
            peer.identity = identity = self._verifier.identify(peer.chain, self._clock())
        return identity


def _known_user(head: Head, trust: Trust) -> User | None:
    """Return the user that front proxies named in `head` under `trust`, if that is known."""
    if head.user is None or head.user[0] is not trust:
        return None
    user: User = head.user[1]
    return user


def _front_proxy_user(head: Head, trust: Trust) -> User | None:
    """Return the user that the request headers name; None without a user name."""
    user = _known_user(head, trust)
    if user is None:
        user = request_headers.front_proxy_user(head.headers, trust.headers)
        if user is not None:
            head.user = trust, user
    return user
