"""Routing of every request by its decoded path, with the checks of the original's router.

Connections are in `http.connection`, time limits and errors in `apimachinery.middleware`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from weakref import ref

from aiohttp import hdrs

from adapter import errors, telemetry
from adapter.server.api import explain, groups, health, team_rules
from adapter.server.api.discovery import Discovery
from adapter.server.api.encoded_answers import EncodedAnswers
from adapter.server.api.explain import Explainer
from adapter.server.api.groups import custom
from adapter.server.api.groups.backend import Backend
from adapter.server.api.groups.group import AnyGroup, Content
from adapter.server.api.openapi import OpenApi
from adapter.server.api.outcomes import Outcomes
from adapter.server.apimachinery import encoding, middleware, negotiation, responses
from adapter.server.apimachinery.heads import Head, Heads
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.apimachinery.responses import Answer
from adapter.server.auth.user import EVERYBODY, Caller
from adapter.server.http.connection import DEFAULT_TIMEOUT, Serve
from adapter.server.http.request import Request
from rules.kinds import Kinds
from rules.query.catalog import Catalog

_WATCH_TYPES = tuple(
    f"{each};stream=watch" for each in encoding.PRODUCED if each in negotiation.STREAMED
)
"""Media types that the original lists in a 406 of a resource, although it streams nothing."""

_KEPT_SIZE = 3
"""Estimated bytes of an answer and of its values, per byte of its body."""

Guard = Callable[[Request, Head, RequestInfo], Awaitable[Caller]]
"""Authenticates and authorizes a request. Raises ApiError."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The last answer to a head, which is the next one while what it follows from is the same."""

    catalog: ref[Catalog]
    kinds: Kinds
    content: Content
    answer: Answer

    def is_of(self, backend: Backend) -> bool:
        return self.catalog() is backend.generation.catalog and self.kinds is backend.kinds

    def is_current(self) -> bool:
        return self.content.is_current is not None and self.content.is_current()


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

    Each request calls `backend` once. `causes_in_messages` appends why a metric has no value to the
    original's messages.
    """
    encoded = encoded or EncodedAnswers()
    heads = heads or Heads()
    outcomes = outcomes or Outcomes()

    async def handle(request: Request, head: Head) -> Answer:
        present = backend()
        info = custom.to_object_scope(head.info, present.kinds)
        caller = EVERYBODY if guard is None else await guard(request, head, info)
        with caller.slot:
            group = groups.of_path(present.generation, info.path)
            if group is None or not info.below_version:
                answer = await answer_document(request, info, group, present)
                if answer is not None:
                    return answer
            if group is None:
                raise errors.no_route()
            return await route(group, request, head, info, caller, present.of(info.namespace))

    async def answer_document(
        request: Request, info: RequestInfo, group: AnyGroup | None, present: Backend
    ) -> Answer | None:
        """Return the answer to a request for no metric; None if nothing is served at its path."""
        documents = discovery.of(present.generation)
        if info.path == "/version" or info.path.startswith("/version/"):
            _check(request, found=info.path == "/version", produced=(encoding.JSON,))
            return health.version()
        if group is None and info.path not in {"/apis", "/apis/"}:
            document = openapi.answer(request, info, documents.served)
            return document or await operator_endpoints.answer(info)
        if not documents.has(info.path):
            return None
        _check(request, found=True, produced=encoding.PRODUCED)
        return await documents.answer(info, request.headers)

    async def route(
        group: AnyGroup,
        request: Request,
        head: Head,
        info: RequestInfo,
        caller: Caller,
        backend: Backend,
    ) -> Answer:
        if backend.team_rules is not None and team_rules.requested(info):
            _check(request, found=True, produced=(encoding.JSON,))
            return await team_rules.answer(info, backend, backend.team_rules)
        found = info.version in group.API.versions and group.routes(info.below_version)
        _check(request, found=found, produced=encoding.PRODUCED, streamed=_WATCH_TYPES)
        list_of_metrics = group.API.path()
        if explainer is not None and explain.requested(info):
            if not await caller.may_read(list_of_metrics):
                raise explain.forbidden(list_of_metrics)
            return await explainer.answer(group, info, backend, deadline=request.deadline)
        kept: _Kept | None = head.answer
        if kept is not None and kept.is_of(backend) and kept.is_current():
            outcomes.note(info, kept.content)
            return kept.answer
        heads.remember(request, head)
        try:
            content = await outcomes.answer(group, info, backend, deadline=request.deadline)
        except errors.ApiError as error:
            # Causes quote the rules, so only callers who may read the list of metrics see them.
            if error.causes and await caller.may_read(list_of_metrics):
                raise error.showing_causes(in_message=causes_in_messages) from error.__cause__
            raise
        accepted = negotiation.of_request(info, request.headers, group.TRANSFORMS)
        answer = await encoded.encode(info.meaning, content, accepted)
        if content.is_current is not None:
            kept = _Kept(ref(backend.generation.catalog), backend.kinds, content, answer)
            heads.keep(head, kept, size=_KEPT_SIZE * len(answer.body))
        # An answer with values does not wait for the review. The next one has the warning.
        if content.causes and caller.is_known_to_read(list_of_metrics):
            return responses.with_warning(answer, content.causes)
        return answer

    return middleware.serving(handle, heads=heads, timeout=timeout, closing=closing, meter=meter)


def _check(
    request: Request, *, found: bool, produced: tuple[str, ...], streamed: Sequence[str] = ()
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
