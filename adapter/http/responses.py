"""Whatever was answered or raised becomes one HTTP response here, and nowhere else.

`error_middleware` reads the question, keeps the deadline, and turns every exception into the
metav1.Status that Kubernetes would send. Callers get Kubernetes' words and nothing of the inside;
the log gets the cause, once.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from aiohttp import hdrs, web
from multidict import CIMultiDict

from adapter.errors import ApiError, BackendError, TextError, bad_request, internal
from adapter.http import encoding, request_info
from rules.errors import PlanError, SelectorError

log = logging.getLogger(__name__)

PLAIN = "text/plain; charset=utf-8"
DEFAULT_TIMEOUT = 60.0
"""Seconds that a request may take unless it asks for less."""

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_COMPRESSED_ABOVE = 128 * 1024
_HUMAN_CLIENTS = ("curl", "Wget", "Mozilla/5.0")
_TIMED_OUT = (
    b'{"metadata":{},"status":"Failure","message":"Timeout: request did not complete within the '
    b'allotted timeout","reason":"Timeout","details":{},"code":504}\n'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response before it is one: what every handler gives back."""

    body: bytes
    status: int = 200
    content_type: str = encoding.JSON
    """Empty where there is nothing that could have one."""
    headers: Mapping[str, str] = field(default_factory=lambda: _NO_HEADERS)
    compressed_above: int = _COMPRESSED_ABOVE
    """Bytes beyond which a client that accepts gzip gets it."""


class Response(web.Response):
    """A response that does not say what server it is from."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        del self.headers[hdrs.SERVER]


DEADLINE = web.RequestKey("until", float)
"""When a request must be answered, in the running loop's time."""

CAN_READ_DISCOVERY: web.RequestKey[Callable[[str], Awaitable[bool]]] = web.RequestKey("reads")
"""Whether the caller may also get a path that is no resource; set where callers are judged."""

Handler = Callable[[web.BaseRequest, request_info.RequestInfo], Awaitable[Answer]]
WebHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def error_middleware(
    respond: Handler,
    *,
    deadline: float = DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
) -> WebHandler:
    """The handler around `respond`; while `closing`, each answer ends its connection."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        try:
            info = request_info.parse(path, query, request.method)
        except request_info.MalformedError:
            log.warning("said 400 to %s %s: no URL is encoded so", request.method, _target(request))
            return malformed()
        try:
            seconds = _seconds(info, deadline)
            request[DEADLINE] = asyncio.get_running_loop().time() + seconds
            answer = await _in_time(respond(request, info), seconds)
        except Exception as error:  # noqa: BLE001 - the one place where anything raised ends
            answer = failed(error, request, info)
        response = _response(answer, request.headers)
        if closing():
            response.force_close()
        return response

    return handle


def malformed() -> web.Response:
    """What Go's server says to a request that it cannot parse, before it ends the connection."""
    response = Response(status=400, body=b"400 Bad Request", headers={hdrs.CONTENT_TYPE: PLAIN})
    response.force_close()
    return response


def document(
    content: encoding.Document, info: request_info.RequestInfo, headers: Mapping[str, str]
) -> Answer:
    """`content` as the client wants it. Raises ApiError (406) when it accepts no encoding."""
    return Answer(body=encoding.encode(content, pretty=indented(info, headers)))


def indented(info: request_info.RequestInfo, headers: Mapping[str, str]) -> bool:
    """Whether the client wants indentation. Raises ApiError (406) when it accepts no encoding."""
    accepted = encoding.negotiate(headers.get(hdrs.ACCEPT, ""))
    if accepted is None:
        types = ", ".join(encoding.PRODUCED)
        raise ApiError(
            406,
            f"only the following media types are accepted: {types}",
            reason="NotAcceptable",
        )
    return indents(accepted, info, headers)


def indents(
    accepted: encoding.Accepted, info: request_info.RequestInfo, headers: Mapping[str, str]
) -> bool:
    """Whether a client that was found to accept something wants it indented."""
    if accepted.pretty:
        return True
    if info.pretty is not None:
        return info.pretty
    return headers.get(hdrs.USER_AGENT, "").startswith(_HUMAN_CLIENTS)


def failed(
    error: BaseException, request: web.BaseRequest, info: request_info.RequestInfo
) -> Answer:
    """The answer to a request that ended in `error`, which is logged if it is ours."""
    told = _told(error)
    if told.code >= 500:
        _report(error, told, request)
    if isinstance(told, TextError):
        body = f"{told.message}\n".encode("utf-8", "surrogateescape")
        return Answer(status=told.code, body=body, content_type=PLAIN, headers=told.headers)
    details = told.details
    if told.causes and told.causes_visible:
        details = {**(details or {}), "causes": encoding.causes(told.causes)}
    content = encoding.status(told.code, told.message, reason=told.reason, details=details)
    try:
        pretty = told.code == 406 or indented(info, request.headers)
    except ApiError:
        pretty = True
    return Answer(
        status=told.code, body=encoding.encode(content, pretty=pretty), headers=told.headers
    )


def _told(error: BaseException) -> ApiError:
    if isinstance(error, ApiError):
        return error
    if isinstance(error, SelectorError | PlanError):
        return bad_request(str(error))
    if isinstance(error, BackendError):
        return internal("unable to fetch metrics")
    return internal("the request could not be answered; the log of the adapter says why")


def _report(error: BaseException, told: ApiError, request: web.BaseRequest) -> None:
    target = _target(request)
    cause = error.__cause__ if isinstance(error, ApiError) else error
    if isinstance(error, ApiError | BackendError):
        told_cause = f": {type(cause).__name__}: {cause}" if cause else ""
        log.error("%s %s: %s%s", request.method, target, told.message, told_cause)
    else:
        log.error("%s %s: %s", request.method, target, told.message, exc_info=error)


def _target(request: web.BaseRequest) -> str:
    return request.raw_path[:500].encode("ascii", "backslashreplace").decode()


async def _in_time(answering: Awaitable[Answer], seconds: float) -> Answer:
    scope = asyncio.timeout(seconds)
    try:
        async with scope:
            return await answering
    except TimeoutError:
        if scope.expired():
            return Answer(status=504, body=_TIMED_OUT, content_type=PLAIN)
        raise


def _seconds(info: request_info.RequestInfo, deadline: float) -> float:
    """Raises ApiError (400) for a `?timeout=` that is no duration; watches have none."""
    if info.timeout_error and info.verb != "watch":
        raise bad_request(info.timeout_error)
    if info.timeout is not None and 0 < info.timeout < deadline:
        return info.timeout
    return deadline


def _response(answer: Answer, asked: Mapping[str, str]) -> web.Response:
    headers = CIMultiDict(
        {
            "Audit-Id": _audit_id(asked.get("Audit-Id", "")),
            hdrs.CACHE_CONTROL: "no-cache, private",
        }
    )
    if answer.content_type:
        headers[hdrs.CONTENT_TYPE] = answer.content_type
    headers.update(answer.headers)
    body = answer.body
    if len(body) > answer.compressed_above and _accepts_gzip(asked):
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        if hdrs.ACCEPT_ENCODING not in headers.get(hdrs.VARY, ""):
            headers.add(hdrs.VARY, hdrs.ACCEPT_ENCODING)
    return Response(status=answer.status, body=body or None, headers=headers)


def _accepts_gzip(asked: Mapping[str, str]) -> bool:
    """The bare token alone counts: `gzip;q=1` does not, as in Kubernetes."""
    return "gzip" in (token.strip() for token in asked.get(hdrs.ACCEPT_ENCODING, "").split(","))


def _audit_id(given: str) -> str:
    """The caller's own id, so that its log and ours can be laid side by side; else a new UUID."""
    if given and given.isascii():
        return given
    random = os.urandom(16).hex()
    variant = "89ab"[int(random[16], 16) & 3]
    return f"{random[:8]}-{random[8:12]}-4{random[13:16]}-{variant}{random[17:20]}-{random[20:]}"
