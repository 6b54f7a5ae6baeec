"""Who may do what: asked of the cluster by SubjectAccessReview, and remembered for a while.

Members of system:masters may do everything, and some paths are open to all. Whatever else the API
server does not allow is forbidden, in Kubernetes' words; where it gives no verdict, nobody is let
in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from adapter import errors
from adapter.auth import attributes, reviews
from adapter.auth.attributes import Attributes
from adapter.cache import SingleFlightCache
from rules.quoting import quote

MASTERS = "system:masters"
OPEN_PATHS = ("/healthz", "/readyz", "/livez")
ALLOWED_SECONDS = 60.0
DENIED_SECONDS = 10.0
UNDECIDED = "no verdict could be had; the log of the adapter says why"
"""What callers are told about the API server's failures."""

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews?timeout=10s"
_TRY_SECONDS = 10.0
_REMEMBERED = 8192
_LONGEST_REMEMBERED = 10_000
_ENTRY = 1024
_BOTH = "webhook subject access review returned both allow and deny response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of a review; what is neither allowed nor wrong is forbidden."""

    allowed: bool
    denied: bool = False
    """Whether an authorizer said no, rather than none yes; either is forbidden."""
    reason: str = ""
    problem: str = ""
    """Why there is no verdict, though the API server answered."""

    @property
    def result(self) -> str:
        """What became of it, in the words of the API servers' metrics."""
        if self.problem:
            return "error"
        if self.allowed:
            return "allowed"
        return "denied" if self.denied else "no-opinion"


class Meter(Protocol):
    """Knows how to show what became of requests."""

    def authorized(self, result: str) -> None:
        """One was `allowed`, `denied`, of `no-opinion` to anybody, or its review an `error`."""


class OpenPaths:
    """The paths that need no verdict: whole ones, and beginnings that end in `*`."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Raises ValueError for a `*` elsewhere."""
        trimmed = [path.removeprefix("/") for path in paths]
        for path in trimmed:
            if "*" in path[:-1]:
                raise ValueError(f"only trailing * allowed in {quote(path)}")
        self._whole = frozenset(path for path in trimmed if not path.endswith("*"))
        self._beginnings = tuple(path[:-1] for path in trimmed if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        trimmed = path.removeprefix("/")
        return trimmed in self._whole or trimmed.startswith(self._beginnings)


class Authorizer:
    """Knows what callers may do; `api` is the cluster's, with the rights of system:auth-delegator.

    A verdict holds for `allowed_seconds` or `denied_seconds`. Raises ValueError for `open_paths`
    with a `*` that is not at the end.
    """

    def __init__(
        self,
        api: reviews.Api,
        *,
        allowed_seconds: float = ALLOWED_SECONDS,
        denied_seconds: float = DENIED_SECONDS,
        open_paths: Iterable[str] = OPEN_PATHS,
        meter: Meter | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._sleep = sleep
        self._meter = meter
        self._open = OpenPaths(open_paths)
        self._seconds = {True: allowed_seconds, False: denied_seconds}
        self._verdicts = SingleFlightCache(
            self._ask,
            ttl=self._lasts,
            max_size=_REMEMBERED * _ENTRY,
            size=lambda asked: _ENTRY + asked.controlled,
            clock=clock,
        )

    async def authorize(self, asked: Attributes, *, target: str) -> None:
        """Raises ApiError: 403, or TextError with 500, which repeats the request's `target`."""
        try:
            verdict = await self.review(asked)
        except errors.BackendError as error:
            self._measure("error")
            raise _undecided(target, UNDECIDED) from error
        self._measure(verdict.result)
        if verdict.problem:
            raise _undecided(target, verdict.problem)
        if not verdict.allowed:
            raise attributes.forbidden(asked, verdict.reason)

    async def review(self, asked: Attributes) -> Verdict:
        """Raises BackendError where the API server does not give one."""
        if MASTERS in asked.user.groups:
            return Verdict(allowed=True)
        if not asked.is_resource_request and asked.path in self._open:
            return Verdict(allowed=True)
        return await self._verdicts.get(asked)

    def _measure(self, result: str) -> None:
        if self._meter is not None:
            self._meter.authorized(result)

    async def _ask(self, asked: Attributes) -> Verdict:
        document = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": attributes.spec(asked),
            "status": {"allowed": False},
        }
        answer = await reviews.ask(
            self._api, _PATH, document, timeout=_TRY_SECONDS, sleep=self._sleep
        )
        return _verdict(answer)

    def _lasts(self, asked: Attributes, verdict: Verdict) -> float:
        if asked.controlled >= _LONGEST_REMEMBERED or verdict.problem:
            return 0.0
        return self._seconds[verdict.allowed]


def _undecided(target: str, why: str) -> errors.TextError:
    return errors.TextError(
        500, attributes.harmless(f"Internal Server Error: {quote(target)}: {why}")
    )


def _verdict(answer: Any) -> Verdict:
    """Raises Broken for what is no SubjectAccessReview. One without a status allows nothing."""
    if not isinstance(answer, dict):
        raise errors.Broken(f"POST {_PATH}: the answer is no SubjectAccessReview")
    status = answer.get("status") or {}
    if not isinstance(status, dict):
        raise errors.Broken(f"POST {_PATH}: the answer's status is none: {status!r}")
    allowed, denied = status.get("allowed") or False, status.get("denied") or False
    reason = status.get("reason") or ""
    if not (isinstance(allowed, bool) and isinstance(denied, bool) and isinstance(reason, str)):
        raise errors.Broken(f"POST {_PATH}: the answer's status is no verdict: {status!r}")
    if allowed and denied:
        return Verdict(allowed=False, reason=reason, problem=_BOTH)
    return Verdict(allowed=allowed, denied=denied, reason=reason)
