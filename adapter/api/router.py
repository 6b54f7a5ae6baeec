"""Routing of every request by its decoded path, with the checks of the original's router.

Connections are in `http.connection`, conversion to HTTP responses in `http.responses`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import hdrs

from adapter import errors
from adapter.api import explain, health
from adapter.api.discovery import Discovery
from adapter.api.encoded_answers import EncodedAnswers
from adapter.api.explain import Explainer
from adapter.api.groups.group import Backend, Group
from adapter.api.openapi import OpenApi
from adapter.http import encoding, negotiation, responses
from adapter.http.connection import DEFAULT_TIMEOUT, Serve
from adapter.http.request import Heads, Request
from adapter.http.request_info import RequestInfo

_WATCH_TYPES = tuple(
    f"{each};stream=watch" for each in encoding.PRODUCED if each in negotiation.STREAMED
)
"""Media types that the original lists in a 406 of a resource, although it streams nothing."""

Guard = Callable[[responses.Handler], responses.Handler]
"""Wraps a handler in authentication and authorization, which raise ApiError."""


def build_router(
    *,
    discovery: Discovery,
    openapi: OpenApi,
    operator_endpoints: health.OperatorEndpoints,
    backend: Backend,
    guard: Guard | None = None,
    explainer: Explainer | None = None,
    encoded: EncodedAnswers | None = None,
    heads: Heads | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
) -> Serve:
    """Return the function that serves all requests. `guard` runs before anything is routed."""
    documents = frozenset(discovery.paths)
    encoded = encoded or EncodedAnswers()
    heads = heads or Heads()

    async def route(request: Request, info: RequestInfo) -> responses.Answer:
        path = info.path
        if path == "/version" or path.startswith("/version/"):
            _check(request, found=path == "/version", produced=(encoding.JSON,))
            return health.version()
        group = discovery.group(path)
        if group is None and path not in {"/apis", "/apis/"}:
            return openapi.answer(request, info) or await operator_endpoints.answer(info)
        if path in documents:
            _check(request, found=True, produced=encoding.PRODUCED)
            return await discovery.answer(info, request.headers)
        if group is None:
            raise errors.no_route()
        found = info.version in group.VERSIONS and group.routes(info.below_version)
        _check(request, found=found, produced=encoding.PRODUCED, streamed=_WATCH_TYPES)
        if explainer is not None and explain.requested(info):
            return await explain_from(explainer, group, request, info)
        return await answer_from(group, request, info)

    async def explain_from(
        explainer: Explainer, group: Group, request: Request, info: RequestInfo
    ) -> responses.Answer:
        if not await sees_causes(group, request):
            raise explain.forbidden(_document(group))
        return await explainer.answer(group, info, backend, deadline=request.deadline)

    async def answer_from(group: Group, request: Request, info: RequestInfo) -> responses.Answer:
        heads.remember(request)
        try:
            content = await group.answer(info, backend, deadline=request.deadline)
        except errors.ApiError as error:
            if error.causes:
                error.causes_visible = await sees_causes(group, request)
            raise
        accepted = responses.negotiate(info, request.headers, group.TRANSFORMS)
        answer = await encoded.encode(info, content, accepted)
        if content.causes and known_to_see_causes(group, request):
            return responses.with_warning(answer, content.causes)
        return answer

    async def sees_causes(group: Group, request: Request) -> bool:
        # Causes quote the rules, so only callers who may read the list of metrics see them.
        return guard is None or await _can_read(request, _document(group))

    def known_to_see_causes(group: Group, request: Request) -> bool:
        # An answer with values does not wait for the review. The next one has the warning.
        known = request.known_to_read_discovery
        return guard is None or (known is not None and known(_document(group)))

    guarded = route if guard is None else guard(route)

    async def handle(request: Request, info: RequestInfo) -> responses.Answer:
        group = discovery.group(info.path)
        if group is not None:
            info = group.to_object_scope(info, backend.objects.kinds)
        return await guarded(request, info)

    return responses.error_middleware(handle, heads=heads, timeout=timeout, closing=closing)


def _document(group: Group) -> str:
    """Return the path of the discovery document with the group's metrics."""
    return f"/apis/{group.NAME}/{group.VERSIONS[0]}"


async def _can_read(request: Request, path: str) -> bool:
    return request.can_read_discovery is not None and await request.can_read_discovery(path)


def _check(
    request: Request,
    *,
    found: bool,
    produced: tuple[str, ...],
    streamed: Sequence[str] = (),
) -> None:
    """Raise the ApiError of the original's router: 404, then 405, then 406."""
    if not found:
        raise errors.no_route()
    if request.method != hdrs.METH_GET:
        raise errors.ApiError(
            405,
            "the server does not allow this method on the requested resource",
            reason="MethodNotAllowed",
            details={},
        )
    if not negotiation.routable(request.headers.get(hdrs.ACCEPT, ""), produced):
        raise errors.ApiError(
            406,
            "406: Not Acceptable\n\n"
            f"Available representations: {', '.join((*produced, *streamed))}",
            reason="NotAcceptable",
            details={},
        )
