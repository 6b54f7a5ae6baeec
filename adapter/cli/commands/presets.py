"""`presets`: lists the presets, prints one, or detects which match the series in Prometheus."""

from __future__ import annotations

import asyncio
import difflib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from adapter import errors, settings
from adapter.clients import detection, sources
from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import choice
from rules import presets
from rules.causes.explanation_text import wrapped
from rules.errors import ConfigError
from rules.exporters import detect
from rules.findings import Finding

_HELP = """Usage: gpu-metrics-adapter presets [NAME]
       gpu-metrics-adapter presets detect [FLAGS]

Without an argument, lists the presets. With NAME, prints the rules of that preset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output(FlagGroup):
    """How the report is printed."""

    TITLE = "Output"

    format: Literal["text", "json"] = flag(
        "output", choice("text", "json"), "Format of the report: text or json.", default="text"
    )


_DETECT_HELP = f"""Usage: gpu-metrics-adapter presets detect [FLAGS]

Searches Prometheus for the series of GPU exporters and model servers. Prints the presets that
match, and what is missing for more. Exit code: 0 if a preset matches, 1 if none does or Prometheus
cannot be queried, 2 for an invalid command line.

{settings.flag_help(settings.PrometheusSettings, _Output)}"""


_COMMAND = settings.CommandSpec(name="presets", help=_HELP, arguments=("NAME...",))
_DETECT = settings.CommandSpec(
    name="presets detect", help=_DETECT_HELP, groups=(settings.PrometheusSettings, _Output)
)


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if no such preset exists or none matches. Raises UsageError."""
    if argv[:1] == ["detect"]:
        return _detect(argv[1:])
    if not argv:
        print(_list(), end="")
        return 0
    name, *more = _COMMAND.parse(argv).positional
    if more:
        raise _COMMAND.error(" ".join(argv), "expected one preset or detect")
    try:
        print(presets.text(name), end="")
    except ConfigError as error:
        near = difflib.get_close_matches(name, ["detect"], n=1)
        print(f"{name}: did you mean detect?" if near else error, file=sys.stderr)
        return 1
    return 0


def _list() -> str:
    width = max(map(len, presets.names()))
    return "".join(f"{name:<{width}}  {presets.describe(name)}\n" for name in presets.names())


def _detect(argv: Sequence[str]) -> int:
    prometheus, output = _DETECT.parse(argv).groups
    for notice in prometheus.notices():
        print(notice, file=sys.stderr)
    try:
        report = asyncio.run(_observe(prometheus))
    except (errors.StartError, errors.BackendError) as error:
        print(f"Prometheus cannot be queried: {error}", file=sys.stderr)
        return 1
    print(_json(report) if output.format == "json" else "\n".join(_lines(report)))
    return 0 if report.presets else 1


async def _observe(flags: settings.PrometheusSettings) -> detect.Detection:
    async with sources.connect_prometheus(flags) as prometheus:
        return await detection.report(prometheus)


def _lines(report: detect.Detection) -> Iterator[str]:
    for sighting in report.exporters:
        yield (
            f"dcgm-exporter, {sighting.release} by its labels"
            if sighting.release
            else sighting.generation.title
        )
        for label in sighting.pods:
            yield from wrapped("  pods     ", label)
        if sighting.nodes:
            yield f"  nodes    `{sighting.nodes[0]}`"
        if sighting.metrics:
            names = (f"{each}_current" for each in sighting.metrics)
            yield from wrapped("  metrics  ", ", ".join(names))
        for finding in sighting.findings:
            yield from wrapped("  - ", finding.sentence)
        yield ""
    for finding in report.findings:
        yield from wrapped("", finding.sentence)
    if report.presets:
        yield "Matching presets, in this order:"
        yield f"  {' '.join(report.flags)}"
        if report.waiting:
            yield from wrapped(
                "",
                f"--preset=auto also loads {report.waiting}, for pods that use a GPU later.",
            )
    else:
        yield "No preset matches."


def _findings(found: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"code": each.reason, "text": each.sentence} for each in found]


def _json(report: detect.Detection) -> str:
    document = {
        "presets": report.presets,
        "flags": report.flags,
        "provisional": report.provisional,
        "exporters": [
            {
                "name": sighting.generation.name,
                "title": sighting.generation.title,
                "release": sighting.release,
                "schemes": sighting.schemes,
                "nodes": sighting.nodes,
                "metrics": sighting.metrics,
                "presets": sighting.presets,
                "findings": _findings(sighting.findings),
            }
            for sighting in report.exporters
        ],
        "findings": _findings(report.findings),
    }
    return json.dumps(document, indent=2)
