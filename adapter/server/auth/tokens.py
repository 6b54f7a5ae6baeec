"""Bearer tokens: parsed from the Authorization header, authenticated by TokenReview.

Logs and exceptions never contain a token, and the cache holds keyed digests only.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from adapter import bounds, errors
from adapter.cache import SingleFlightCache
from adapter.clients.kubernetes import Kube
from adapter.server.auth.in_flight import WaitingForReview
from adapter.server.auth.reviews import post_review
from adapter.server.auth.user import NO_EXTRA, User, with_authenticated_group

log = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds for one review, including retries."""
TTL = 10.0
"""Default number of seconds that the result of a review is cached."""

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


def bearer(headers: Mapping[str, str]) -> str:
    """Return the token of the Authorization header; empty without one.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/bearertoken/bearertoken.go
    """
    # As in Kubernetes, a second space before the token makes the token empty.
    scheme, token, *_ = (*headers.get("Authorization", "").strip().split(" ", 2), "")
    return token if scheme.lower() == "bearer" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReviewResult:
    """User of a token, or None if the token is rejected or its review failed."""

    user: User | None = None
    error: str = ""
    """Why the review failed; such a result is not cached."""


class _TokenKey:
    """Cache key of a token: compares keyed digests, and drops the token when its review starts."""

    __slots__ = ("_token", "digest")

    def __init__(self, token: str, key: bytes) -> None:
        self._token = token
        self.digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=key).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TokenKey) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def take(self) -> str:
        """Return the token and forget it."""
        token, self._token = self._token, ""
        return token


class TokenReviews:
    """Token authenticator by TokenReview; a single-flight cache keeps results `ttl` seconds.

    `waiting` limits the requests that wait for a review.
    """

    def __init__(
        self,
        api: Kube,
        *,
        ttl: float = TTL,
        waiting: WaitingForReview | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._waiting = waiting or WaitingForReview()
        self._key = os.urandom(32)
        self.results: SingleFlightCache[_TokenKey, _ReviewResult] = SingleFlightCache(
            ttl=lambda _, result: 0.0 if result.error else ttl, max_size=bounds.TOKENS, clock=clock
        )

    async def user(self, token: str) -> User:
        """Return the user of `token`.

        Raises Unauthenticated if it is rejected or not reviewed, and TextError (429) if too many
        requests wait for a review.
        """
        key = _TokenKey(token, self._key)
        result = self.results.cached(key)
        if result is None:
            with self._waiting.slot(None):
                result = await self.results.find(key, lambda: self._review(key))
        if result.user is None:
            raise errors.Unauthenticated(result.error or "bearer token rejected by TokenReview")
        return result.user

    async def _review(self, key: _TokenKey) -> _ReviewResult:
        token = key.take()
        document = {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {},
            "spec": {"token": token},
            "status": {"user": {}},
        }
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await post_review(self._api, _PATH, document, timeout=TIMEOUT)
            user, error = _parse_answer(answer)
        except (errors.BackendError, TimeoutError) as failure:
            reason = str(failure) or f"no answer within {TIMEOUT:g} s"
            error = f"TokenReview failed: {_redact(token, reason)}"
            log.warning("%s", error)
            return _ReviewResult(error=error)
        return _ReviewResult(user=user, error=_redact(token, error))


def _redact(token: str, text: str) -> str:
    return text.replace(token, "<redacted>")


def _parse_answer(answer: Any) -> tuple[User | None, str]:
    """Return the user, or None and `status.error`. Raises Broken if it is not a TokenReview."""
    try:
        status = answer.get("status") or {}
        if status.get("authenticated") is not True:
            return None, str(status.get("error") or "")
        info = status.get("user") or {}
        extra = {key: _strings(values) for key, values in (info.get("extra") or {}).items()}
        user = User(
            name=_string(info.get("username")),
            groups=_strings(info.get("groups")),
            uid=_string(info.get("uid")),
            extra=MappingProxyType(extra) if extra else NO_EXTRA,
        )
    except (AttributeError, TypeError) as error:
        raise errors.Broken(f"POST {_PATH}: malformed TokenReview: {error!r}") from error
    return with_authenticated_group(user), ""


def _string(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value or ""


def _strings(values: Any) -> tuple[str, ...]:
    if values is not None and not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    return tuple(map(_string, values or ()))
