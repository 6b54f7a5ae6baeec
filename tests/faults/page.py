"""docs/faults.md: the table of the faults, as `python -m tests.faults --write` saw them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tests.faults.seeds import Fault
from tests.faults.testbed import Outputs

PATH = Path(__file__).parents[2] / "docs" / "faults.md"
_MAX_LINE = 330
_COMMON = re.compile(
    r"^the HPA was unable to compute the replica count: |"
    r"unable to fetch metrics from custom metrics API: |^\d+ failures?, \d+ warnings?\. Begin with "
)
"""Parts of messages that say nothing of the fault."""


def named_by(fault: Fault, outputs: Outputs) -> str:
    """Return what names cause and cure: the condition, `doctor`, or both; empty if neither does."""
    lines = {"condition": outputs.condition, "`doctor`": outputs.doctor}
    return ", ".join(tool for tool, line in lines.items() if fault.is_named(line))


def write(version: str, rows: Sequence[tuple[Fault, Outputs]]) -> None:
    """Write the page."""
    named = sum(bool(named_by(*row)) for row in rows)
    PATH.write_text(
        "# Faults\n\n"
        "*Which line names which fault?*\n\n"
        f"`python -m tests.faults --write` seeded {len(rows)} faults, one after the other, in a "
        f"control plane of Kubernetes {version}, and\nwrote this page. {named} of them are named "
        "with cause and cure in the message of the HPA's condition (`kubectl describe hpa`), or in "
        "the last\nline of `gpu-metrics-adapter doctor`. Ages, paths and addresses differ in your "
        "cluster.\n\n"
        "| Fault | Named by | The line |\n|---|---|---|\n"
        + "".join(f"{_row(fault, outputs)}\n" for fault, outputs in rows)
    )


def _row(fault: Fault, outputs: Outputs) -> str:
    by = named_by(fault, outputs)
    line = outputs.condition if by.startswith("condition") else outputs.doctor
    text = _COMMON.sub("", line)
    if len(text) > _MAX_LINE:
        text = f"{text[:_MAX_LINE]} ..."
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return f"| {fault.title} | {by or f'neither: {fault.why_not}'} | {text} |"
