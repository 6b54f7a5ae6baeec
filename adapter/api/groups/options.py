"""What every group makes of list options, in Kubernetes' words; each raises ApiError.

The order in which a group calls these is the order in which Kubernetes refuses.
https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/get.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapter import errors
from adapter.errors import ApiError
from adapter.http.request_info import RequestInfo
from rules.errors import SelectorError
from rules.quoting import quote
from rules.selectors import selectors
from rules.selectors.selectors import FieldRequirement, Selector

_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


def label_selector(info: RequestInfo) -> Selector:
    """What `labelSelector` selects. Refuses (400) numbers that are none, too: they come first."""
    if info.options_error:
        raise errors.bad_request(info.options_error)
    try:
        return selectors.parse(info.label_selector)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def fields(info: RequestInfo) -> tuple[FieldRequirement, ...]:
    """What `fieldSelector` requires, of whatever fields. Refuses (400) what does not parse."""
    try:
        return selectors.parse_fields(info.field_selector)
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def check_fields(info: RequestInfo, requirements: Sequence[FieldRequirement]) -> None:
    """A field selector may only repeat the name that the path has already; else 400."""
    for requirement in requirements:
        if requirement.field not in _FIELDS:
            raise errors.bad_request(
                f"{quote(requirement.field)} is not a known field selector: "
                'only "metadata.name", "metadata.namespace"'
            )
    if not requirements or not info.name:
        return
    named = [
        requirement.value
        for requirement in requirements
        if requirement.field == "metadata.name" and requirement.operator == "="
    ]
    if named[:1] != [info.name]:
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")


def check_comparable(selector: Selector, option: str) -> None:
    """Refuses (400) a selector of series that compares numbers; `option` is where it stands."""
    for requirement in selector.requirements:
        if requirement.operator in {"gt", "lt"}:
            raise errors.bad_request(
                f"{option}: {requirement} cannot be answered, because no matcher of "
                "Prometheus compares numbers: use =, !=, in, notin, or the key alone"
            )


def check_versions(info: RequestInfo) -> None:
    """Refuses (422) a list whose options about resource versions contradict each other.

    https://github.com/kubernetes/apimachinery/blob/master/pkg/apis/meta/internalversion/validation/validation.go
    """
    causes = []
    match, version = _text(info, "resourceVersionMatch"), _text(info, "resourceVersion")
    if match:
        if not version:
            causes.append(_forbidden("is forbidden unless resourceVersion is provided"))
        if _text(info, "continue"):
            causes.append(_forbidden("is forbidden when continue is provided"))
        if match not in {"Exact", "NotOlderThan"}:
            causes.append(_unsupported(match))
        if match == "Exact" and version == "0":
            causes.append(_forbidden('"exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in info.query:
        causes.append(_forbidden("is forbidden for list", field="sendInitialEvents"))
    if not causes:
        return
    told = [f"{cause['field']}: {cause['message']}" for cause in causes]
    reasons = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    raise ApiError(
        422,
        f'ListOptions.meta.k8s.io "" is invalid: {reasons}',
        reason="Invalid",
        details={"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes},
    )


def _text(info: RequestInfo, key: str) -> str:
    return info.query.get(key, ("",))[0]


def _forbidden(message: str, *, field: str = "resourceVersionMatch") -> Mapping[str, str]:
    told = f"Forbidden: {field} {message}"
    return {"reason": "FieldValueForbidden", "message": told, "field": field}


def _unsupported(match: str) -> Mapping[str, str]:
    told = f'Unsupported value: {quote(match)}: supported values: "Exact", "NotOlderThan", ""'
    return {
        "reason": "FieldValueNotSupported",
        "message": told,
        "field": "resourceVersionMatch",
    }
