"""Validation of list options, in Kubernetes' wording; every function raises ApiError.

API groups call these functions in the order in which Kubernetes validates.
https://github.com/kubernetes/apiserver/blob/master/pkg/endpoints/handlers/get.go
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adapter import errors
from adapter.errors import ApiError
from adapter.server.apimachinery.request_info import RequestInfo
from rules.errors import SelectorError
from rules.quoting import quote_shortened
from rules.selectors.fields import FieldRequirement
from rules.selectors.selectors import Selector

_FIELDS = frozenset({"metadata.name", "metadata.namespace"})


def of_list(
    info: RequestInfo, *, group: str, kind: str
) -> tuple[Selector, tuple[FieldRequirement, ...]]:
    """Check the options of a list; return its label selector and its field selector.

    Raises ApiError, also (405) for a watch: metrics cannot be watched.
    """
    selector = label_selector(info)
    requirements = field_selector(info)
    if not info.watch:
        check_resource_version(info)
    check_fields(info, requirements)
    if info.watch:
        raise ApiError(
            405,
            f'watch is not supported on resources of kind "{kind}.{group}"',
            reason="MethodNotAllowed",
            details={"group": group, "kind": kind},
        )
    return selector, requirements


def label_selector(info: RequestInfo) -> Selector:
    """Parse `labelSelector`, after the check of integer options. Raises ApiError (400)."""
    if info.options_error:
        raise errors.bad_request(info.options_error)
    try:
        return info.labels
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def field_selector(info: RequestInfo) -> tuple[FieldRequirement, ...]:
    """Parse `fieldSelector`; fields are not checked. Raises ApiError (400)."""
    try:
        return info.fields
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error


def check_fields(info: RequestInfo, requirements: Sequence[FieldRequirement]) -> None:
    """Raise ApiError (400) for unknown fields, and if the path's name is not the required one."""
    for requirement in requirements:
        if requirement.field not in _FIELDS:
            raise errors.bad_request(
                f"{quote_shortened(requirement.field)} is not a known field selector: "
                'only "metadata.name", "metadata.namespace"'
            )
    if not requirements or not info.name:
        return
    names = [
        requirement.value
        for requirement in requirements
        if requirement.field == "metadata.name" and requirement.operator == "="
    ]
    if names[:1] != [info.name]:
        raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")


def check_series_selector(selector: Selector, option: str) -> None:
    """Raise ApiError (400) for `>` and `<`; `option` is the name of the query parameter."""
    for requirement in selector.requirements:
        if requirement.operator in {"gt", "lt"}:
            raise errors.bad_request(
                f"{option}: {requirement} is not supported, because Prometheus matchers cannot "
                "compare numbers: use =, !=, in, notin, or the key alone"
            )


def check_resource_version(info: RequestInfo) -> None:
    """Raise ApiError (422) for invalid combinations of resource version options of a list.

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
    messages = [f"{cause['field']}: {cause['message']}" for cause in causes]
    summary = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    raise ApiError(
        422,
        f'ListOptions.meta.k8s.io "" is invalid: {summary}',
        reason="Invalid",
        details={"group": "meta.k8s.io", "kind": "ListOptions", "causes": causes},
    )


def _text(info: RequestInfo, key: str) -> str:
    return info.query.get(key, ("",))[0]


def _forbidden(message: str, *, field: str = "resourceVersionMatch") -> Mapping[str, str]:
    return {
        "reason": "FieldValueForbidden",
        "message": f"Forbidden: {field} {message}",
        "field": field,
    }


def _unsupported(match: str) -> Mapping[str, str]:
    supported = '"Exact", "NotOlderThan", ""'
    return {
        "reason": "FieldValueNotSupported",
        "message": f"Unsupported value: {quote_shortened(match)}: supported values: {supported}",
        "field": "resourceVersionMatch",
    }
