"""Everything that can go wrong while answering, and how each looks to a caller.

    ApiError                 what a caller is told: becomes one metav1.Status, in `answers`
    └── TextError                is told as text, as the filters of Kubernetes tell it
    Unauthenticated          what the log is told: credentials that are not accepted
    BackendError             what the log is told: Prometheus or the API server did not answer
    ├── Unreachable              no connection, or it broke
    ├── TimedOut                 no whole answer in time
    ├── Refused                  a 4xx: the question is wrong there (bad PromQL, no permission)
    ├── Broken                   a 5xx, or an answer that cannot be understood
    │   └── NotInstantError          a query that answers a matrix or text
    └── TooLarge                 more bytes than an answer may have
    StartError               what an operator is told: the server cannot start as it was asked to

No library's own exception crosses the module that calls the library; each is raised `from` it. A
BackendError keeps the other side's own words for the log; they never reach a caller of the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from rules.diagnosis.missing import Cause

NOSNIFF: Mapping[str, str] = MappingProxyType({"X-Content-Type-Options": "nosniff"})
"""For what repeats a caller's own words: no browser may guess that it is a page."""


class ApiError(Exception):
    """An answer that is an error, in Kubernetes' words.

    `details` follows metav1.StatusDetails; None leaves the key out, an empty one is sent as `{}`.
    `causes` quote the rules: they are sent only if `causes_visible`.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Cause] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details
        self.causes = tuple(causes)
        self.causes_visible = False
        self.headers = dict(headers or {})


def bad_request(message: str) -> ApiError:
    return ApiError(400, message, reason="BadRequest")


def internal(message: str) -> ApiError:
    """The 500 whose cause goes to the log alone: raise it `from` that cause."""
    return ApiError(
        500,
        f"Internal error occurred: {message}",
        reason="InternalError",
        details={"causes": [{"message": message}]},
    )


def no_route() -> ApiError:
    return ApiError(
        404, "the server could not find the requested resource", reason="NotFound", details={}
    )


def wrong_method() -> ApiError:
    return ApiError(
        405,
        "the server does not allow this method on the requested resource",
        reason="MethodNotAllowed",
        details={},
    )


def not_acceptable(representations: Sequence[str]) -> ApiError:
    """The router's own 406, given before any handler runs."""
    return ApiError(
        406,
        f"406: Not Acceptable\n\nAvailable representations: {', '.join(representations)}",
        reason="NotAcceptable",
        details={},
    )


class Unauthenticated(Exception):
    """Credentials that are not accepted: says why, and never shows them."""


class TextError(ApiError):
    """An error whose message, and a newline, is the whole answer."""

    def __init__(
        self, code: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code, message, headers={**NOSNIFF, **(headers or {})})


class BackendError(Exception):
    """Prometheus or the Kubernetes API did not give what was asked of it."""

    retry_after: float | None = None
    """Seconds after which the same question may be answered; None where a repetition is no use.

    Kubernetes' webhook clients ask again after just these errors.
    """


class Unreachable(BackendError):
    """No connection could be made, or it broke before the answer ended."""


class TimedOut(BackendError):
    """No whole answer came in time."""


class Refused(BackendError):
    """The other side refused the question; `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class Broken(BackendError):
    """The other side failed, or answered what cannot be understood."""


class NotInstantError(Broken):
    """A query answered what is no instant value: a matrix or text."""


class TooLarge(BackendError):
    """The answer was cut off because it grew past the limit."""


class StartError(Exception):
    """The server cannot start as it was asked to; `str()` says what to do about it."""
