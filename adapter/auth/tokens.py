"""Bearer tokens: found in a request's headers, and reviewed by the API server.

Tokens are in no log and in no exception, and are remembered by their digest alone.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from multidict import MultiMapping

from adapter import errors
from adapter.auth import reviews
from adapter.auth import user as users
from adapter.auth.user import User
from adapter.cache import SingleFlightCache

log = logging.getLogger(__name__)

TIMEOUT = 10.0
"""Seconds for one review, repetitions included."""
TTL = 10.0
REMEMBERED = 4096
"""How many verdicts are kept."""
WARNING = (
    '299 - "the provided Authorization header contains extra space before the bearer token, '
    'and is ignored"'
)
"""What the header `Warning` of an answer says where `is_misplaced`."""

_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_PROTOCOL = "base64url.bearer.authorization.k8s.io."


def bearer(headers: Mapping[str, str]) -> str:
    """The token of the Authorization header; empty where there is none.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/bearertoken/bearertoken.go
    """
    return (*_bearer(headers), "")[0]


def is_misplaced(headers: Mapping[str, str]) -> bool:
    """Whether a token is there, but behind one space too many, and thus ignored."""
    return len(_bearer(headers)) == 2 and not bearer(headers)


def _bearer(headers: Mapping[str, str]) -> list[str]:
    scheme, *rest = headers.get("Authorization", "").strip().split(" ", 2)
    return rest if scheme.lower() == "bearer" else []


def websocket(headers: MultiMapping[str]) -> str:
    """The token among the protocols that a browser offers for a websocket; empty without one.

    Raises Unauthenticated for one that is not there in the right way.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/websocket/protocol.go
    """
    if headers.get("Upgrade", "").lower() != "websocket" or not any(
        "upgrade" in value.lower() for value in headers.getall("Connection", ())
    ):
        return ""
    offered = [
        protocol.strip()
        for value in headers.getall("Sec-WebSocket-Protocol", ())
        for protocol in value.split(",")
    ]
    tokens = [each.removeprefix(_PROTOCOL) for each in offered if each.startswith(_PROTOCOL)]
    if len(tokens) > 1:
        raise errors.Unauthenticated("several tokens among the websocket protocols")
    token = _decoded(tokens[0]) if tokens else ""
    if token and len(offered) == 1:
        raise errors.Unauthenticated("no websocket protocol beside the token")
    return token


def _decoded(text: str) -> str:
    """Raises Unauthenticated, without the text."""
    try:
        if "=" in text:
            raise ValueError  # noqa: TRY301 - padded, which Kubernetes refuses
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        raise errors.Unauthenticated("a websocket token that is not base64url of text") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    user: User | None = None
    problem: str = ""
    """Why the review failed; such a verdict is not kept."""


class _Asked:
    """A token as a key: equal by its digest, and without the token itself once that was used."""

    __slots__ = ("_token", "digest")

    def __init__(self, token: str, key: bytes) -> None:
        self._token = token
        self.digest = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=key).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Asked) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def take(self) -> str:
        token, self._token = self._token, ""
        return token


class TokenReviews:
    """Knows whose a token is, by the API server's word, which holds for `ttl` seconds."""

    def __init__(
        self, api: reviews.Api, *, ttl: float = TTL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._api = api
        self._key = os.urandom(32)
        self._verdicts = SingleFlightCache(
            self._review,
            ttl=lambda _, verdict: 0.0 if verdict.problem else ttl,
            max_size=REMEMBERED,
            clock=clock,
        )

    async def user(self, token: str) -> User:
        """Raises Unauthenticated for a token that is nobody's, or cannot be reviewed."""
        verdict = await self._verdicts.get(_Asked(token, self._key))
        if verdict.user is None:
            raise errors.Unauthenticated(verdict.problem or "the token is nobody's")
        return verdict.user

    async def _review(self, asked: _Asked) -> _Verdict:
        token = asked.take()
        document = {
            "kind": "TokenReview",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {},
            "spec": {"token": token},
            "status": {"user": {}},
        }
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await reviews.ask(self._api, _PATH, document, timeout=TIMEOUT)
            user, problem = _judged(answer)
        except (errors.BackendError, TimeoutError) as error:
            problem = str(error) or f"no answer within {TIMEOUT:g} s"
            problem = f"a token cannot be reviewed: {_without(token, problem)}"
            log.warning("%s", problem)
            return _Verdict(problem=problem)
        return _Verdict(user=user, problem=_without(token, problem))


def _without(token: str, text: str) -> str:
    return text.replace(token, "(the token)")


def _judged(answer: Any) -> tuple[User | None, str]:
    """The user, or what the API server has against the token. Raises Broken."""
    try:
        status = answer.get("status") or {}
        if status.get("authenticated") is not True:
            return None, str(status.get("error") or "")
        told = status.get("user") or {}
        extra = {key: _texts(values) for key, values in (told.get("extra") or {}).items()}
        user = User(
            name=_text(told.get("username")),
            groups=_texts(told.get("groups")),
            uid=_text(told.get("uid")),
            extra=MappingProxyType(extra) if extra else users.NO_EXTRA,
        )
    except (AttributeError, TypeError) as error:
        raise errors.Broken(f"POST {_PATH}: the answer is no review: {error!r}") from error
    return users.authenticated(user), ""


def _text(value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value or ""


def _texts(values: Any) -> tuple[str, ...]:
    if values is not None and not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(map(_text, values or ()))
