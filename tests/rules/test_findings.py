"""Findings as lines of the log."""

from __future__ import annotations

import pytest

from rules import findings
from rules.findings import Finding, State


def test_the_fact_is_cut_and_never_the_cure():
    found = Finding(reason="NoSample", fact="x" * 600, cause="no scrape", cure="Scrape it" * 9)

    text = found.within(300)

    assert len(text) == 300
    assert text.startswith("NoSample: xxx")
    assert text.endswith(f"x…: no scrape. {found.cure}")
    assert found.within(10_000) == str(found)
    assert found.within(10).endswith(found.cure)


@pytest.mark.parametrize(
    ("finding", "line"),
    [
        (findings.in_file(State.WARNING, "is odd", path="a", file="f", line=2), "f:2: a: is odd"),
        (findings.in_file(State.FAILURE, "is bad", file="f"), "f: error: is bad"),
        (Finding(state=State.WARNING, reason="NoSample", fact="none"), "NoSample: none"),
    ],
)
def test_the_log_does_not_repeat_that_a_warning_is_one(finding: Finding, line: str) -> None:
    assert findings.for_log(finding) == line
