"""`presets [NAME]` shows the ready-made rules; `presets detect` tells which of them fit."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from adapter import errors, settings
from adapter.app import sources
from adapter.metrics import detection
from rules import presets
from rules.errors import ConfigError
from rules.exporters import detect

NAME = "presets"
SUMMARY = "list the presets, print one, or see which fit: presets [NAME | detect]"

_FLAGS = tuple(flag for flag in settings.FLAGS if flag.group == "Prometheus")
_WIDTH = 100


def main(argv: Sequence[str]) -> int:
    """0 if what is asked for is there, 1 if not or if nothing fits, 2 for a wrong command line."""
    if argv[:1] == ["detect"]:
        return _detect(_detect_parser().parse_args(argv[1:]))
    asked = _parser().parse_args(argv)
    try:
        print(presets.text(asked.preset) if asked.preset else _list(), end="")
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"gpu-metrics-adapter {NAME}",
        description="List the presets, or print the rules of one.",
        epilog="`presets detect --help` tells how to see which of them fit a Prometheus.",
    )
    parser.add_argument("preset", nargs="?", help="whose rules to print; or `detect`")
    return parser


def _detect_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"gpu-metrics-adapter {NAME} detect",
        description="Look for GPU exporters in a Prometheus, and tell which presets fit them and "
        "what is missing for more. Exits 1 if none fits.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    for flag in _FLAGS:
        switch: dict[str, Any] = {"nargs": "?", "const": "true"} if flag.type == "bool" else {}
        parser.add_argument(
            f"--{flag.name}",
            action="append",
            metavar=flag.type.upper(),
            help=flag.help.replace("%", "%%"),
            **switch,
        )
    return parser


def _detect(asked: argparse.Namespace) -> int:
    given = [
        f"--{flag.name}={value}"
        for flag in _FLAGS
        for value in getattr(asked, flag.name.replace("-", "_")) or ()
    ]
    try:
        checked = settings.parse(given)
    except settings.UsageError as error:
        print(error, file=sys.stderr)
        return 2
    for notice in checked.notices:
        print(notice, file=sys.stderr)
    try:
        report = asyncio.run(_look(checked))
    except (errors.StartError, errors.BackendError) as error:
        print(f"Prometheus cannot be asked, so nothing can be told: {error}", file=sys.stderr)
        return 1
    print(_json(report) if asked.output == "json" else "\n".join(_lines(report)))
    return 0 if report.presets else 1


async def _look(asked: settings.Settings) -> detect.Report:
    async with sources.connect_prometheus(asked) as prometheus:
        return detect.judge(await detection.look(prometheus))


def _list() -> str:
    width = max(map(len, presets.names()))
    return "".join(f"{name:<{width}}  {presets.describe(name)}\n" for name in presets.names())


def _lines(report: detect.Report) -> Iterator[str]:
    for seen in report.sightings:
        release = f", {seen.release} by its labels" if seen.release else ""
        yield f"{seen.generation.title}{release}"
        for label in seen.pods:
            yield from _wrapped("  pods     ", label)
        if seen.nodes:
            yield f"  nodes    `{seen.nodes[0]}`"
        if seen.metrics:
            yield from _wrapped("  metrics  ", ", ".join(seen.metrics))
        for finding in seen.findings:
            yield from _wrapped("  - ", finding.text)
        yield ""
    for finding in report.findings:
        yield from _wrapped("", finding.text)
    if report.presets:
        yield "Fitting, in this order:"
        yield f"  {' '.join(report.flags)}"
    else:
        yield "No preset fits."


def _wrapped(before: str, text: str) -> list[str]:
    return textwrap.wrap(
        text,
        width=_WIDTH,
        initial_indent=before,
        subsequent_indent=" " * len(before),
        break_on_hyphens=False,
        break_long_words=False,
    )


def _json(report: detect.Report) -> str:
    document = {
        "presets": report.presets,
        "flags": report.flags,
        "provisional": report.provisional,
        "exporters": [
            {
                "name": seen.generation.name,
                "title": seen.generation.title,
                "release": seen.release,
                "schemes": seen.schemes,
                "nodes": seen.nodes,
                "metrics": seen.metrics,
                "presets": seen.presets,
                "findings": [dataclasses.asdict(finding) for finding in seen.findings],
            }
            for seen in report.sightings
        ],
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
    }
    return json.dumps(document, indent=2)
