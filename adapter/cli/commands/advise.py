"""`advise hpa`: the target by which an autoscaler keeps a service level objective."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter import settings
from adapter.cli.commands import replay
from adapter.settings.flag import PERIOD, FlagGroup, FlagType, duration, flag
from adapter.settings.kubectl import KubectlSettings, namespace
from adapter.settings.output import output
from rules.findings import Finding
from rules.quoting import escaped


def _objective(text: str) -> str:
    if text:
        from rules.hpa import objective

        objective.split(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class _Advise(FlagGroup):
    """What is advised on."""

    TITLE = "Advise"

    objective: str = flag(
        "objective",
        FlagType(name="text", parse=_objective),
        "Metric and limit, such as 'time_to_first_token_p95 < 500ms'. The end of the metric's name "
        "may be left out. A limit without a unit has that of the metric.",
    )
    since: float = flag("since", PERIOD, "How much of the past.", default="7d")
    namespace: str = namespace()
    window: float = flag(
        "window",
        duration(positive=True),
        "Length of a window, in which the objective holds or not; at least the time that its query "
        "covers.",
        default="5m",
    )
    startup: float | None = replay.startup()
    step: float = replay.sync_period()
    output: str = output("html", note=", a page that needs no other file")

    def problems(self) -> Iterable[Finding]:
        """Yield what is missing, and periods that do not fit together."""
        if not self.objective:
            yield Finding(subject="--objective", fact="is missing")
        if self.window < self.step:
            yield Finding(subject="--window", fact="must not be shorter than --sync-period")
        yield from replay.too_many(self.since, self.step)


_GROUPS = (_Advise, KubectlSettings, settings.PrometheusSettings)
COMMAND = settings.CommandSpec(
    name="advise",
    help=f"""Usage: gpu-metrics-adapter advise hpa [NAMESPACE/]NAME --objective=TEXT [FLAGS]

Finds the largest target by which the HPA keeps an objective in 95 % of windows, from the past in
Prometheus: the objective beside the load of the pods, for each metric of load that the presets
have. Replays this target over the past beside the present settings. Prints the HPA as YAML to
apply, with the evidence in comments. It only reads.

If the past does not say it, as when the load never came near the limit, it names the load that is
missing, and prints no HPA.

{settings.flag_help(*_GROUPS)}

Example:
  gpu-metrics-adapter advise hpa vllm --objective='time_to_first_token_p95 < 500ms' >hpa.yaml

Exit code: 0; 1 if no target follows from the past, and the last line says why; 2 for an invalid
command line.""",
    groups=_GROUPS,
    arguments=("hpa", "NAMESPACE/NAME"),
    words=("hpa",),
)


def main(argv: Sequence[str]) -> int:
    """Return 0, or 1 if no target follows from the past. Raises UsageError and HelpRequested."""
    return replay.of_past(COMMAND, argv, _run)


async def _run(
    options: _Advise,
    cluster: KubectlSettings,
    connection: settings.PrometheusSettings,
    parts: Sequence[str],
) -> int:
    from adapter import yaml_encoding
    from adapter.cli.doctor import advise
    from adapter.cli.output import write
    from rules.hpa import advice_report

    wanted = replay.of_flags(advise.AdviseOptions, options)
    async with replay.connected(cluster, connection, parts) as (client, found, names):
        advised = await advise.run(client, found, *names, wanted, replay.progress)
    if options.output in {"json", "yaml"}:
        write(advice_report.document(advised), options.output)
    elif options.output == "html":
        from adapter.cli.console import pages

        print(pages.advise_file(advised))
    else:
        for line in advice_report.lines(advised):
            print(escaped(f"# {line}".rstrip()))
        if advised.manifest:
            print(yaml_encoding.encode(advised.manifest).decode(), end="")
    if advised.problem:
        print(escaped(f"cannot advise: {advised.problem}"), file=sys.stderr)
    return 1 if advised.problem else 0
