"""LabelSelector objects (metav1) as the selectors that clients of the API send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rules.selectors.selectors import EXPRESSION_OPERATORS, Operator, Requirement, Selector

_OPERATORS: Mapping[str, Operator] = {
    EXPRESSION_OPERATORS[each]: each for each in ("in", "notin", "exists", "!")
}


def canonical(document: Mapping[str, Any] | None) -> str:
    """Return the canonical form of a LabelSelector; empty if it selects everything."""
    if not document:
        return ""
    requirements = [
        Requirement(key=key, operator="=", values=(value,))
        for key, value in (document.get("matchLabels") or {}).items()
    ]
    requirements += [
        Requirement(
            key=each["key"],
            operator=_OPERATORS[each["operator"]],
            values=tuple(sorted(set(each.get("values") or ()))),
        )
        for each in document.get("matchExpressions") or ()
    ]
    return str(Selector(requirements=tuple(sorted(requirements, key=lambda each: each.key))))
