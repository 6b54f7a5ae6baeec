"""Authorization of a request: system:masters, always-allowed paths, else a SubjectAccessReview.

What the API server does not allow is answered with 403, in Kubernetes' wording. If the review
fails, the answer is 500. Attributes and wording are in `attributes`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from adapter import bounds, errors, telemetry
from adapter.cache import SingleFlightCache
from adapter.clients.kubernetes import Kube
from adapter.server.auth.attributes import Attributes, forbidden, review_spec, sanitize
from adapter.server.auth.in_flight import WaitingForReview
from adapter.server.auth.reviews import post_review
from rules.quoting import quote_shortened

MASTERS = "system:masters"
ALWAYS_ALLOWED_PATHS = ("/healthz", "/readyz", "/livez")
ALLOWED_TTL = 60.0
DENIED_TTL = 10.0
REVIEW_FAILED = "authorization check failed; see the log of the adapter"
"""Message for clients, who must not see the API server's error."""

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews?timeout=10s"
_TIMEOUT = 10.0
"""Seconds for each attempt."""
_ENTRY_SIZE = 1024
"""Estimated bytes of a cached decision, without the attributes and the user."""
_MAX_CONTROLLED_SIZE = 10_000
"""Larger attributes are not cached, as in Kubernetes."""
_ALLOWED_AND_DENIED = "webhook subject access review returned both allow and deny response"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessDecision:
    """Outcome of a review: 500 if `error` is set; else 403 unless the request is allowed."""

    allowed: bool
    denied: bool = False
    """Whether an authorizer denied explicitly; otherwise none had an opinion."""
    reason: str = ""
    error: str = ""
    """Why the API server's answer is not a decision."""

    @property
    def result(self) -> str:
        """Label value of Kubernetes' authorization_attempts_total."""
        if self.error:
            return "error"
        if self.allowed:
            return "allowed"
        return "denied" if self.denied else "no-opinion"


class AlwaysAllowedPaths:
    """Always-allowed paths: exact ones, and prefixes that end in `*`."""

    def __init__(self, paths: Iterable[str]) -> None:
        trimmed = [path.removeprefix("/") for path in paths]
        self._exact = frozenset(path for path in trimmed if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in trimmed if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        trimmed = path.removeprefix("/")
        return trimmed in self._exact or trimmed.startswith(self._prefixes)


class Authorizer:
    """Authorizer by SubjectAccessReview, with a single-flight cache of decisions.

    `api` needs the rights of the ClusterRole system:auth-delegator. TTLs are in seconds. `waiting`
    limits the requests that wait for a review; cached decisions do not wait.
    """

    def __init__(
        self,
        api: Kube,
        *,
        allowed_ttl: float = ALLOWED_TTL,
        denied_ttl: float = DENIED_TTL,
        always_allow_paths: Iterable[str] = ALWAYS_ALLOWED_PATHS,
        waiting: WaitingForReview | None = None,
        meter: telemetry.AuthMetrics | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._waiting = waiting or WaitingForReview()
        self._sleep = sleep
        self._meter = meter or telemetry.AuthMetrics(CollectorRegistry())
        self._open_paths = AlwaysAllowedPaths(always_allow_paths)
        self._allowed_ttl = allowed_ttl
        self._denied_ttl = denied_ttl
        self.decisions: SingleFlightCache[Attributes, AccessDecision] = SingleFlightCache(
            ttl=self._ttl, max_size=bounds.DECISIONS, size=_entry_size, clock=clock
        )

    async def authorize(self, attributes: Attributes, *, target: str) -> None:
        """Return if the request is allowed.

        Raises ApiError (403) if it is not, TextError (500) with the request's `target` if the
        review fails, and TextError (429) if too many requests wait for a review.
        """
        try:
            decision = await self.review(attributes)
        except errors.BackendError as error:
            self._meter.authorized("error")
            raise _internal_error(target, REVIEW_FAILED) from error
        self.count(decision)
        if decision.error:
            raise _internal_error(target, decision.error)
        if not decision.allowed:
            raise forbidden(attributes, decision.reason)

    def count(self, decision: AccessDecision) -> None:
        """Count a request by the decision on it."""
        self._meter.authorized(decision.result)

    async def review(self, attributes: Attributes) -> AccessDecision:
        """Return the decision on `attributes`.

        Raises BackendError if the review fails, and TextError (429) if too many requests wait for
        one.
        """
        decision = self.known(attributes)
        if decision is not None:
            return decision
        with self._waiting.slot(attributes.user):
            return await self.decisions.find(attributes, lambda: self._review(attributes))

    def known(self, attributes: Attributes) -> AccessDecision | None:
        """Return the decision on `attributes` if it needs no review or is cached, else None."""
        if MASTERS in attributes.user.groups:
            return AccessDecision(allowed=True)
        if not attributes.is_resource_request and attributes.path in self._open_paths:
            return AccessDecision(allowed=True)
        return self.decisions.cached(attributes)

    async def _review(self, attributes: Attributes) -> AccessDecision:
        document = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": review_spec(attributes),
            "status": {"allowed": False},
        }
        answer = await post_review(self._api, _PATH, document, timeout=_TIMEOUT, sleep=self._sleep)
        return _parse_answer(answer)

    def _ttl(self, attributes: Attributes, decision: AccessDecision) -> float:
        if attributes.controlled_size >= _MAX_CONTROLLED_SIZE or decision.error:
            return 0.0
        return self._allowed_ttl if decision.allowed else self._denied_ttl


def _entry_size(attributes: Attributes, _: AccessDecision) -> int:
    return _ENTRY_SIZE + attributes.controlled_size + attributes.user.size


def _internal_error(target: str, reason: str) -> errors.TextError:
    quoted = quote_shortened(target)
    return errors.TextError(500, sanitize(f"Internal Server Error: {quoted}: {reason}"))


def _parse_answer(answer: Any) -> AccessDecision:
    """Return the decision; a missing status allows nothing.

    Raises Broken if `answer` is not a SubjectAccessReview.
    """
    status = (answer.get("status") or {}) if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise errors.Broken(f"POST {_PATH}: malformed SubjectAccessReview: {answer!r:.200}")
    allowed, denied = status.get("allowed") or False, status.get("denied") or False
    reason = status.get("reason") or ""
    if not (isinstance(allowed, bool) and isinstance(denied, bool) and isinstance(reason, str)):
        raise errors.Broken(f"POST {_PATH}: malformed status of SubjectAccessReview: {status!r}")
    if allowed and denied:
        return AccessDecision(allowed=False, reason=reason, error=_ALLOWED_AND_DENIED)
    return AccessDecision(allowed=allowed, denied=denied, reason=reason)
