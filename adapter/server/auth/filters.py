"""Filters in front of the router: authentication, impersonation, authorization, in-flight limit.

401 precedes 403, 403 precedes 429, and 429 precedes every answer of the router. In Kubernetes, 429
precedes 403: there, requests that wait for a review take places from those that are allowed. Here,
`in_flight` limits the requests that wait, and only allowed ones count towards Kubernetes' limits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass

from adapter import errors
from adapter.server.apimachinery.heads import Head
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.auth import request_headers
from adapter.server.auth.attributes import Attributes, authorizer_attributes
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import MASTERS, Authorizer
from adapter.server.auth.impersonation import impersonate
from adapter.server.auth.in_flight import MaxInFlight
from adapter.server.auth.peer import peer_of
from adapter.server.auth.user import Caller, User
from adapter.server.http.request import Request

log = logging.getLogger(__name__)

MAX_READ_ONLY = 400
MAX_MUTATING = 200
"""Default in-flight limits of Kubernetes, for get and list and for all other verbs."""

_READ_ONLY_VERBS = frozenset({"get", "list"})
_CAN_READ_TIMEOUT = 1.0
"""Seconds that an error may wait for the review that decides whether it includes causes."""
_MAX_REVIEWS = 32
"""Reviews in progress for which no request waits."""


class Guard:
    """Filters of all requests."""

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        *,
        max_read_only: int = MAX_READ_ONLY,
        max_mutating: int = MAX_MUTATING,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._read_only = MaxInFlight(max_read_only)
        self._mutating = MaxInFlight(max_mutating)
        self._reviews: dict[Attributes, asyncio.Task[bool]] = {}
        """Those for which no request waits."""

    async def __call__(self, request: Request, head: Head, info: RequestInfo) -> Caller:
        """Return the caller of a request, whose meaning is `info`. Raises ApiError."""
        peer = peer_of(request.client)
        user = self._authenticator.known(peer, head)
        if user is not None and (known := self._known(head, user, info)) is not None:
            return known
        user = await self._authenticator.authenticate(peer, head)
        attributes = await self._attributes(head, user, info)
        await self._authorizer.authorize(attributes, target=request.target)
        caller = _AuthorizedCaller(self, attributes.user, self._in_flight(attributes))
        of_proxy = head.user is not None and attributes.user is user is head.user[1]
        if of_proxy and MASTERS not in user.groups:  # their slot depends on the others
            head.admitted = _Admitted(info, attributes, caller)
        return caller

    def _known(self, head: Head, user: User, info: RequestInfo) -> Caller | None:
        """Return the caller if the request is known to be allowed, and count it."""
        admitted: _Admitted | None = head.admitted
        if admitted is None or admitted.info is not info or admitted.attributes.user is not user:
            return None
        decision = self._authorizer.known(admitted.attributes)
        if decision is None or not decision.allowed:
            return None
        self._authenticator.count(user)
        self._authorizer.count(decision)
        return admitted.caller

    async def _attributes(self, head: Head, user: User, info: RequestInfo) -> Attributes:
        """Return the attributes of the request, by the user that `user` impersonates, if any."""
        requested = request_headers.impersonation(head.headers)
        if requested is not None:
            requester, user = user, await impersonate(requested, user, self._authorizer.review)
            log.debug("%r impersonates %r", requester.name, user.name)
        return authorizer_attributes(user, info)

    def is_known_to_be_allowed(self, attributes: Attributes) -> bool:
        """Return whether a request is allowed; False, and start a review, if that is not known."""
        decision = self._authorizer.known(attributes)
        if decision is not None:
            return decision.allowed
        if attributes not in self._reviews and len(self._reviews) < _MAX_REVIEWS:
            task = asyncio.create_task(self.is_allowed(attributes, timeout=None))
            self._reviews[attributes] = task
            task.add_done_callback(lambda _: self._reviews.pop(attributes))
        return False

    async def is_allowed(self, attributes: Attributes, *, timeout: float | None) -> bool:
        """Return whether a request is allowed; False if the review fails or takes too long."""
        try:
            async with asyncio.timeout(timeout):
                decision = await self._authorizer.review(attributes)
        except (errors.ApiError, errors.BackendError, TimeoutError) as error:
            name, path = attributes.user.name, attributes.path
            log.info("SubjectAccessReview of %r for get %s failed: %r", name, path, error)
            return False
        return decision.allowed

    def _in_flight(self, attributes: Attributes) -> contextlib.AbstractContextManager[None]:
        """Return a context that holds a slot of the in-flight limit.

        Watches need none, and system:masters get one even above the limit. Raises TextError (429).
        """
        if attributes.verb == "watch":
            return contextlib.nullcontext()
        limit = self._read_only if attributes.verb in _READ_ONLY_VERBS else self._mutating
        if not limit.free and MASTERS in attributes.user.groups:
            return contextlib.nullcontext()
        return limit


@dataclass(frozen=True, slots=True)
class _Admitted:
    """A request of a user that a front proxy named, once it was authorized."""

    info: RequestInfo
    attributes: Attributes
    caller: Caller


@dataclass(frozen=True, slots=True)
class _AuthorizedCaller:
    """Caller whose request has passed the filters."""

    guard: Guard
    user: User
    slot: contextlib.AbstractContextManager[None]

    async def may_read(self, path: str) -> bool:
        return await self.guard.is_allowed(_to_get(self.user, path), timeout=_CAN_READ_TIMEOUT)

    def is_known_to_read(self, path: str) -> bool:
        return self.guard.is_known_to_be_allowed(_to_get(self.user, path))


def _to_get(user: User, path: str) -> Attributes:
    return Attributes(user=user, verb="get", is_resource_request=False, path=path)
