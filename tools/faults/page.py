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

_NOT_SHOWN = """The others are not, because

* the HPA gets a value, so there is no error: samples 200 s old, 0 to 1 instead of 0 to 100, rate of
  a gauge, counter as gauge, target 0.2, target 20k, Prometheus answers after 8 s, and rights of the
  adapter's reviews, whose last answers are cached;
* the request does not reach the adapter, and the API server answers it: rights of the HPA
  controller, APIService elsewhere or deleted, wrong caBundle, expired certificate, adapter stopped,
  request-header CA;
* the controller fails before it requests a metric of the adapter: two HPAs, scaleTargetRef, cpu
  without metrics.k8s.io;
* an empty list is the right answer: no pod matches the selector, or `kubectl top` reads it
  (metrics.k8s.io without series).
"""


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
    shown = sum("| condition" in line for line in lines)
    PATH.write_text(
        "# Faults\n\n"
        f"`python -m tools.faults --write` seeded {len(lines)} faults, one after the other, in a "
        f"control plane of Kubernetes {version}, and\nwrote this page. {named} of them are named "
        "with cause and cure in the message of the HPA's condition (`kubectl describe hpa`), or in "
        "the last\nline of `gpu-metrics-adapter doctor`. Ages, paths and addresses differ in your "
        f"cluster.\n\n{shown} are named by the condition. {_NOT_SHOWN}\n"
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
