"""Conversion of answers and exceptions to HTTP responses.

`error_middleware` parses the request, enforces the timeout and turns every exception into the
metav1.Status that Kubernetes would send. The cause of a 5xx goes to the log only. Routing is in
`api.router`, the connection in `http.connection`.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import hdrs, web
from multidict import CIMultiDict

from adapter.errors import ApiError, BackendError, TextError, bad_request, internal
from adapter.http import encoding, request_info
from rules.errors import PlanError, SelectorError
from rules.quoting import MAX_ECHO, shorten

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"
DEFAULT_TIMEOUT = 60.0
"""Seconds that a request may take; `?timeout=` can only shorten it."""

_GZIP_THRESHOLD = 128 * 1024
_PIECE = 256 * 1024
"""Bytes of a body that are written at once."""
_HUMAN_CLIENTS = ("curl", "Wget", "Mozilla/5.0")
_UNPARSED = request_info.parse("/")
"""Stands for a request whose target exceeds a limit, to encode its error."""
_TIMED_OUT = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)

DEADLINE = web.RequestKey("deadline", float)
"""When the request times out, in the running loop's time."""

CAN_READ_DISCOVERY: web.RequestKey[Callable[[str], Awaitable[bool]]] = web.RequestKey(
    "can_read_discovery"
)
"""Function that returns whether the caller may also GET a non-resource path.

The filters in `auth` set it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a handler returns: a response before compression, without the common headers."""

    body: bytes
    status: int = 200
    content_type: str = encoding.JSON
    """Empty for a response without a Content-Type."""
    headers: Mapping[str, str] = field(default_factory=dict)
    gzip_threshold: int = _GZIP_THRESHOLD
    """A longer body, in bytes, is compressed for clients that accept gzip."""


Handler = Callable[[web.BaseRequest, request_info.RequestInfo], Awaitable[Answer]]
WebHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Response(web.Response):
    """A response without a Server header, whose body is sent in pieces.

    What is written at once is buffered without limit and without notice if the client does not
    read. After a piece, the next waits until the client has received most of it.
    """

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the body."""
        body = self.body
        if isinstance(body, bytes) and len(body) > _PIECE and not self._must_be_empty_body:
            for start in range(0, len(body), _PIECE):
                await self.write(body[start : start + _PIECE])
            await web.StreamResponse.write_eof(self, data)
        else:
            await super().write_eof(data)

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        del self.headers[hdrs.SERVER]


def error_middleware(
    handler: Handler,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
) -> WebHandler:
    """Return the aiohttp handler around `handler`.

    `timeout` is in seconds. While `closing()` is true, each response closes its connection.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        info = _UNPARSED
        try:
            info = request_info.parse(path, query, request.method)
            _check_accept(request.headers)
            seconds = _timeout(info, timeout)
            request[DEADLINE] = asyncio.get_running_loop().time() + seconds
            answer = await _with_timeout(handler(request, info), seconds)
        except request_info.MalformedError:
            log.warning("rejected %s %s: 400, malformed URL", request.method, _target(request))
            return malformed_request()
        except Exception as error:  # noqa: BLE001 - every exception becomes a response here
            answer = error_answer(error, request, info)
        response = _response(answer, request.headers)
        if closing():
            response.force_close()
        return response

    return handle


def malformed_request() -> web.Response:
    """Return the bare 400 of Go's HTTP server, which closes the connection."""
    response = Response(status=400, body=b"400 Bad Request", headers={hdrs.CONTENT_TYPE: PLAIN})
    response.force_close()
    return response


def negotiate_pretty(info: request_info.RequestInfo, headers: Mapping[str, str]) -> bool:
    """Return whether to indent the answer. Raises ApiError (406) if no encoding is accepted."""
    accepted = encoding.negotiate(headers.get(hdrs.ACCEPT, ""))
    if accepted is None:
        types = ", ".join(encoding.PRODUCED)
        raise ApiError(
            406,
            f"only the following media types are accepted: {types}",
            reason="NotAcceptable",
        )
    return is_pretty(accepted, info, headers)


def is_pretty(
    accepted: encoding.Accepted, info: request_info.RequestInfo, headers: Mapping[str, str]
) -> bool:
    """Return whether to indent the answer, once its encoding is negotiated."""
    if accepted.pretty:
        return True
    if info.pretty is not None:
        return info.pretty
    return headers.get(hdrs.USER_AGENT, "").startswith(_HUMAN_CLIENTS)


def _check_accept(headers: Mapping[str, str]) -> None:
    """Raise ApiError (400) for an Accept header that is too long to negotiate."""
    length = len(headers.get(hdrs.ACCEPT, ""))
    if length > encoding.MAX_ACCEPT:
        raise bad_request(
            f"the Accept header has {length} characters; at most {encoding.MAX_ACCEPT} are accepted"
        )


def error_answer(
    error: Exception, request: web.BaseRequest, info: request_info.RequestInfo
) -> Answer:
    """Return the answer to a request that raised `error`; a 5xx is logged."""
    api_error = _api_error(error)
    if api_error.code >= 500:
        _log_failure(error, api_error, request)
    if isinstance(api_error, TextError):
        body = f"{api_error.message}\n".encode("utf-8", "surrogateescape")
        return Answer(
            status=api_error.code, body=body, content_type=PLAIN, headers=api_error.headers
        )
    try:
        pretty = api_error.code == 406 or negotiate_pretty(info, request.headers)
    except ApiError:
        pretty = True
    return Answer(
        status=api_error.code,
        body=encoding.encode(_status(api_error), pretty=pretty),
        headers=api_error.headers,
    )


def _api_error(error: Exception) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SelectorError | PlanError):
        return bad_request(str(error))
    if isinstance(error, BackendError):
        return internal("unable to fetch metrics")
    return internal("the request failed; the log of gpu-metrics-adapter has the cause")


def _status(error: ApiError) -> encoding.Document:
    """Return the metav1.Status of `error`; an empty reason and absent details are left out."""
    details = error.details
    if error.causes and error.causes_visible:
        causes = [
            {"reason": cause.reason.value, "message": cause.sentence} for cause in error.causes
        ]
        details = {**(details or {}), "causes": causes}
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
    }
    if error.reason:
        status["reason"] = error.reason
    if details is not None:
        status["details"] = details
    status["code"] = error.code
    return status


def _log_failure(error: Exception, api_error: ApiError, request: web.BaseRequest) -> None:
    """Log a 5xx with its cause; with a traceback only if the exception is unexpected."""
    where = f"{request.method} {_target(request)}"
    if not isinstance(error, ApiError | BackendError):
        log.error("%s: %s", where, api_error.message, exc_info=error)
        return
    cause = error.__cause__ if isinstance(error, ApiError) else error
    suffix = f": {type(cause).__name__}: {cause}" if cause else ""
    log.error("%s: %s%s", where, shorten(api_error.message), suffix)


def _target(request: web.BaseRequest) -> str:
    return request.raw_path[:500].encode("ascii", "backslashreplace").decode()


async def _with_timeout(answering: Awaitable[Answer], seconds: float) -> Answer:
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await answering
    except TimeoutError:
        if scope.expired():
            return Answer(status=504, body=_TIMED_OUT, content_type=PLAIN)
        raise


def _timeout(info: request_info.RequestInfo, maximum: float) -> float:
    """Return the request's timeout in seconds. Raises ApiError (400) if `?timeout=` is malformed.

    Kubernetes ignores a malformed timeout of a watch.
    """
    if info.timeout_error and info.verb != "watch":
        raise bad_request(info.timeout_error)
    if info.timeout is not None and 0 < info.timeout < maximum:
        return info.timeout
    return maximum


def _response(answer: Answer, request_headers: Mapping[str, str]) -> web.Response:
    headers = CIMultiDict(
        {
            "Audit-Id": _audit_id(request_headers.get("Audit-Id", "")),
            hdrs.CACHE_CONTROL: "no-cache, private",
        }
    )
    if answer.content_type:
        headers[hdrs.CONTENT_TYPE] = answer.content_type
    headers.update(answer.headers)
    body = answer.body
    if len(body) > answer.gzip_threshold and _accepts_gzip(request_headers):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        if hdrs.ACCEPT_ENCODING not in headers.get(hdrs.VARY, ""):
            headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
    return Response(status=answer.status, body=body or None, headers=headers)


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether gzip is accepted. Like Kubernetes, ignore tokens with a weight: `gzip;q=1`."""
    tokens = headers.get(hdrs.ACCEPT_ENCODING, "")[: encoding.MAX_ACCEPT].split(",")
    return "gzip" in (token.strip() for token in tokens)


def _audit_id(received: str) -> str:
    """Return the client's audit ID, so that both logs can be correlated, or a new UUID."""
    usable = received.isascii() and 0 < len(received) <= MAX_ECHO
    return received if usable else str(uuid.uuid4())
