"""`doctor`: checks an installation from the API server to Prometheus, with cause and cure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.cli.commands import prometheus_url, without_log
from adapter.settings.flag import FlagGroup
from adapter.settings.kubectl import KubectlSettings, NamespaceSettings
from adapter.settings.output import output


@dataclass(frozen=True, slots=True, kw_only=True)
class _Report(FlagGroup):
    """How the report is printed."""

    TITLE = "Report"

    format: str = output()


_GROUPS = (_Report, NamespaceSettings, KubectlSettings, settings.PrometheusSettings)
_HELP = f"""Usage: gpu-metrics-adapter doctor [FLAGS]

Checks the APIServices, the Service to which they refer, certificates, the front proxy, rights, the
health of the adapter's pods, the metrics of autoscalers, Prometheus, its GPU exporters, and clocks.
It only reads. Each line is a state (ok, skipped, warning, failure), a name and a fact, followed by
cause and cure. The last line has the most important fault. What you may not read is skipped, with
the commands that grant the right. The role view in a namespace, with the right to read metrics, is
enough for the autoscalers of this namespace.

Runs on any computer with a kubeconfig, or in the adapter's pod, which sees less: its account may
read neither the targets of autoscalers nor other pods. Without --prometheus-url, `$PROMETHEUS_URL`
is used, which is set in the pod.

Exit code: 0 without a failure; 1 with one; 2 for an invalid command line, and if neither the
APIServices nor an autoscaler could be checked.

{settings.flag_help(*_GROUPS)}"""


COMMAND = settings.CommandSpec(name="doctor", help=_HELP, groups=_GROUPS)


def main(argv: Sequence[str]) -> int:
    """Return 0 without a failure, 1 with one, 2 if nothing important could be checked."""
    line, prometheus = prometheus_url.parse(COMMAND, argv)
    options, namespaces, cluster, _ = line.groups
    import asyncio

    from adapter.cli.doctor import checks, report
    from adapter.cli.output import write

    with without_log():
        examined = checks.examine(cluster, prometheus=prometheus, namespaces=namespaces)
        findings = asyncio.run(examined)
    if options.format == "text":
        print("\n".join(report.lines(findings)))
    else:
        write(report.document(findings), options.format)
    if not report.told(findings):
        return 2
    return 1 if report.failed(findings) else 0
