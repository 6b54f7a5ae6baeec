"""`presets`: lists the presets, prints one, or detects which match the series in Prometheus."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from adapter import settings
from adapter.settings.flag import FlagGroup, flag
from adapter.settings.flag_types import choice
from rules import presets
from rules.errors import ConfigError

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
    from adapter.cli.commands import presets_detect

    return presets_detect.run(prometheus, output.format)
