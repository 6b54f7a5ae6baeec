"""Conversion of answers and exceptions to HTTP responses.

`error_middleware` parses the request, enforces its timeout and turns every exception into the
metav1.Status that Kubernetes would send. The cause of a 5xx goes to the log only. Routing is in
`api.router`, the connection in `http.connection`.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import http
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent import futures
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from typing import Any

from aiohttp import hdrs
from prometheus_client import CollectorRegistry

from adapter import bounds, telemetry
from adapter.cache import SingleFlightCache
from adapter.errors import ApiError, BackendError, TextError, bad_request, internal
from adapter.server.apimachinery import encoding, negotiation, request_info
from adapter.server.apimachinery.call import Call
from adapter.server.apimachinery.heads import AUDIT_ID, Heads
from adapter.server.http.connection import DEFAULT_TIMEOUT, Serve
from adapter.server.http.request import Request
from rules.causes import warning_header
from rules.errors import PlanError, SelectorError
from rules.findings import Finding
from rules.quoting import MAX_ECHO, shorten

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"

_GZIP_THRESHOLD = 128 * 1024
"""Bytes; it takes 1 ms to compress so many, and longer bodies are compressed in a thread."""
_READ_ONLY = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
_BODILESS = frozenset({204, 304})
_HUMAN_CLIENTS = ("curl", "Wget", "Mozilla/5.0")
_UNPARSED = request_info.parse("/")
"""Stands for a request whose target exceeds a limit, to encode its error."""
_MALFORMED = (
    f"HTTP/1.1 400 Bad Request\r\nContent-Type: {PLAIN}\r\nContent-Length: 15\r\n\r\n"
    "400 Bad Request"
).encode()
"""The response of Go's HTTP server to a malformed target."""
_TIMED_OUT = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)


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


Handler = Callable[[Call], Awaitable[Answer]]


class Compressor:
    """Compresses bodies: long ones in a thread, one at a time, and each once as long as it is kept.

    zlib takes 10 ms for a megabyte.
    """

    def __init__(self) -> None:
        self._thread = futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="gzip")
        self._bodies: SingleFlightCache[bytes, bytes] = SingleFlightCache(
            ttl=lambda *_: math.inf, max_size=bounds.COMPRESSED.size, size=lambda body, _: len(body)
        )

    async def compress(self, body: bytes) -> bytes:
        """Return the compressed body."""
        if len(body) <= _GZIP_THRESHOLD:
            return _gzip(body)
        return await self._bodies.get(body, lambda: self._compress_long(body))

    async def _compress_long(self, body: bytes) -> bytes:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _gzip, body)


def error_middleware(
    handler: Handler,
    *,
    heads: Heads | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
    meter: telemetry.RequestMetrics | None = None,
) -> Serve:
    """Return the function that serves requests with `handler`.

    `timeout` is in seconds. While `closing()` is true, each response closes its connection. `meter`
    counts the requests.
    """
    heads = heads or Heads()
    compressor = Compressor()
    meter = meter or telemetry.RequestMetrics(CollectorRegistry())

    async def serve(request: Request) -> bytes:
        read_only = request.method in _READ_ONLY
        meter.in_flight(read_only=read_only, change=1)
        try:
            return await respond(request)
        finally:
            meter.in_flight(read_only=read_only, change=-1)

    def ended(info: request_info.RequestInfo, code: int, began: float) -> None:
        seconds = time.perf_counter() - began
        scope = _scope(info)
        meter.ended(info.verb, info.group, info.version, scope=scope, code=code, seconds=seconds)

    async def respond(request: Request) -> bytes:
        began = time.perf_counter()
        info = _UNPARSED
        try:
            head = heads.parse(request)
            info = head.info
            _check_accept(request.headers)
            if (seconds := _timeout(info, timeout)) != DEFAULT_TIMEOUT:
                request.set_timeout(seconds)
            answer = await handler(Call(request, head, info))
            if len(answer.body) > answer.gzip_threshold and _accepts_gzip(request.headers):
                answer = _as_gzip(answer, await compressor.compress(answer.body))
        except request_info.MalformedError:
            log.warning("rejected %s %s: 400, malformed URL", request.method, _target(request))
            request.is_last = True
            ended(info, 400, began)
            return _MALFORMED
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not request.timed_out or task is None:
                raise
            task.uncancel()
            answer = Answer(status=504, body=_TIMED_OUT, content_type=PLAIN)
        except Exception as error:  # noqa: BLE001 - every exception becomes a response here
            answer = error_answer(error, request, info)
        request.is_last = request.is_last or closing()
        if log.isEnabledFor(logging.DEBUG):
            _log_answer(answer, request)
        ended(info, answer.status, began)
        return _response(answer, request)

    return serve


def _scope(info: request_info.RequestInfo) -> str:
    """Return what a request is for, in the word of Kubernetes' metrics."""
    if not info.is_resource_request:
        return ""
    return "resource" if info.name else "namespace" if info.namespace else "cluster"


def negotiate(
    info: request_info.RequestInfo,
    headers: Mapping[str, str],
    transforms: frozenset[negotiation.Transform] = negotiation.ONLY_UNCHANGED,
) -> negotiation.Accepted:
    """Return how to encode the answer. Raises ApiError (406) if nothing served is accepted.

    `transforms` are the forms in which the object is served.
    """
    accepted = negotiation.negotiate(headers.get(hdrs.ACCEPT, ""), transforms)
    if accepted is None:
        types = ", ".join(encoding.PRODUCED)
        raise ApiError(
            406,
            f"only the following media types are accepted: {types}",
            reason="NotAcceptable",
        )
    return with_layout(accepted, info, headers)


def with_layout(
    accepted: negotiation.Accepted, info: request_info.RequestInfo, headers: Mapping[str, str]
) -> negotiation.Accepted:
    """Return `accepted`, indented if the URL says so or a person reads the answer."""
    if accepted.pretty or accepted.encoding != encoding.JSON:
        return accepted
    pretty = info.pretty
    if pretty is None:
        pretty = headers.get(hdrs.USER_AGENT, "").startswith(_HUMAN_CLIENTS)
    return accepted._replace(pretty=True) if pretty else accepted


def _check_accept(headers: Mapping[str, str]) -> None:
    """Raise ApiError (400) for an Accept header that is too long to negotiate."""
    length = len(headers.get(hdrs.ACCEPT, ""))
    if length > negotiation.MAX_ACCEPT:
        raise bad_request(
            f"the Accept header has {length} characters; "
            f"at most {negotiation.MAX_ACCEPT} are accepted"
        )


def error_answer(error: Exception, request: Request, info: request_info.RequestInfo) -> Answer:
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
        accepted = negotiate(info, request.headers)
    except ApiError:
        accepted = negotiation.Accepted(encoding=encoding.JSON, pretty=True)
    answer = Answer(
        status=api_error.code,
        body=encoding.encode(_status(api_error), accepted.encoding, pretty=accepted.pretty),
        content_type=accepted.encoding,
        headers=api_error.headers,
    )
    return with_warning(answer, api_error.causes) if api_error.causes_visible else answer


def with_warning(answer: Answer, causes: Sequence[Finding]) -> Answer:
    """Return the answer with the first cause as a warning, which kubectl prints."""
    if not causes:
        return answer
    rendered = warning_header.render(tuple(causes))
    return replace(answer, headers={**answer.headers, warning_header.NAME: rendered})


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
            {"reason": str(cause.reason), "message": cause.sentence} for cause in error.causes
        ]
        known = (details or {}).get("causes", ())
        details = {**(details or {}), "causes": [*known, *causes]}
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


def _log_failure(error: Exception, api_error: ApiError, request: Request) -> None:
    """Log a 5xx with its cause; with a traceback only if the exception is unexpected.

    One with causes is logged by `causes.log`, once for many requests.
    """
    where = f"{request.method} {_target(request)}"
    if not isinstance(error, ApiError | BackendError):
        log.error("%s: %s", where, api_error.message, exc_info=error)
        return
    cause = error.__cause__ if isinstance(error, ApiError) else error
    suffix = f": {type(cause).__name__}: {cause}" if cause else ""
    level = logging.DEBUG if api_error.causes else logging.ERROR
    log.log(level, "%s: %s%s", where, shorten(api_error.message), suffix)


def _log_answer(answer: Answer, request: Request) -> None:
    client = shorten(request.headers.get(hdrs.USER_AGENT, ""))
    where = f"{request.method} {_target(request)}"
    log.debug("%s from %s: %d %s", where, client, answer.status, answer.content_type)


def _target(request: Request) -> str:
    return request.target[:500].encode("ascii", "backslashreplace").decode()


def _timeout(info: request_info.RequestInfo, maximum: float) -> float:
    """Return the request's timeout in seconds. Raises ApiError (400) if `?timeout=` is malformed.

    Kubernetes ignores a malformed timeout of a watch.
    """
    if info.timeout_error and info.verb != "watch":
        raise bad_request(info.timeout_error)
    if info.timeout is not None and 0 < info.timeout < maximum:
        return info.timeout
    return maximum


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=1, mtime=0)


def _as_gzip(answer: Answer, body: bytes) -> Answer:
    headers = {**answer.headers, hdrs.CONTENT_ENCODING: "gzip"}
    if hdrs.ACCEPT_ENCODING not in headers.get(hdrs.VARY, ""):
        vary = [headers[hdrs.VARY]] if hdrs.VARY in headers else []
        headers[hdrs.VARY] = ", ".join([*vary, hdrs.ACCEPT_ENCODING])
    return replace(answer, body=body, headers=headers)


def _response(answer: Answer, request: Request) -> bytes:
    body, headers = answer.body, answer.headers
    length = b"" if answer.status in _BODILESS else b"Content-Length: %d\r\n" % len(body)
    return b"%bAudit-Id: %b\r\nDate: %b\r\n%b\r\n%b" % (
        _constant_lines(answer.status, answer.content_type, tuple(headers.items())),
        _audit_id(request.headers.get(AUDIT_ID, "")),
        _date(int(time.time())),
        length,
        b"" if request.method == hdrs.METH_HEAD else body,
    )


@functools.lru_cache(maxsize=256)
def _constant_lines(status: int, content_type: str, headers: tuple[tuple[str, str], ...]) -> bytes:
    """Return the status line, and the headers that many responses have in common."""
    fields: dict[str, str] = {hdrs.CACHE_CONTROL: "no-cache, private"}
    if content_type:
        fields[hdrs.CONTENT_TYPE] = content_type
    fields.update(headers)
    if any("\r" in value or "\n" in value for value in fields.values()):
        raise ValueError(f"line break in a header: {fields}")
    lines = (f"{name}: {value}\r\n" for name, value in fields.items())
    text = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n{''.join(lines)}"
    return text.encode("utf-8", "surrogateescape")


@functools.lru_cache(maxsize=1)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode()


def _accepts_gzip(headers: Mapping[str, str]) -> bool:
    """Return whether gzip is accepted. Like Kubernetes, ignore tokens with a weight: `gzip;q=1`."""
    tokens = headers.get(hdrs.ACCEPT_ENCODING, "")[: negotiation.MAX_ACCEPT].split(",")
    return "gzip" in (token.strip() for token in tokens)


def _audit_id(received: str) -> bytes:
    """Return the client's audit ID, so that both logs can be correlated, or a new UUID."""
    usable = received.isascii() and 0 < len(received) <= MAX_ECHO
    if usable:
        return received.encode()
    # A UUID of version 4. The module uuid takes four times as long.
    text = os.urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}".encode()
