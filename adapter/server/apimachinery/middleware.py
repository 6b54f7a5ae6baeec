"""Serving of requests: parse the head, limit the time, call the handler, count the request.

Routing is in `api.router`, the connection in `http.connection`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import hdrs
from prometheus_client import CollectorRegistry

from adapter import telemetry
from adapter.errors import bad_request
from adapter.server.apimachinery import negotiation, request_info, responses, statuses
from adapter.server.apimachinery.heads import Head, Heads
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import PLAIN, Answer
from adapter.server.http.connection import DEFAULT_TIMEOUT, Serve
from adapter.server.http.request import Request
from rules.quoting import shorten

log = logging.getLogger(__name__)

_READ_ONLY = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
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

Handler = Callable[[Request, Head], Awaitable[Answer]]


def serving(
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
    compressor = responses.Compressor()
    meter = meter or telemetry.RequestMetrics(CollectorRegistry())

    async def serve(request: Request) -> bytes:
        read_only = request.method in _READ_ONLY
        meter.in_flight(read_only=read_only, change=1)
        try:
            return await respond(request)
        finally:
            meter.in_flight(read_only=read_only, change=-1)

    def ended(info: RequestInfo, code: int, began: float) -> None:
        seconds = time.perf_counter() - began
        scope = _scope(info)
        meter.ended(info.verb, info.group, info.version, scope=scope, code=code, seconds=seconds)

    async def respond(request: Request) -> bytes:
        began = time.perf_counter()
        info = _UNPARSED
        try:
            head = heads.parse(request)
            info = head.info
            negotiation.check_length(request.headers)
            if (seconds := _timeout(info, timeout)) != DEFAULT_TIMEOUT:
                request.set_timeout(seconds)
            answer = await compressor.compress(await handler(request, head), request)
        except request_info.MalformedError:
            target = request.printable_target
            log.warning("rejected %s %s: 400, malformed URL", request.method, target)
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
            answer = statuses.answer_of(error, request, info)
        request.is_last = request.is_last or closing()
        if log.isEnabledFor(logging.DEBUG):
            client = shorten(request.headers.get(hdrs.USER_AGENT, ""))
            where = f"{request.method} {request.printable_target}"
            log.debug("%s from %s: %d %s", where, client, answer.status, answer.content_type)
        ended(info, answer.status, began)
        return responses.render(answer, request)

    return serve


def _scope(info: RequestInfo) -> str:
    """Return what a request is for, in the word of Kubernetes' metrics."""
    if not info.is_resource_request:
        return ""
    return "resource" if info.name else "namespace" if info.namespace else "cluster"


def _timeout(info: RequestInfo, maximum: float) -> float:
    """Return the request's timeout in seconds. Raises ApiError (400) if `?timeout=` is malformed.

    Kubernetes ignores a malformed timeout of a watch.
    """
    if info.timeout_error and info.verb != "watch":
        raise bad_request(info.timeout_error)
    if info.timeout is not None and 0 < info.timeout < maximum:
        return info.timeout
    return maximum
