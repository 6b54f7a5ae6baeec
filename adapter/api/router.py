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
from adapter.http.request_info import Ask

_STREAMED = tuple(f"{each};stream=watch" for each in encoding.PRODUCED)
"""The spellings that the router of a resource lists besides; nothing is ever streamed."""

Guard = Callable[[responses.Responder], responses.Responder]
"""Makes of a responder one for those alone who may ask it, by raising ApiError for the others."""


def surface(
    *,
    discovery: Discovery,
    openapi: OpenApi,
    operations: health.Ops,
    backend: Backend,
    guard: Guard | None = None,
    deadline: float = responses.DEADLINE,
    closing: Callable[[], bool] = lambda: False,
) -> responses.Handler:
    """The handler of every request; nothing is routed before `guard` has let it through."""
    documents = frozenset(discovery.paths)

    async def respond(request: web.BaseRequest, ask: Ask) -> responses.Answer:
        path = ask.path
        if path == "/version" or path.startswith("/version/"):
            _check(request, known=path == "/version", produced=(encoding.JSON,))
            return health.version()
        group = discovery.group(path)
        if group is None and path not in {"/apis", "/apis/"}:
            return openapi.answer(request, ask) or await operations.answer(ask)
        if path in documents:
            _check(request, known=True, produced=encoding.PRODUCED)
            return discovery.answer(ask, request.headers)
        if group is None:
            raise errors.no_route()
        known = ask.version in group.VERSIONS and group.routes(ask.below_version)
        _check(request, known=known, produced=encoding.PRODUCED, streamed=_STREAMED)
        try:
            content = await group.answer(ask, backend, deadline=request[responses.UNTIL])
        except errors.ApiError as error:
            if error.causes:
                # Who may read what discovery says of the metrics may know why one is not there.
                document = f"/apis/{group.NAME}/{group.VERSIONS[0]}"
                error.told = guard is None or await _reads(request, document)
            raise
        return responses.document(content, ask, request.headers)

    guarded = respond if guard is None else guard(respond)
    return responses.outermost(guarded, deadline=deadline, closing=closing)


async def _reads(request: web.BaseRequest, path: str) -> bool:
    reads = request.get(responses.READS)
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
