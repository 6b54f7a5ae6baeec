"""`presets`: lists the presets, prints one, or detects which match the series in Prometheus."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.settings.flag import FlagGroup
from adapter.settings.output import output
from rules import presets
from rules.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output(FlagGroup):
    """How presets are printed."""

    TITLE = "Output"

    format: str = output()


COMMAND = settings.CommandSpec(
    name="presets",
    help=f"""Usage: gpu-metrics-adapter presets [list] [FLAGS]
       gpu-metrics-adapter presets NAME [FLAGS]
       gpu-metrics-adapter presets detect [FLAGS]

Without NAME, lists the presets. With NAME, prints the rules of that preset.

{settings.flag_help(_Output)}""",
    groups=(_Output,),
    arguments=("[NAME]",),
    words=("list", "detect", *presets.names()),
)
_DETECT = settings.CommandSpec(
    name="presets detect",
    help=f"""Usage: gpu-metrics-adapter presets detect [FLAGS]

Searches Prometheus for the series of GPU exporters and model servers. Prints the presets that
match, and what is missing for more. Exit code: 0 if a preset matches, 1 if none does or Prometheus
cannot be queried, 2 for an invalid command line.

{settings.flag_help(settings.PrometheusSettings, _Output)}""",
    groups=(settings.PrometheusSettings, _Output),
)


COMMANDS = (COMMAND, _DETECT)


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if no such preset exists or none matches. Raises UsageError."""
    if argv[:1] == ["detect"]:
        return _detect(argv[1:])
    line = COMMAND.parse(argv)
    (options,) = line.groups
    name = "".join(line.positional)
    if name in {"", "list"}:
        _list(options.format)
        return 0
    try:
        text = presets.text(name)
    except ConfigError as error:
        near = difflib.get_close_matches(name, ["detect", "list"], n=1)
        print(f"{name}: did you mean {near[0]}?" if near else error, file=sys.stderr)
        return 1
    if options.format == "text":
        print(text, end="")
    else:
        import yaml

        from adapter.cli import output

        output.write(yaml.safe_load(text), options.format)
    return 0


def _list(form: str) -> None:
    names = presets.names()
    if form == "text":
        width = max(map(len, names))
        print(*(f"{name:<{width}}  {presets.describe(name)}" for name in names), sep="\n")
        return
    from adapter.cli import output

    listed = [{"name": name, "description": presets.describe(name)} for name in names]
    output.write({"presets": listed}, form)


def _detect(argv: Sequence[str]) -> int:
    prometheus, options = _DETECT.parse(argv).groups
    from adapter.cli.commands import presets_detect

    return presets_detect.run(prometheus, options.format)
