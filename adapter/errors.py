"""Errors: answers to API clients, failures of backends, failures to start.

    ApiError                 answer to the client: a metav1.Status of `apimachinery`
    └── TextError                answer as text/plain, as Kubernetes' filters give it
    Unauthenticated          for the log: credentials were rejected
    BackendError             for the log: Prometheus or the API server did not answer as expected
    ├── Unreachable              no connection, or the connection broke
    │   ├── Unresponsive             nothing is sent, because the last requests got no response
    │   ├── NoCredentials            nothing is sent, because a token server or identity fails
    │   └── WindowNotFull            nothing is sent, because data of the whole window are missing
    ├── TimedOut                 no complete response in time
    │   └── QueryTimedOut            Prometheus responds, but reports that a query took too long
    ├── Refused                  4xx: the request is wrong (bad PromQL, missing permission)
    ├── Broken                   5xx, or a response that cannot be parsed
    │   └── NotInstantError          a query returned a matrix or a string
    ├── Partial                  the response lacks data that Prometheus has
    ├── TooLarge                 the response or the query exceeded a limit, ours or Prometheus'
    └── Overloaded               429 or 503 with Retry-After: no request is sent until then
    StartError               for the operator: the server cannot start with these settings

Each module that calls a library raises one of these `from` the library's own exception. The message
of a BackendError quotes the backend and is only logged, never sent to an API client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from rules.causes.reasons import summarize
from rules.findings import Finding
from rules.quoting import shorten

NOSNIFF: Mapping[str, str] = MappingProxyType({"X-Content-Type-Options": "nosniff"})
"""Header of answers that repeat text of the request: browsers must not render them as HTML."""

_MAX_MESSAGE = 16 << 10
"""Characters of a message. The longest of an honest request lists problems of a selector."""


class ApiError(Exception):
    """Error answer in Kubernetes' wording; a message of more than 16 KiB is cut.

    `details` follows metav1.StatusDetails; None omits the key, an empty mapping is sent as `{}`.
    `causes` quote the rules; only those of `showing_causes` are sent.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: Mapping[str, Any] | None = None,
        causes: Sequence[Finding] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = shorten(message, _MAX_MESSAGE)
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason
        self.details = details
        self.causes = tuple(causes)
        self.causes_visible = False
        self.headers = dict(headers or {})

    def showing_causes(self, *, in_message: bool = False) -> ApiError:
        """Return the same answer for a caller who may see the causes.

        `in_message` appends the summary of the first cause to the message.
        """
        summary = f": {summarize(self.causes[0])}" if in_message and self.causes else ""
        shown = ApiError(
            self.code,
            self.message + summary,
            reason=self.reason,
            details=self.details,
            causes=self.causes,
            headers=self.headers,
        )
        shown.causes_visible = True
        return shown


def bad_request(message: str) -> ApiError:
    """Return a 400."""
    return ApiError(400, message, reason="BadRequest")


def internal(message: str, causes: Sequence[Finding] = ()) -> ApiError:
    """Return a 500: raise it `from` the exception, which is then logged."""
    return ApiError(
        500,
        f"Internal error occurred: {message}",
        reason="InternalError",
        details={"causes": [{"message": message}]},
        causes=causes,
    )


def unavailable(message: str, causes: Sequence[Finding] = ()) -> ApiError:
    """Return a 503 that says when to retry."""
    return ApiError(
        503,
        message,
        reason="ServiceUnavailable",
        details={"retryAfterSeconds": 1},
        causes=causes,
        headers={"Retry-After": "1"},
    )


def no_route() -> ApiError:
    """Return the 404 for an unknown path."""
    return ApiError(
        404, "the server could not find the requested resource", reason="NotFound", details={}
    )


def no_metric(metric: str, described: str, causes: Sequence[Finding]) -> ApiError:
    """Return the original's 404 for a metric that has no value for what it describes."""
    return ApiError(
        404,
        f"the server could not find the metric {shorten(metric)} for {shorten(described)}",
        reason="NotFound",
        causes=causes,
    )


class Unauthenticated(Exception):
    """Rejected credentials; the message says why and never contains them."""


class TextError(ApiError):
    """Error whose body is text/plain: the message and a newline."""

    def __init__(
        self, code: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code, message, headers={**NOSNIFF, **(headers or {})})


class BackendError(Exception):
    """Failed request to Prometheus or to the Kubernetes API server."""

    query: str = ""
    """The query that Prometheus refused, if it is short enough to be shown; else empty."""
    query_length: int = 0
    """Length in a URL of the longest query of the request that failed, if it was not shared."""

    def __init__(
        self, message: str, *, status: int = 0, refusal: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status of an error of the API server, of Refused and of Overloaded; else 0."""
        self.refusal = refusal
        """What the server replied to a request that it refused, without the request; else empty. Of
        Prometheus, only if it refused the query."""
        self.retry_after = retry_after
        """Minimum seconds before a retry; None if Kubernetes' webhook clients would not retry."""

    def without_frames(self) -> Self:
        """Return a copy, to be kept or raised again.

        Each frame that an error passes is added to it, and may hold all that a response had.
        """
        copy = type(self).__new__(type(self), *self.args)
        copy.__dict__.update(self.__dict__)
        return copy


class Unreachable(BackendError):
    """Failure to connect, or a connection that broke before the response was complete."""


class Unresponsive(Unreachable):
    """Nothing is sent: connections are accepted, but the last requests got no response in time."""


class NoCredentials(Unreachable):
    """Failure to get credentials for a request, which was not sent."""


class WindowNotFull(Unreachable):
    """The query is not sent: Prometheus lacks data of its window. The message says until when."""


class TimedOut(BackendError):
    """Timeout before the response was complete."""


class QueryTimedOut(TimedOut):
    """Response of Prometheus that says that it stopped a query at the timeout."""


class Refused(BackendError):
    """Response with a 4xx status, which is `status`."""


class Broken(BackendError):
    """Response with a 5xx status, or one that cannot be parsed."""


class NotInstantError(Broken):
    """Query result that is a matrix or a string instead of a vector or a scalar."""


class Partial(BackendError):
    """Response that says that it lacks data, as while a storage node or a store is down."""


class TooLarge(BackendError):
    """Response that exceeds the size limit, or a query that exceeds a limit of Prometheus."""

    @classmethod
    def of(cls, message: str) -> Self:
        """Return an error whose message clients may see."""
        return cls(message, refusal=message)


class Overloaded(BackendError):
    """Response 429 or 503 that says when to send the next request, in `retry_after` seconds."""


class StartError(Exception):
    """Failure to start with these settings; the message says what to do."""
