"""Impersonation: SubjectAccessReviews with the verb `impersonate`, and the resulting user.

Constrained impersonation (KEP-5284) is not supported: the verbs `impersonate:*` and
`impersonate-on:*` grant nothing here. Parsing the headers is in `request_headers`.

https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/filters/impersonation/impersonation.go
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterator

from adapter import errors
from adapter.server.auth.attributes import Attributes, forbidden
from adapter.server.auth.authorization import REVIEW_FAILED, AccessDecision
from adapter.server.auth.user import (
    SYSTEM_ANONYMOUS,
    SYSTEM_UNAUTHENTICATED,
    Impersonation,
    User,
    with_authenticated_group,
)
from rules.quoting import MAX_ECHO, quote_shortened, shorten

log = logging.getLogger(__name__)

_GROUP = "authentication.k8s.io"

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_SUBDOMAIN = r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_SERVICE_ACCOUNT = re.compile(f"system:serviceaccount:({_LABEL}):({_SUBDOMAIN})")


async def impersonate(
    requested: Impersonation,
    requester: User,
    review: Callable[[Attributes], Awaitable[AccessDecision]],
) -> User:
    """Return the user that `requester` acts as.

    Raises ApiError: 400 without a user name, 403 unless `review` allows each user, group, UID and
    extra value.
    """
    if not requested.user:
        raise errors.ApiError(
            400,
            f"requested {_go_syntax(requested)} without impersonating a user name",
            reason="BadRequest",
            headers=errors.NOSNIFF,
        )
    for attributes in _required(requested, requester):
        try:
            decision = await review(attributes)
        except errors.BackendError as error:
            log.warning(
                "impersonation by %r refused: SubjectAccessReview failed: %s: %s",
                requester.name,
                type(error).__name__,
                error,
            )
            raise forbidden(attributes, REVIEW_FAILED) from error
        if not decision.allowed:
            reason = ": ".join(text for text in (decision.error, decision.reason) if text)
            raise forbidden(attributes, reason)
    return _impersonated(requested)


def _required(requested: Impersonation, requester: User) -> Iterator[Attributes]:
    """Yield the attributes of each review that has to allow the impersonation."""

    def attributes(
        resource: str, name: str, *, group: str = "", namespace: str = "", subresource: str = ""
    ) -> Attributes:
        return Attributes(
            user=requester,
            verb="impersonate",
            group=group,
            version="v1",
            namespace=namespace,
            resource=resource,
            subresource=subresource,
            name=name,
        )

    if service_account := _SERVICE_ACCOUNT.fullmatch(requested.user):
        namespace, name = service_account.groups()
        yield attributes("serviceaccounts", name, namespace=namespace)
    else:
        yield attributes("users", requested.user)
    for group in requested.groups:
        yield attributes("groups", group)
    for key, values in requested.extra.items():
        for value in values:
            yield attributes("userextras", value, group=_GROUP, subresource=key)
    if requested.uid:
        yield attributes("uids", requested.uid, group=_GROUP)


def _impersonated(requested: Impersonation) -> User:
    groups = requested.groups
    if not groups and (service_account := _SERVICE_ACCOUNT.fullmatch(requested.user)):
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{service_account[1]}")
    if requested.user == SYSTEM_ANONYMOUS and SYSTEM_UNAUTHENTICATED not in groups:
        groups = (*groups, SYSTEM_UNAUTHENTICATED)
    return with_authenticated_group(
        User(name=requested.user, groups=groups, uid=requested.uid, extra=requested.extra)
    )


def _go_syntax(requested: Impersonation) -> str:
    """Return `requested` as Go's `%#v` formats a user.DefaultInfo, shortened like other names.

    Quoting all of a large head would take a second, and the requester may have no rights at all.
    """
    text, pieces = "", _go_pieces(requested)
    while len(text) <= MAX_ECHO and (piece := next(pieces, "")):
        text += piece
    return shorten(text)


def _go_pieces(requested: Impersonation) -> Iterator[str]:
    yield f'&user.DefaultInfo{{Name:"", UID:{quote_shortened(requested.uid)}, Groups:'
    yield from _go_strings(requested.groups)
    yield ", Extra:map[string][]string"
    for number, key in enumerate(sorted(requested.extra)):
        yield f"{', ' if number else '{'}{quote_shortened(key)}:"
        yield from _go_strings(requested.extra[key])
    yield "}}" if requested.extra else "(nil)}"


def _go_strings(values: tuple[str, ...]) -> Iterator[str]:
    yield "[]string"
    for number, value in enumerate(values):
        yield f"{', ' if number else '{'}{quote_shortened(value)}"
    yield "}" if values else "(nil)"
