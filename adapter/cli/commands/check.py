"""`check`: reports errors and warnings in rules, without a cluster; optionally with Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.settings.flag import SWITCH, FlagGroup, flag
from adapter.settings.output import output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(FlagGroup):
    """What decides the exit code, and how findings are printed."""

    TITLE = "Flags"

    strict: bool = flag("strict", SWITCH, "Exit with 1 also if there are warnings; for CI.")
    output: str = output("github", note=", annotations of a workflow of GitHub Actions")


_HELP = f"""Usage: gpu-metrics-adapter check FILE... [FLAGS]

Reads the files together and in order, as the server does, and prints all errors and warnings with
file and line. A note says which rule needs a query for each namespace (scope namespace) or for
each request (scope alone), and what prevents one query for all. A file has rules, or
manifests (ConfigMaps with rules, Deployments of an adapter, whose flags are checked, too), or
values of the prometheus-adapter Helm chart; HPAs are checked, too. A FILE may be - for standard
input, or a folder, which is read with the folders below. Exit code: 0 if the server would
start and the API server accepts the HPAs, 1 if not, and with --strict for warnings, 2 for an
invalid command line.

With --prometheus-url, also prints what each rule takes from Prometheus, and what typical requests
return and how long their queries take. Exit code 1 also if Prometheus cannot be queried.

{settings.flag_help(_Options, settings.RulesSettings, settings.PrometheusSettings)}"""


COMMAND = settings.CommandSpec(
    name="check",
    help=_HELP,
    groups=(_Options, settings.RulesSettings, settings.PrometheusSettings),
    positional_flag="config",
)


def main(argv: Sequence[str]) -> int:
    """Return 0 if the server would start with the files, else 1. Raises UsageError."""
    line = COMMAND.parse(argv)
    options, flags, prometheus = line.groups
    if not flags.sources:
        raise COMMAND.error("FILE", "is missing")
    from adapter.cli.commands import check_files

    live = any(flag.name == "prometheus-url" for flag in line.given)
    return check_files.run(
        flags.sources, prometheus if live else None, form=options.output, strict=options.strict
    )
