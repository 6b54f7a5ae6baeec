"""Check of selectors.json: requirements, canonical text and object form of label selectors.

One answer differs on purpose: the object form of `!=` is NotIn, where the original has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rules.errors import SelectorError
from rules.selectors import selectors
from tests.vectors.expect import same


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    try:
        selector = selectors.parse(case["selector"])
    except SelectorError as error:
        same(
            str(error),
            _current(case.get("error", f"the selector {case.get('canonical')}")),
            "error",
        )
        return
    same(str(selector), case.get("canonical", f"error: {case.get('error')}"), "canonical")
    same(selector.empty, case["empty"], "empty")
    requirements = [
        {"key": each.key, "operator": each.operator, "values": list(each.values)}
        for each in selector.requirements
    ]
    same(requirements, case["requirements"], "requirements")
    _object_form(selector, case)


def _object_form(selector: selectors.Selector, case: Mapping[str, Any]) -> None:
    unequal = [each for each in selector.requirements if each.operator == "!="]
    expected = case.get("label_selector", case.get("label_selector_error"))
    try:
        form = selectors.label_selector(selector) or {}
    except SelectorError as error:
        if not unequal:  # with `!=` the original reports that first
            same(str(error), expected, "label_selector_error")
        return
    if not unequal:
        same(form, expected, "label_selector")
    for each in unequal:
        expression = {"key": each.key, "operator": "NotIn", "values": list(each.values)}
        same(expression in form["matchExpressions"], True, f"{expression} is in the object form")


def _current(message: str) -> str:
    """Return a message of k8s.io/apimachinery 0.30, as the cases have them, in 0.36's words."""
    message = re.sub(r"(no more than \d+) characters", r"\1 bytes", message)
    return message.replace(": a qualified name must", ": a valid label key must")
