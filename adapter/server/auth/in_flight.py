"""Limits on the number of requests that are served, and of those that wait for a review.

A request that waits for a review takes no place of the in-flight limits of Kubernetes. Therefore
callers without rights cannot keep out those whose decision is cached.
"""

from __future__ import annotations

import contextlib

from adapter import errors
from adapter.server.auth.user import SYSTEM_UNAUTHENTICATED, User

MAX_UNIDENTIFIED = 40
"""Requests of anonymous callers, and with new tokens, that wait for a review. At 200 reviews per
second they delay the reviews of other callers by at most 0.2 s."""
MAX_IDENTIFIED = 400
"""Requests of identified callers that wait for a review, as many as may be served at once."""
_TOO_MANY_REQUESTS = "Too many requests, please try again later."


class MaxInFlight:
    """In-flight limit with `free` slots left; as a context, it holds one of them.

    Entering it raises TextError (429) if no slot is free.
    """

    def __init__(self, free: int) -> None:
        self.free = free

    def __enter__(self) -> None:
        if not self.free:
            raise errors.TextError(429, _TOO_MANY_REQUESTS, headers={"Retry-After": "1"})
        self.free -= 1

    def __exit__(self, *_: object) -> None:
        self.free += 1


class WaitingForReview:
    """Limits on requests that wait for a TokenReview or a SubjectAccessReview."""

    def __init__(
        self, *, unidentified: int = MAX_UNIDENTIFIED, identified: int = MAX_IDENTIFIED
    ) -> None:
        self._unidentified = MaxInFlight(unidentified)
        self._identified = MaxInFlight(identified)

    def slot(self, user: User | None) -> contextlib.AbstractContextManager[None]:
        """Hold a slot for a request of `user`, None if its token is not reviewed yet.

        Raises TextError (429) on entry if none is free.
        """
        unidentified = user is None or SYSTEM_UNAUTHENTICATED in user.groups
        return self._unidentified if unidentified else self._identified
