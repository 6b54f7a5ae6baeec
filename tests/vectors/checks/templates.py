"""Check of templates.json: the rendered text, or the phase in which the template fails."""

from __future__ import annotations

from rules import errors, template
from tests.vectors.expect import same

_FIELDS = (
    *("Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice"),
    *("Group", "Resource"),
)
"""Fields in the order of the original's structs, in which `<<.>>` prints them."""


def check(case: dict, clusters: dict) -> None:
    """Raise AssertionError if the text or the phase of the error differs from the case.

    An error that the original finds when it renders may be found when the template is parsed.
    """
    answer = _answer(case)
    if "error" not in case:
        same(answer, {"output": case.get("output")}, "answer")
    elif case["error"]["phase"] != "exec" or answer != {"phase": "parse"}:
        same(answer, {"phase": case["error"]["phase"]}, f"answer, for {case['error']['message']}")


def _answer(case: dict) -> dict[str, str]:
    """Return the rendered text, or the phase in which the template fails."""
    data = {name: case["data"][name] for name in _FIELDS if name in case["data"]}
    name = "resource-label" if "Resource" in data else "metrics-query"
    try:
        parsed = template.parse(case["template"], name=name)
    except errors.TemplateSyntaxError:
        return {"phase": "parse"}
    try:
        return {"output": parsed.render(data)}
    except errors.TemplateExecError:
        return {"phase": "exec"}
