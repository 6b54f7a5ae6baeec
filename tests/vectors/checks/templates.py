"""How a case of templates.json is met: the text that comes out, or the phase of the error."""

from __future__ import annotations

from rules import errors, template

FILE = "templates.json"


def check(case: dict, clusters: dict) -> None:
    """Raise AssertionError where this engine answers otherwise than the case."""
    got = _answer(case)
    if "error" in case:
        wanted = case["error"]["phase"]
    else:
        wanted = (
            bytes.fromhex(case["output_hex"]) if "output_hex" in case else case["output"].encode()
        )
    assert got == wanted, (
        f"{case['template']!r}\n  wanted {wanted!r} {case.get('error', '')}\n  got    {got!r}"
    )


def _answer(case: dict) -> bytes | str:
    """The rendered bytes, or the phase in which it failed."""
    name = "resource-label" if "Resource" in case["data"] else "metrics-query"
    try:
        parsed = template.parse(case["template"], name=name)
    except errors.TemplateSyntaxError:
        return "parse"
    try:
        return parsed.render(case["data"]).encode("utf-8", "surrogateescape")
    except errors.TemplateExecError:
        return "exec"
