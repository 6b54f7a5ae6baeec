"""The one handler of every path: routes by the decoded path alone, as the original does.

Connections and listeners are in `http.server`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import hdrs, web

from adapter import errors
from adapter.api import health
from adapter.api.discovery import Discovery
from adapter.api.groups.group import Backend
from adapter.api.openapi import OpenApi
from adapter.http import encoding, responses
from adapter.http.request_info import RequestInfo

_STREAMED = tuple(f"{each};stream=watch" for each in encoding.PRODUCED)
"""The spellings that the router of a resource lists besides; nothing is ever streamed."""

Guard = Callable[[responses.Handler], responses.Handler]
"""Makes of a responder one for those alone who may ask it, by raising ApiError for the others."""


def build_router(
    *,
    discovery: Discovery,
    openapi: OpenApi,
    operations: health.Ops,
    backend: Backend,
    guard: Guard | None = None,
    deadline: float = responses.DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
) -> responses.WebHandler:
    """The handler of every request; nothing is routed before `guard` has let it through."""
    documents = frozenset(discovery.paths)

    async def respond(request: web.BaseRequest, info: RequestInfo) -> responses.Answer:
        path = info.path
        if path == "/version" or path.startswith("/version/"):
            _check(request, known=path == "/version", produced=(encoding.JSON,))
            return health.version()
        group = discovery.group(path)
        if group is None and path not in {"/apis", "/apis/"}:
            return openapi.answer(request, info) or await operations.answer(info)
        if path in documents:
            _check(request, known=True, produced=encoding.PRODUCED)
            return discovery.answer(info, request.headers)
        if group is None:
            raise errors.no_route()
        known = info.version in group.VERSIONS and group.routes(info.below_version)
        _check(request, known=known, produced=encoding.PRODUCED, streamed=_STREAMED)
        try:
            content = await group.answer(info, backend, deadline=request[responses.DEADLINE])
        except errors.ApiError as error:
            if error.causes:
                # Who may read what discovery says of the metrics may know why one is not there.
                document = f"/apis/{group.NAME}/{group.VERSIONS[0]}"
                error.causes_visible = guard is None or await _reads(request, document)
            raise
        return responses.document(content, info, request.headers)

    guarded = respond if guard is None else guard(respond)
    return responses.error_middleware(guarded, deadline=deadline, closing=closing)


async def _reads(request: web.BaseRequest, path: str) -> bool:
    reads = request.get(responses.CAN_READ_DISCOVERY)
    return reads is not None and await reads(path)


def _check(
    request: web.BaseRequest,
    *,
    known: bool,
    produced: Sequence[str],
    streamed: Sequence[str] = (),
) -> None:
    """The router's refusals, in its order. Raises ApiError."""
    if not known:
        raise errors.no_route()
    if request.method != hdrs.METH_GET:
        raise errors.wrong_method()
    if not encoding.routable(request.headers.get(hdrs.ACCEPT, ""), produced):
        raise errors.not_acceptable((*produced, *streamed))
