"""`migrate`: prometheus-adapter installations and KEDA ScaledObjects become values and HPAs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from adapter import settings
from adapter.settings.flag import FILE, STRING, SWITCH, Flag, FlagGroup, choice, flag, repeated
from adapter.settings.kubectl import KubectlSettings
from rules.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(FlagGroup):
    """What is read and written."""

    TITLE = "Flags"

    files: tuple[str, ...] = flag(
        "file", repeated("file", str), "File to read, as without the flag."
    )
    cluster: bool = flag(
        "cluster",
        SWITCH,
        "Read Deployments of prometheus-adapter, their ConfigMaps and all ScaledObjects.",
    )
    output: str | None = flag("output", FILE, "Folder to write to. Without it, only the report.")
    format: Literal["values", "kustomize"] = flag(
        "format",
        choice("values", "kustomize"),
        "values: values of the chart. kustomize: an overlay on manifests/base.",
        default="values",
    )
    manifests: str = flag(
        "manifests",
        STRING,
        "Path of our manifests, as the overlay sees it.",
        default="../manifests",
    )
    compare: bool = flag(
        "compare",
        SWITCH,
        "Compare two running servers instead, for the HPAs in FILE, or all of the cluster.",
    )
    original: str = flag(
        "original",
        STRING,
        "URL, or NAMESPACE/SERVICE of the server to compare with; if empty, the one that the "
        "APIServices name.",
    )
    ours: str = flag("ours", STRING, "The same for the other server.")
    token_file: str | None = flag(
        "token-file",
        FILE,
        "Bearer token for the URLs. Other credentials are not sent there.",
    )

    def problems(self) -> Iterator[Finding]:
        """Yield the conflicts between the flags."""
        if self.compare and "://" not in self.original + self.ours:
            yield Finding(
                subject="--ours",
                fact="set it or --original to the URL of the server without APIService",
            )
        if self.compare and self.cluster:
            yield Finding(
                subject="--cluster", fact="has no effect with --compare, which reads the cluster"
            )
        if not self.compare and self.cluster and self.files:
            yield Finding(subject="--cluster", fact="reads no FILE")
        if not (self.compare or self.cluster or self.files):
            yield Finding(subject="FILE", fact="is missing")


class Cluster(KubectlSettings):
    """kubectl's flags without --cluster, which is a switch of this command."""

    @classmethod
    def flags(cls) -> Iterator[tuple[str, Flag[Any]]]:
        """Yield the flags with the fields that they set."""
        return (each for each in super().flags() if each[0] != "cluster")


COMMAND = settings.CommandSpec(
    name="migrate",
    help=f"""Usage: gpu-metrics-adapter migrate FILE... [FLAGS]
       gpu-metrics-adapter migrate --cluster [FLAGS]
       gpu-metrics-adapter migrate --compare --ours=URL [FILE...] [FLAGS]

Reads an installation of prometheus-adapter (values of its Helm chart, also in a HelmRelease or an
Application; a Deployment and its ConfigMap; a rules file) and KEDA ScaledObjects; a FILE may be a
folder. Prints a line for each key: whether it works as it is, differs, or is left out, and why.
With --output, writes values.yaml or an overlay, and hpas.yaml with an HPA for each ScaledObject.

With --compare, requests each custom and external metric of the HPAs from two servers and prints
each difference; values within the tolerance of an HPA, 10 %, are close.

{settings.flag_help(Options, Cluster)}

Exit code: 0 if the rules of the output load, 1 if not, if a file cannot be read or if nothing was
found; with --compare, 1 if a metric differs or could not be compared; 2 for an invalid command
line.""",
    groups=(Options, Cluster),
    positional_flag="file",
)


def main(argv: Sequence[str]) -> int:
    """Return 0 if the output can be used, else 1. Raises UsageError."""
    options, cluster = COMMAND.parse(argv).groups
    from adapter.cli.commands import migration

    return migration.run(options, cluster)
