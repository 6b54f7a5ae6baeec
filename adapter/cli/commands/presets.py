"""`presets`: lists the presets, prints one, detects which match, or prints scrape jobs for them."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.cli.commands import prometheus_url
from adapter.settings.flag import SWITCH, FlagGroup, choice, comma_separated, flag
from adapter.settings.kubectl import KubectlSettings
from adapter.settings.limits import LimitSettings
from adapter.settings.output import output
from rules import presets
from rules.errors import ConfigError
from rules.exporters.target import TRUSTED


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output(FlagGroup):
    """How presets are printed."""

    TITLE = "Output"

    format: str = output()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scrape(FlagGroup):
    """What is scraped, and the format of the output."""

    TITLE = "Scrape"

    format: str = flag(
        "format",
        choice("prometheus", "podmonitor", "scrapeconfig"),
        "Format: prometheus (`scrape_configs`), or podmonitor or scrapeconfig of its operator.",
        default="prometheus",
    )
    minimal: bool = flag("minimal", SWITCH, "Drop all series that no preset reads.")
    trusted: tuple[str, ...] = flag(
        "trusted-namespaces",
        comma_separated(),
        "The only namespaces in which exporters of accelerators, whose series name other pods, are "
        "scraped. Those who create pods there decide about the values of all pods.",
        default=",".join(TRUSTED),
    )
    tokens: tuple[str, ...] = flag(
        "token-namespaces",
        comma_separated(),
        "Namespaces in which gateways that need a token get that of Prometheus, over plain HTTP. "
        "Those who create pods there can read it.",
    )


COMMAND = settings.CommandSpec(
    name="presets",
    help=f"""Usage: gpu-metrics-adapter presets [list] [FLAGS]
       gpu-metrics-adapter presets NAME [FLAGS]
       gpu-metrics-adapter presets detect [FLAGS]
       gpu-metrics-adapter presets scrape [NAME...] [FLAGS]

Without NAME, lists the presets. With NAME, prints the rules of that preset. `detect` prints which
presets match the series in Prometheus, and `scrape` what makes Prometheus scrape for presets.

{settings.flag_help(_Output)}""",
    groups=(_Output,),
    arguments=("[NAME]",),
    words=("list", "detect", "scrape", *presets.names()),
)
_DETECT = settings.CommandSpec(
    name="presets detect",
    help=f"""Usage: gpu-metrics-adapter presets detect [FLAGS]

Searches Prometheus for the series of GPU exporters and model servers. Prints the presets that
match, and what is missing for more. With --kubeconfig or --context, also the pods of that cluster
that Prometheus does not scrape. Without --prometheus-url, `$PROMETHEUS_URL` is used, which is set
in the adapter's pod. Exit code: 0 if a preset matches, 1 if none does or Prometheus cannot be
queried, 2 for an invalid command line.

{settings.flag_help(_Output, KubectlSettings, settings.PrometheusSettings)}""",
    groups=(_Output, KubectlSettings, settings.PrometheusSettings),
)
_SCRAPE = settings.CommandSpec(
    name="presets scrape",
    help=f"""Usage: gpu-metrics-adapter presets scrape [NAME...] [FLAGS]

Prints what makes Prometheus scrape the exporters, model servers and gateways of these presets, by
default of all. Pods are found by labels, ports and images. Other pods need the annotations
gpu-metrics-adapter/scrape (the name of a preset) and gpu-metrics-adapter/port. On all pods, the
annotations port, path and scheme (https) with this prefix replace the defaults. Exit code: 0,
or 1 if a preset does not exist, or the address of its metrics is not known.

{settings.flag_help(_Scrape, LimitSettings)}""",
    groups=(_Scrape, LimitSettings),
    arguments=("[NAME...",),
    words=presets.names(),
)


COMMANDS = (COMMAND, _DETECT, _SCRAPE)


def main(argv: Sequence[str]) -> int:
    """Return 0 for success, 1 if no such preset exists or none matches. Raises UsageError."""
    if argv[:1] == ["detect"]:
        return _detect(argv[1:])
    if argv[:1] == ["scrape"]:
        return _scrape(argv[1:])
    line = COMMAND.parse(argv)
    (options,) = line.groups
    name = "".join(line.positional)
    if name in {"", "list"}:
        _list(options.format)
        return 0
    try:
        text = presets.text(name)
    except ConfigError as error:
        near = difflib.get_close_matches(name, ["detect", "list", "scrape"], n=1)
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
    line, prometheus = prometheus_url.parse_required(_DETECT, argv)
    options, cluster, _ = line.groups
    from adapter.cli.commands import presets_detect

    return presets_detect.run(prometheus, cluster, options.format)


def _scrape(argv: Sequence[str]) -> int:
    line = _SCRAPE.parse(argv)
    options, limited = line.groups
    from adapter.cli.commands import presets_scrape
    from rules.scrape import jobs

    try:
        found = jobs.of_presets(
            line.positional,
            minimal=options.minimal,
            trusted=options.trusted,
            tokens=options.tokens,
            limits=limited.limits,
        )
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    if not found:
        print("exporters need a namespace in --trusted-namespaces", file=sys.stderr)
        return 1
    print(presets_scrape.text(found, options.format), end="")
    return 0
