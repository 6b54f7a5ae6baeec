"""What an authorizer is told about a request, and what a caller is told whom it refuses.

Pure. Both are Kubernetes' to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from adapter import errors
from adapter.auth.user import User
from adapter.http.request_info import RequestInfo
from rules.errors import SelectorError
from rules.quoting import quote
from rules.selectors import selectors

_SELECTING = frozenset({"list", "watch", "deletecollection"})
_VERBS_IN_PATHS = frozenset({"proxy", "watch"})
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


def attributes(user: User, info: RequestInfo) -> Attributes:
    """What `user` wants to do."""
    selecting = info.verb in _SELECTING and not _verb_in_path(info)
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
        label_selector=info.label_selector if selecting else "",
        field_selector=info.field_selector if selecting else "",
    )


def _verb_in_path(info: RequestInfo) -> bool:
    """Whether this is the deprecated `/apis/GROUP/VERSION/watch/…`, which takes no selectors."""
    segments = info.path.strip("/").split("/")
    first = 2 if segments[0] == "api" else 3
    return info.is_resource_request and segments[first] in _VERBS_IN_PATHS


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
    # The attributes decide what is asked about, even if they say nothing.
    return {kind: {}} | _without_empty(made)


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
    what = harmless(what) + (f": {reason}" if reason else "")
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


def harmless(text: str) -> str:
    """Nothing that a browser could take for HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


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
