"""Who may do what: asked of the cluster by SubjectAccessReview, and remembered for a while.

Members of system:masters may do everything, and some paths are open to all. Whatever else the API
server does not allow is forbidden, in Kubernetes' words; where it gives no verdict, nobody is let
in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from adapter import errors, reviews
from adapter.ask import Ask
from adapter.remembered import Remembered
from adapter.user import User
from rules import selectors
from rules.errors import SelectorError
from rules.quoting import quote

MASTERS = "system:masters"
OPEN_PATHS = ("/healthz", "/readyz", "/livez")
ALLOWED_SECONDS = 60.0
DENIED_SECONDS = 10.0
UNDECIDED = "no verdict could be had; the log of the adapter says why"
"""What callers are told about the API server's failures."""

_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews?timeout=10s"
_TRY_SECONDS = 10.0
_REMEMBERED = 8192
_LONGEST_REMEMBERED = 10_000
_ENTRY = 1024
_BOTH = "webhook subject access review returned both allow and deny response"
_SELECTING = frozenset({"list", "watch", "deletecollection"})
_VERBS_IN_PATHS = frozenset({"proxy", "watch"})
_SURROGATE = re.compile("[\ud800-\udfff]")
_OPERATORS = {
    "=": "In",
    "==": "In",
    "in": "In",
    "!=": "NotIn",
    "notin": "NotIn",
    "exists": "Exists",
    "!": "DoesNotExist",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Everything about a request that a verdict may depend on.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authorization/authorizer/interfaces.go
    """

    user: User
    verb: str
    is_resource_request: bool = True
    path: str = ""
    """Of a request for no resource."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    label_selector: str = ""
    field_selector: str = ""

    @property
    def controlled(self) -> int:
        """How many characters the caller chose."""
        chosen = (self.verb, self.path, self.group, self.version, self.namespace, self.resource)
        more = (self.subresource, self.name, self.label_selector, self.field_selector)
        return sum(map(len, chosen)) + sum(map(len, more))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of a review; what is neither allowed nor wrong is forbidden."""

    allowed: bool
    reason: str = ""
    problem: str = ""
    """Why there is no verdict, though the API server answered."""


class OpenPaths:
    """The paths that need no verdict: whole ones, and beginnings that end in `*`."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Raises ValueError for a `*` elsewhere."""
        trimmed = [path.removeprefix("/") for path in paths]
        for path in trimmed:
            if "*" in path[:-1]:
                raise ValueError(f"only trailing * allowed in {quote(path)}")
        self._whole = frozenset(path for path in trimmed if not path.endswith("*"))
        self._beginnings = tuple(path[:-1] for path in trimmed if path.endswith("*"))

    def __contains__(self, path: str) -> bool:
        trimmed = path.removeprefix("/")
        return trimmed in self._whole or trimmed.startswith(self._beginnings)


class Authorizer:
    """Knows what callers may do; `api` is the cluster's, with the rights of system:auth-delegator.

    A verdict holds for `allowed_seconds` or `denied_seconds`. Raises ValueError for `open_paths`
    with a `*` that is not at the end.
    """

    def __init__(
        self,
        api: reviews.Api,
        *,
        allowed_seconds: float = ALLOWED_SECONDS,
        denied_seconds: float = DENIED_SECONDS,
        open_paths: Iterable[str] = OPEN_PATHS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._open = OpenPaths(open_paths)
        self._seconds = {True: allowed_seconds, False: denied_seconds}
        self._verdicts = Remembered(
            self._ask,
            lasts=self._lasts,
            room=_REMEMBERED * _ENTRY,
            size=lambda asked: _ENTRY + asked.controlled,
            clock=clock,
        )

    async def authorize(self, asked: Attributes, *, target: str) -> None:
        """Raises ApiError: 403, or TextError with 500, which repeats the request's `target`."""
        try:
            verdict = await self.review(asked)
        except errors.BackendError as error:
            raise _undecided(target, UNDECIDED) from error
        if verdict.problem:
            raise _undecided(target, verdict.problem)
        if not verdict.allowed:
            raise forbidden(asked, verdict.reason)

    async def review(self, asked: Attributes) -> Verdict:
        """Raises BackendError where the API server does not give one."""
        if MASTERS in asked.user.groups:
            return Verdict(allowed=True)
        if not asked.is_resource_request and asked.path in self._open:
            return Verdict(allowed=True)
        return await self._verdicts.get(asked)

    async def _ask(self, asked: Attributes) -> Verdict:
        document = {
            "kind": "SubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": spec(asked),
            "status": {"allowed": False},
        }
        return _verdict(await reviews.ask(self._api, _PATH, document, timeout=_TRY_SECONDS))

    def _lasts(self, asked: Attributes, verdict: Verdict) -> float:
        if asked.controlled >= _LONGEST_REMEMBERED or verdict.problem:
            return 0.0
        return self._seconds[verdict.allowed]


def attributes(user: User, ask: Ask) -> Attributes:
    """What `user` wants to do."""
    selecting = ask.verb in _SELECTING and not _verb_in_path(ask)
    return Attributes(
        user=user,
        verb=ask.verb,
        is_resource_request=ask.is_resource_request,
        path="" if ask.is_resource_request else ask.path,
        group=ask.group,
        version=ask.version,
        namespace=ask.namespace,
        resource=ask.resource,
        subresource=ask.subresource,
        name=ask.name,
        label_selector=ask.label_selector if selecting else "",
        field_selector=ask.field_selector if selecting else "",
    )


def _verb_in_path(ask: Ask) -> bool:
    """Whether this is the deprecated `/apis/GROUP/VERSION/watch/…`, which takes no selectors."""
    segments = ask.path.strip("/").split("/")
    first = 2 if segments[0] == "api" else 3
    return ask.is_resource_request and segments[first] in _VERBS_IN_PATHS


def spec(asked: Attributes) -> dict[str, Any]:
    """The SubjectAccessReviewSpec; what is empty is left out.

    https://github.com/kubernetes/api/blob/master/authorization/v1/types.go
    """
    if asked.is_resource_request:
        kind = "resourceAttributes"
        wanted: dict[str, Any] = {
            "namespace": asked.namespace,
            "verb": asked.verb,
            "group": asked.group,
            "version": asked.version,
            "resource": asked.resource,
            "subresource": asked.subresource,
            "name": asked.name,
            "fieldSelector": _requirements(_field_requirements(asked.field_selector)),
            "labelSelector": _requirements(_label_requirements(asked.label_selector)),
        }
    else:
        kind = "nonResourceAttributes"
        wanted = {"path": asked.path, "verb": asked.verb}
    user = asked.user
    made = {
        kind: _without_empty(wanted),
        "user": user.name,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        "uid": user.uid,
    }
    sound: dict[str, Any] = _sound(_without_empty(made))
    # The attributes decide what is asked about, even if they say nothing.
    return {kind: {}} | sound


def forbidden(asked: Attributes, reason: str = "") -> errors.ApiError:
    """The refusal in Kubernetes' words.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go
    """
    who = f"User {quote(asked.user.name)} cannot {asked.verb}"
    if asked.is_resource_request:
        resource = asked.resource + (f"/{asked.subresource}" if asked.subresource else "")
        place = f"in the namespace {quote(asked.namespace)}" if asked.namespace else ""
        what = (
            f"{who} resource {quote(resource)} in API group {quote(asked.group)} "
            f"{place or 'at the cluster scope'}"
        )
    else:
        what = f"{who} path {quote(asked.path)}"
    what = _harmless(what) + (f": {reason}" if reason else "")
    subject = f"{asked.resource}.{asked.group}" if asked.group else asked.resource
    if not subject:
        message = f"forbidden: {what}"
    elif asked.name:
        message = f"{subject} {quote(asked.name)} is forbidden: {what}"
    else:
        message = f"{subject} is forbidden: {what}"
    details = {"name": asked.name, "group": asked.group, "kind": asked.resource}
    return errors.ApiError(
        403,
        message,
        reason="Forbidden",
        details=_without_empty(details),
        headers=errors.NOSNIFF,
    )


def _undecided(target: str, why: str) -> errors.TextError:
    return errors.TextError(500, _harmless(f"Internal Server Error: {quote(target)}: {why}"))


def _harmless(text: str) -> str:
    """Nothing that a browser could take for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _verdict(answer: Any) -> Verdict:
    """Raises Broken for what is no SubjectAccessReview. One without a status allows nothing."""
    if not isinstance(answer, dict):
        raise errors.Broken(f"POST {_PATH}: the answer is no SubjectAccessReview")
    status = answer.get("status") or {}
    if not isinstance(status, dict):
        raise errors.Broken(f"POST {_PATH}: the answer's status is none: {status!r}")
    allowed, denied = status.get("allowed") or False, status.get("denied") or False
    reason = status.get("reason") or ""
    if not (isinstance(allowed, bool) and isinstance(denied, bool) and isinstance(reason, str)):
        raise errors.Broken(f"POST {_PATH}: the answer's status is no verdict: {status!r}")
    if allowed and denied:
        return Verdict(allowed=False, reason=reason, problem=_BOTH)
    return Verdict(allowed=allowed, reason=reason)


def _requirements(requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requirements": requirements} if requirements else {}


def _label_requirements(text: str) -> list[dict[str, Any]]:
    """Those that a review can express: fewer of them only ask for more to be allowed."""
    try:
        parsed = selectors.parse(text)
    except SelectorError:
        return []
    return [
        _without_empty(
            {
                "key": each.key,
                "operator": _OPERATORS[each.operator],
                "values": list(each.values),
            }
        )
        for each in parsed.requirements
        if each.operator in _OPERATORS
    ]


def _field_requirements(text: str) -> list[dict[str, Any]]:
    try:
        parsed = selectors.parse_fields(text)
    except SelectorError:
        return []
    return [
        {"key": each.field, "operator": _OPERATORS[each.operator], "values": [each.value]}
        for each in parsed
    ]


def _without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value}


def _sound(document: Any) -> Any:
    """`document` with U+FFFD for each byte that was no UTF-8, as Go writes JSON."""
    if isinstance(document, str):
        return _SURROGATE.sub("\ufffd", document)
    if isinstance(document, dict):
        return {_sound(key): _sound(value) for key, value in document.items()}
    return [_sound(each) for each in document]
