"""faults.md: the table of the faults, as `python -m tools.faults --write` saw them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from tools.faults.seeds import FAULTS, Fault
from tools.faults.testbed import Outputs

PATH = Path(__file__).with_name("faults.md")
_MAX_LINE, _BEGIN = 340, 130
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
    """Write the page; rows of other faults stay as they are."""
    known = table()
    known |= {fault.title: _row(fault, outputs) for fault, outputs in rows}
    lines = [known[each.title] for each in FAULTS if each.title in known]
    named = sum("| neither: " not in line for line in lines)
    PATH.write_text(
        "# Faults\n\n"
        f"`python -m tools.faults --write` seeded {len(lines)} faults, one after the other, in a "
        f"control plane of Kubernetes {version}, and\nwrote this page. {named} of them are named "
        "with cause and cure in the message of the HPA's condition (`kubectl describe hpa`), or in "
        "the last\nline of `gpu-metrics-adapter doctor`. Ages, paths and addresses differ in your "
        "cluster.\n\n"
        "| Fault | Named by | The line |\n|---|---|---|\n" + "".join(f"{each}\n" for each in lines)
    )


def table() -> dict[str, str]:
    """Return the rows of the page, by the title of the fault."""
    if not PATH.exists():
        return {}
    rows = [line for line in PATH.read_text().splitlines() if line.startswith("| ")][1:]
    return {line.split(" | ")[0].removeprefix("| "): line for line in rows}


def _row(fault: Fault, outputs: Outputs) -> str:
    by = named_by(fault, outputs)
    line = outputs.condition if by.startswith("condition") else outputs.doctor
    text = _COMMON.sub("", line)
    if len(text) > _MAX_LINE:
        text = f"{text[:_BEGIN]} ... {text[_BEGIN - _MAX_LINE :]}"  # the end has the cure
    text = text.replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return f"| {fault.title} | {by or f'neither: {fault.why_not}'} | {text} |"
