"""Authorizer attributes of a request, the SubjectAccessReview spec and the 403 built from them.

Pure. Sending the review is in `authorization`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from adapter import errors
from adapter.server.apimachinery.request_info import RequestInfo
from adapter.server.auth.user import User
from rules.errors import SelectorError
from rules.quoting import quote_shortened, shorten
from rules.selectors import selectors
from rules.selectors.fields import parse_fields
from rules.selectors.selectors import EXPRESSION_OPERATORS

_SELECTOR_VERBS = frozenset({"list", "watch", "deletecollection"})
_VERBS_IN_PATHS = frozenset({"proxy", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """Attributes of a request that an authorizer decides on.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authorization/authorizer/interfaces.go
    """

    user: User
    verb: str
    is_resource_request: bool = True
    path: str = ""
    """Of a non-resource request only."""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    label_selector: str = ""
    field_selector: str = ""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash, which is needed for each request and takes 4 µs."""
        named = (getattr(self, each.name) for each in fields(self) if each.compare)
        object.__setattr__(self, "_hash", hash(tuple(named)))

    def __hash__(self) -> int:
        """Return the hash of all fields."""
        return self._hash

    @property
    def controlled_size(self) -> int:
        """Number of characters that the caller can choose."""
        place = (self.group, self.version, self.namespace, self.resource, self.subresource)
        rest = (self.verb, self.path, self.name, self.label_selector, self.field_selector)
        return sum(map(len, (*place, *rest)))


def authorizer_attributes(user: User, info: RequestInfo) -> Attributes:
    """Return the attributes of the request `info` made by `user`."""
    has_selectors = info.verb in _SELECTOR_VERBS and not _has_verb_in_path(info)
    return Attributes(
        user=user,
        verb=info.verb,
        is_resource_request=info.is_resource_request,
        path="" if info.is_resource_request else info.path,
        group=info.group,
        version=info.version,
        namespace=info.namespace,
        resource=info.resource,
        subresource=info.subresource,
        name=info.name,
        label_selector=info.label_selector if has_selectors else "",
        field_selector=info.field_selector if has_selectors else "",
    )


def _has_verb_in_path(info: RequestInfo) -> bool:
    """Return whether the path is a deprecated `/apis/GROUP/VERSION/watch/...`.

    Kubernetes reviews such requests without their selectors.
    """
    segments = info.path.strip("/").split("/")
    first = 2 if segments[0] == "api" else 3
    return info.is_resource_request and segments[first] in _VERBS_IN_PATHS


def review_spec(attributes: Attributes) -> dict[str, Any]:
    """Return the SubjectAccessReviewSpec; empty fields are left out.

    https://github.com/kubernetes/api/blob/master/authorization/v1/types.go
    """
    if attributes.is_resource_request:
        kind = "resourceAttributes"
        wanted: dict[str, Any] = {
            "namespace": attributes.namespace,
            "verb": attributes.verb,
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "name": attributes.name,
            "fieldSelector": _requirements(_field_requirements(attributes.field_selector)),
            "labelSelector": _requirements(_label_requirements(attributes.label_selector)),
        }
    else:
        kind = "nonResourceAttributes"
        wanted = {"path": attributes.path, "verb": attributes.verb}
    user = attributes.user
    spec = {
        kind: _without_empty(wanted),
        "user": user.name,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
        "uid": user.uid,
    }
    # The API server requires one of the two attribute fields, even an empty one.
    return {kind: {}} | _without_empty(spec)


def forbidden(attributes: Attributes, reason: str = "") -> errors.ApiError:
    """Return the 403 in Kubernetes' wording.

    https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/responsewriters/errors.go
    """
    denial = f"User {quote_shortened(attributes.user.name)} cannot {attributes.verb}"
    if attributes.is_resource_request:
        subresource = f"/{attributes.subresource}" if attributes.subresource else ""
        scope = (
            f"in the namespace {quote_shortened(attributes.namespace)}"
            if attributes.namespace
            else "at the cluster scope"
        )
        denial = (
            f"{denial} resource {quote_shortened(attributes.resource + subresource)} "
            f"in API group {quote_shortened(attributes.group)} {scope}"
        )
    else:
        denial = f"{denial} path {quote_shortened(attributes.path)}"
    denial = sanitize(denial) + (f": {reason}" if reason else "")
    resource = attributes.resource + (f".{attributes.group}" if attributes.group else "")
    resource = shorten(resource)
    if not resource:
        message = f"forbidden: {denial}"
    elif attributes.name:
        message = f"{resource} {quote_shortened(attributes.name)} is forbidden: {denial}"
    else:
        message = f"{resource} is forbidden: {denial}"
    details = {"name": attributes.name, "group": attributes.group, "kind": attributes.resource}
    return errors.ApiError(
        403,
        message,
        reason="Forbidden",
        details={key: shorten(value) for key, value in details.items() if value},
        headers=errors.NOSNIFF,
    )


def sanitize(text: str) -> str:
    """Escape the characters of HTML, as Kubernetes does in text that repeats a request."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _requirements(requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requirements": requirements} if requirements else {}


def _label_requirements(text: str) -> list[dict[str, Any]]:
    """Return the requirements that a review can express.

    Dropping the others is safe: fewer requirements request access to more objects.
    """
    try:
        selector = selectors.parse(text)
    except SelectorError:
        return []
    return [
        _without_empty(
            {
                "key": requirement.key,
                "operator": EXPRESSION_OPERATORS[requirement.operator],
                "values": list(requirement.values),
            }
        )
        for requirement in selector.requirements
        if requirement.operator in EXPRESSION_OPERATORS
    ]


def _field_requirements(text: str) -> list[dict[str, Any]]:
    try:
        requirements = parse_fields(text)
    except SelectorError:
        return []
    return [
        {
            "key": requirement.field,
            "operator": EXPRESSION_OPERATORS[requirement.operator],
            "values": [requirement.value],
        }
        for requirement in requirements
    ]


def _without_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if value}
