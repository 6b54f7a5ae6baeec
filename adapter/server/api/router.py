"""Routing of every request by its decoded path, with the checks of the original's router.

Connections are in `http.connection`, conversion to HTTP responses in `apimachinery.responses`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from aiohttp import hdrs

from adapter import errors, telemetry
from adapter.server.api import explain, health, team_rules
from adapter.server.api.discovery import Discovery
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.explain import Explainer
from adapter.server.api.groups.group import AnyGroup, Backend
from adapter.server.api.openapi import OpenApi
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery import encoding, negotiation, responses
from adapter.server.apimachinery.call import EVERYBODY, Call
from adapter.server.apimachinery.heads import Heads
from adapter.server.http.connection import DEFAULT_TIMEOUT, Serve
from adapter.server.http.request import Request

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
    backend: Callable[[], Backend],
    guard: Guard | None = None,
    explainer: Explainer | None = None,
    encoded: EncodedAnswers | None = None,
    heads: Heads | None = None,
    outcomes: Outcomes | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    closing: Callable[[], bool] = lambda: False,
    meter: telemetry.RequestMetrics | None = None,
    causes_in_messages: bool = False,
) -> Serve:
    """Return the function that serves all requests. `guard` runs before anything is routed.

    Each request reads `backend` once, when it is routed. `causes_in_messages` appends why a metric
    has no value to the original's messages.
    """
    encoded = encoded or EncodedAnswers()
    heads = heads or Heads()
    outcomes = outcomes or Outcomes()

    async def route(call: Call) -> responses.Answer:
        request, info = call.request, call.info
        path, present = info.path, backend().of(info.namespace)
        if path == "/version" or path.startswith("/version/"):
            _check(request, found=path == "/version", produced=(encoding.JSON,))
            return health.version()
        group = discovery.group(path)
        if group is None and path not in {"/apis", "/apis/"}:
            return openapi.answer(request, info) or await operator_endpoints.answer(info)
        if discovery.has(path):
            _check(request, found=True, produced=encoding.PRODUCED)
            return await discovery.answer(info, request.headers)
        if group is None:
            raise errors.no_route()
        if present.team_rules is not None and team_rules.requested(info):
            _check(request, found=True, produced=(encoding.JSON,))
            return await team_rules.answer(info, present, present.team_rules)
        found = info.version in group.API.versions and group.routes(info.below_version)
        _check(request, found=found, produced=encoding.PRODUCED, streamed=_WATCH_TYPES)
        if explainer is not None and explain.requested(info):
            return await explain_from(explainer, group, call, present)
        return await answer_from(group, call, present)

    async def explain_from(
        explainer: Explainer, group: AnyGroup, call: Call, present: Backend
    ) -> responses.Answer:
        if not await call.caller.may_read(_document(group)):
            raise explain.forbidden(_document(group))
        return await explainer.answer(group, call.info, present, deadline=call.request.deadline)

    async def answer_from(group: AnyGroup, call: Call, present: Backend) -> responses.Answer:
        request, info = call.request, call.info
        heads.remember(request, call.head)
        try:
            content = await outcomes.answer(group, info, present, deadline=request.deadline)
        except errors.ApiError as error:
            # Causes quote the rules, so only callers who may read the list of metrics see them.
            if error.causes and await call.caller.may_read(_document(group)):
                raise error.showing_causes(in_message=causes_in_messages) from error.__cause__
            raise
        accepted = responses.negotiate(info, request.headers, group.TRANSFORMS)
        answer = await encoded.encode(info.meaning, content, accepted)
        # An answer with values does not wait for the review. The next one has the warning.
        if content.causes and call.caller.is_known_to_read(_document(group)):
            return responses.with_warning(answer, content.causes)
        return answer

    async def route_for_everybody(call: Call) -> responses.Answer:
        return await route(replace(call, caller=EVERYBODY))

    guarded = route_for_everybody if guard is None else guard(route)

    async def handle(call: Call) -> responses.Answer:
        group = discovery.group(call.info.path)
        if group is not None:
            info = group.to_object_scope(call.info, backend().objects.kinds)
            if info is not call.info:
                call = replace(call, info=info)
        return await guarded(call)

    return responses.error_middleware(
        handle, heads=heads, timeout=timeout, closing=closing, meter=meter
    )


def _document(group: AnyGroup) -> str:
    """Return the path of the discovery document with the group's metrics."""
    return group.API.path()


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
