"""`rules`: lists the rules of files, or those that an adapter in the cluster uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.settings.flag import STRING, FlagGroup, flag
from adapter.settings.kubectl import KubectlSettings
from adapter.settings.output import output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Options(FlagGroup):
    """Which rules are listed, and how."""

    TITLE = "Flags"

    namespace: str = flag(
        "namespace",
        STRING,
        "Namespace of the adapter. Without it, adapters of all namespaces.",
        shorthand="n",
    )
    output: str = output()


_GROUPS = (_Options, settings.RulesSettings, KubectlSettings, settings.PrometheusSettings)
COMMAND = settings.CommandSpec(
    name="rules",
    help=f"""Usage: gpu-metrics-adapter rules [FLAGS]
       gpu-metrics-adapter rules FILE... [FLAGS]

Lists the rules of the adapters in the cluster, as their Deployments and ConfigMaps have them now:
the file or preset, the namespace if it is a rule of a team, the metric, and the series. With FILE,
--config or --preset, lists those, as check reads them. With --prometheus-url, the preset auto is
what matches the series in that Prometheus.

{settings.flag_help(*_GROUPS)}

Exit code: 0; 1 if rules are invalid or cannot be read; 2 for an invalid command line.""",
    groups=_GROUPS,
    positional_flag="config",
)


def main(argv: Sequence[str]) -> int:
    """Return 0, or 1 if rules are invalid or cannot be read. Raises UsageError, HelpRequested."""
    line = COMMAND.parse(argv)
    options, sources, cluster, prometheus = line.groups
    from adapter.cli.commands import rules_list

    live = any(flag.name == "prometheus-url" for flag in line.given)
    return rules_list.run(
        sources.sources,
        cluster,
        prometheus if live else None,
        namespace=options.namespace,
        form=options.output,
    )
