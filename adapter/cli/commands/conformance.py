"""`conformance`: collects evidence that an HPA scales pods with accelerators by their metric."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapter import settings
from adapter.cli.commands import without_log
from adapter.settings.flag import STRING, SWITCH, FlagGroup, FlagType, duration, flag, integer
from adapter.settings.kubectl import KubectlSettings
from adapter.settings.output import output
from rules import quantity
from rules.errors import QuantityError, UnreadableError
from rules.quoting import escaped

if TYPE_CHECKING:
    from adapter.cli.commands.conformance_evidence import Evidence

_PASSED, _FAILED, _INTERRUPTED = 0, 1, 130


def _target(text: str) -> str:
    try:
        value = quantity.milli_value(text)
    except QuantityError as error:
        raise ValueError(f"must be a quantity, such as 50 or 500m: {error}") from error
    if value <= 0:
        raise ValueError("must be more than 0")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(FlagGroup):
    """What is run, and how long each step may take."""

    TITLE = "Run"

    rehearsal: bool = flag(
        "rehearsal",
        SWITCH,
        "Also run where no accelerator is seen: if no node has one, with a stand-in that reports "
        "its load. The page says that it is no evidence.",
    )
    resource: str = flag(
        "resource",
        STRING,
        "Extended resource of which each pod gets one, such as nvidia.com/mig-1g.10gb. Without it, "
        "the first known one that a node has.",
    )
    image: str = flag(
        "image",
        STRING,
        "Image of the pods, with sh, cat, grep, sed and timeout. By default one of NVIDIA with "
        "nvcc, of several GB, and for a stand-in the adapter's.",
    )
    command: str = flag(
        "load-command",
        STRING,
        "Shell command in the image that keeps one accelerator busy; it is ended every 20 s. "
        "Without it, a CUDA kernel, for NVIDIA's only.",
    )
    metric: str = flag(
        "metric", STRING, "Metric of the pods that the HPA follows.", default="duty_cycle_current"
    )
    target: str = flag(
        "target",
        FlagType(name="quantity", parse=_target),
        "Target of the HPA, between the idle and the busy value.",
        default="50",
    )
    maximum: int = flag(
        "max-replicas", integer(2, 100), "Maximum of the HPA, which starts at 1.", default="2"
    )
    timeout: float = flag(
        "step-timeout",
        duration(positive=True),
        "Maximum duration of each step: the image is pulled, the metric comes, the HPA scales.",
        default="10m",
    )
    directory: str = flag(
        "directory", STRING, "Directory of the page and the JSON file.", default="."
    )
    output: str = output()


COMMAND = settings.CommandSpec(
    name="conformance",
    help=f"""Usage: gpu-metrics-adapter conformance [FLAGS]

Shows whether the cluster meets `pod_autoscaling`, which the CNCF's Kubernetes AI conformance
requires: creates a Deployment whose pods have one accelerator each, and its HPA, waits for the
metric, raises the load until the HPA has scaled out, and lowers it until it has scaled in. Writes
pod_autoscaling.html and pod_autoscaling.json, with versions, manifests, conditions, Events and
curves. Works with any adapter that serves the metric.

Everything is created in the namespace gpu-metrics-conformance, which is deleted at the end, or by
the next run if this one is killed; so run one at a time. It needs the rights of a cluster
administrator, and uses --max-replicas accelerators for some minutes.

{settings.flag_help(RunOptions, KubectlSettings)}

Exit code: 0 if all steps passed, also in a rehearsal; 1 if not, and the failures say what to do; 2
for an invalid command line; 130 after a signal.""",
    groups=(RunOptions, KubectlSettings),
)


def main(argv: Sequence[str]) -> int:
    """Return 0 if all steps passed, 1 if not, 130 after a signal. Raises UsageError."""
    line = COMMAND.parse(argv)
    options, cluster = line.groups
    if not (Path(options.directory).is_dir() and os.access(options.directory, os.W_OK)):
        raise COMMAND.error("--directory", f"{options.directory} is no directory to write to")
    import asyncio

    try:
        with without_log():
            return asyncio.run(_run(options, cluster))
    except UnreadableError as error:
        print(escaped(str(error)), file=sys.stderr)
        return _FAILED


async def _run(options: RunOptions, cluster: KubectlSettings) -> int:
    from adapter.cli.commands import conformance_evidence, conformance_run, shutdown
    from adapter.cli.doctor.client import connected
    from adapter.cli.output import write

    with shutdown.stopping() as stop:
        async with connected(cluster) as client:
            running = conformance_run.run(client, options, _say)
            evidence = await shutdown.run_until(stop, running)
    if evidence is None:
        return _INTERRUPTED
    if evidence.manifests:
        _write(evidence, Path(options.directory))
    if options.output == "text":
        print(escaped(f"{conformance_evidence.title(evidence)}. {evidence.claim}"))
    else:
        write(conformance_evidence.document(evidence), options.output)
    return _FAILED if evidence.failed else _PASSED


def _write(evidence: Evidence, directory: Path) -> None:
    """Write the page and the document."""
    import json

    from adapter.cli.commands import conformance_evidence
    from adapter.cli.console import pages

    document = conformance_evidence.document(evidence)
    texts = {
        "html": pages.evidence_file(
            conformance_evidence.title(evidence), document, conformance_evidence.charts(evidence)
        ),
        "json": f"{json.dumps(document, indent=2)}\n",
    }
    for suffix, text in texts.items():
        path = directory / f"{conformance_evidence.FILE_NAME}.{suffix}"
        path.write_text(text, encoding="utf-8")
        _say(f"wrote {path}")


def _say(line: str) -> None:
    print(escaped(" ".join(line.split(" "))), file=sys.stderr, flush=True)
