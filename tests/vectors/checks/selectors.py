"""Label selectors: requirements, the canonical text and the object form.

One answer differs on purpose: `!=`, for which the original has no object form, is written as NotIn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rules.errors import SelectorError
from rules.selectors import selectors
from tests.vectors.expect import same

FILE = "selectors.json"


def check(case: Mapping[str, Any], clusters: Mapping[str, Any]) -> None:
    try:
        selector = selectors.parse(case["selector"])
    except SelectorError as error:
        same(
            str(error), _today(case.get("error", f"the selector {case.get('canonical')}")), "error"
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
    wanted = case.get("label_selector", case.get("label_selector_error"))
    try:
        form = selectors.label_selector(selector) or {}
    except SelectorError as error:
        if not unequal:  # else the original stops at that one
            same(str(error), wanted, "label_selector_error")
        return
    if not unequal:
        same(form, wanted, "label_selector")
    for each in unequal:
        written = {"key": each.key, "operator": "NotIn", "values": list(each.values)}
        same(
            [written for found in form["matchExpressions"] if found == written][:1], [written], "!="
        )


def _today(message: str) -> str:
    """The messages of k8s.io/apimachinery 0.36; the cases were computed with 0.30."""
    message = re.sub(r"(no more than \d+) characters", r"\1 bytes", message)
    return message.replace(": a qualified name must", ": a valid label key must")
