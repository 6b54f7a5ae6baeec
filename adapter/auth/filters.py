"""What a request passes before it is routed, in Kubernetes' order: who, as whom, how many, whether.

Who cannot say who they are get 401, before the limit to requests at the same time (429), before
what is forbidden (403), before everything that the surface says.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Iterator
from typing import Protocol

from aiohttp import web
from multidict import MultiMapping

from adapter import errors
from adapter.auth import attributes, authorization, request_headers, tokens
from adapter.auth.impersonation import Impersonations
from adapter.auth.peer import Peer, read_peer
from adapter.auth.user import User
from adapter.http import responses
from adapter.http.request_info import RequestInfo

log = logging.getLogger(__name__)

READING = 400
CHANGING = 200
"""How many requests are answered at the same time, of those that read and of all others."""

_READING = frozenset({"get", "list"})
_AFTERTHOUGHT_SECONDS = 1.0
"""What a caller whose answer is ready waits, at most, to be told more."""
_OVERLOAD = "Too many requests, please try again later."


class Authenticator(Protocol):
    """Knows who a caller is."""

    async def authenticate(self, peer: Peer | None, headers: MultiMapping[str]) -> User:
        """Raises ApiError (401)."""


class Guard:
    """Lets through to a responder those who may have what it gives."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: authorization.Authorizer,
        *,
        reading: int = READING,
        changing: int = CHANGING,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._impersonations = Impersonations(authorizer.review)
        self._reading = MaxInFlight(reading)
        self._changing = MaxInFlight(changing)

    def __call__(self, respond: responses.Handler) -> responses.Handler:
        """`respond`, raising ApiError for those who may not ask it."""

        async def guarded(request: web.BaseRequest, info: RequestInfo) -> responses.Answer:
            if not tokens.is_misplaced(request.headers):
                return await self._passed(request, info, respond)
            warning = {"Warning": tokens.WARNING}
            try:
                answer = await self._passed(request, info, respond)
            except errors.ApiError as error:
                error.headers.update(warning)
                raise
            return dataclasses.replace(answer, headers={**answer.headers, **warning})

        return guarded

    async def _passed(
        self, request: web.BaseRequest, info: RequestInfo, respond: responses.Handler
    ) -> responses.Answer:
        peer = read_peer(request.transport)
        user = await self._authenticator.authenticate(peer, request.headers)
        asked = attributes.attributes(user, info)
        wanted = request_headers.impersonation(request.headers)
        if wanted is not None:
            user = await self._impersonations.user(wanted, asked)
            log.debug("%r acts as %r", asked.user.name, user.name)
            asked = dataclasses.replace(asked, user=user)
        with self._place(asked):
            await self._authorizer.authorize(asked, target=request.raw_path)
            request[responses.CAN_READ_DISCOVERY] = lambda path: self._reads(asked.user, path)
            return await respond(request, info)

    async def _reads(self, user: User, path: str) -> bool:
        """Whether `user` may get `path`; where that cannot be had at once, no."""
        asked = attributes.Attributes(user=user, verb="get", is_resource_request=False, path=path)
        try:
            async with asyncio.timeout(_AFTERTHOUGHT_SECONDS):
                verdict = await self._authorizer.review(asked)
        except (errors.BackendError, TimeoutError) as error:
            log.info("whether %r may get %s is unknown: %r", user.name, path, error)
            return False
        return verdict.allowed

    def _place(self, asked: attributes.Attributes) -> contextlib.AbstractContextManager[None]:
        """A place among those who are answered now; watches take none. Raises TextError (429)."""
        if asked.verb == "watch":
            return contextlib.nullcontext()
        places = self._reading if asked.verb in _READING else self._changing
        if places.free or authorization.MASTERS not in asked.user.groups:
            return places.taken()
        return contextlib.nullcontext()


class MaxInFlight:
    def __init__(self, free: int) -> None:
        self.free = free

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Raises TextError (429) where none is free."""
        if not self.free:
            raise errors.TextError(429, _OVERLOAD, headers={"Retry-After": "1"})
        self.free -= 1
        try:
            yield
        finally:
            self.free += 1
