"""`replay hpa`: what an autoscaler would have done in the past with other settings."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from adapter import errors, settings
from adapter.cli.commands import prometheus_url, without_log
from adapter.files import read_file
from adapter.settings.flag import (
    FILE,
    PERIOD,
    STRING,
    FlagGroup,
    FlagType,
    comma_separated,
    duration,
    flag,
)
from adapter.settings.kubectl import KubectlSettings, namespace
from adapter.settings.output import output
from rules.document.ahead import Ahead
from rules.document.ahead import parse as parse_ahead
from rules.errors import UnreadableError
from rules.findings import Finding
from rules.quoting import escaped

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from adapter.cli.doctor.client import ApiClient
    from adapter.clients.prometheus import Prometheus

Options = TypeVar("Options", bound="DataclassInstance")


def _number(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal():
        raise ValueError("must be a number of replicas")
    return int(text)


def startup() -> float | None:
    """Declare the flag for the time that new pods need."""
    return flag(
        "startup",
        FlagType(name="duration", parse=lambda text: duration().parse(text) if text else None),
        "Time until a new pod has a value; measured from the past if that is possible.",
    )


def sync_period() -> float:
    """Declare the flag for the period of the controller."""
    return flag(
        "sync-period",
        duration(positive=True),
        "`--horizontal-pod-autoscaler-sync-period` of the controller.",
        default="15s",
    )


def too_many(since: float, step: float) -> Iterator[Finding]:
    """Yield a problem if a period has too many syncs."""
    if since / step > _MAX_SYNCS:
        yield Finding(
            subject="--sync-period",
            fact=f"too short for --since: more than {_MAX_SYNCS} syncs",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replay(FlagGroup):
    """What is replayed."""

    TITLE = "Replay"

    since: float = flag(
        "since",
        PERIOD,
        "How much of the past.",
        default="7d",
    )
    namespace: str = namespace()
    targets: tuple[str, ...] = flag(
        "target", comma_separated(), "Comma-separated targets, each of which is replayed."
    )
    metric: str = flag("metric", STRING, "Metric that the targets are for, if there are several.")
    behavior: str | None = flag(
        "behavior", FILE, "YAML or JSON file with another `spec.behavior`: scaleUp and scaleDown."
    )
    minimum: int | None = flag(
        "min-replicas", FlagType(name="int", parse=_number), "Another minReplicas."
    )
    maximum: int | None = flag(
        "max-replicas", FlagType(name="int", parse=_number), "Another maxReplicas."
    )
    startup: float | None = startup()
    ahead: Ahead | None = flag(
        "ahead",
        FlagType(name="season:horizon", parse=parse_ahead),
        "Replay a forecast too, as by `ahead` in a rule, such as `7d:4m`; without a horizon, that "
        "of --startup. It needs a season and half a week more of the past: `--since=28d`.",
    )
    step: float = sync_period()
    output: str = output("html", note=", a page that needs no other file")

    def problems(self) -> Iterable[Finding]:
        """Yield a problem if the period has too many syncs."""
        yield from too_many(self.since, self.step)


_MAX_SYNCS = 200_000
_GROUPS = (_Replay, KubectlSettings, settings.PrometheusSettings)
COMMAND = settings.CommandSpec(
    name="replay",
    help=f"""Usage: gpu-metrics-adapter replay hpa [NAMESPACE/]NAME [FLAGS]

Reads the history of the metrics of a HorizontalPodAutoscaler from Prometheus, and computes what its
controller would have decided at each sync with other targets, windows, policies or bounds. Prints
for each variant pod-hours, the time above the target and the time saturated, scale-ups and
scale-downs and the largest step, and the model behind it. It only reads.

The cluster is read with your rights. Prometheus is that of --prometheus-url or `$PROMETHEUS_URL`;
from outside the cluster, `kubectl port-forward` makes it reachable.

{settings.flag_help(*_GROUPS)}

Examples:
  gpu-metrics-adapter replay hpa default/bert --target=30,40,50 --since=2d
  gpu-metrics-adapter replay hpa default/bert --behavior=slow.yaml -o html >replay.html
  gpu-metrics-adapter replay hpa default/bert --ahead=7d:4m --since=28d

Exit code: 0; 1 if the past cannot be replayed, and the last line says why; 2 for an invalid command
line.""",
    groups=_GROUPS,
    arguments=("hpa", "NAMESPACE/NAME"),
    words=("hpa",),
)


def main(argv: Sequence[str]) -> int:
    """Return 0, or 1 if the past cannot be replayed. Raises UsageError and HelpRequested."""
    return of_past(COMMAND, argv, _run)


Run = Callable[
    [Any, KubectlSettings, settings.PrometheusSettings, Sequence[str]], Coroutine[Any, Any, int]
]
"""Takes the flags of a command, those of the connections, and the parts of the HPA's name."""


def of_past(command: settings.CommandSpec, argv: Sequence[str], run: Run) -> int:
    """Run a command on the past of an HPA, and return its exit code: 1 if it cannot be read.

    Raises UsageError and HelpRequested.
    """
    line, prometheus = prometheus_url.parse_required(command, argv)
    options, cluster, _ = line.groups
    what, target = line.positional
    parts = target.split("/")
    if options.namespace and len(parts) == 1:
        parts = [options.namespace, *parts]
    if what != "hpa" or not all(parts) or len(parts) > 2:
        raise command.error(f"{what} {target}", "expected hpa NAMESPACE/NAME")
    import asyncio

    try:
        with without_log():
            return asyncio.run(run(options, cluster, prometheus, parts))
    except (UnreadableError, errors.StartError) as error:
        text = " ".join(str(error).split())
        print(escaped(f"cannot {command.name}: {text}"), file=sys.stderr)
        return 1


def _behavior(path: Path) -> Mapping[str, Any]:
    """Return `spec.behavior` in a file, of which it may be all. Raises UnreadableError."""
    from rules.document import behavior, nodes
    from rules.document import yaml as documents

    try:
        root, problems = documents.load(read_file(path, pipes=True), file=str(path))
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if problems or root is None:
        raise UnreadableError(str(problems[0]) if problems else f"{path} is empty")
    if isinstance(root, documents.MappingNode) and set(root.entries) == {"behavior"}:
        root = root.entries["behavior"].value
    for each in behavior.problems(root):
        raise UnreadableError(f"{path}:{each.node.line}: {each}")
    found: Mapping[str, Any] = nodes.plain(root)
    return found


def of_flags(options: type[Options], flags: FlagGroup, **others: Any) -> Options:
    """Return `options` with the values of the flags of the same names, and with `others`."""
    names = {each.name for each in dataclasses.fields(options)} - others.keys()
    return options(**{name: getattr(flags, name) for name in names}, **others)


@contextlib.asynccontextmanager
async def connected(
    cluster: KubectlSettings, connection: settings.PrometheusSettings, parts: Sequence[str]
) -> AsyncIterator[tuple[ApiClient, Prometheus, tuple[str, str]]]:
    """Yield clients of the API server and of Prometheus, and namespace and name of the HPA."""
    from adapter.cli.doctor import client
    from adapter.clients import sources

    *within, name = parts
    names = "".join(within) or client.default_namespace(cluster), name
    async with client.connected(cluster) as api, sources.connect_prometheus(connection) as found:
        yield api, found, names


def progress(part: float) -> None:
    """Show how much has been read, on a terminal."""
    if sys.stderr.isatty():
        end = "\r" if part < 1 else "\r\033[K"
        print(f"reading the past: {part:4.0%}", end=end, file=sys.stderr, flush=True)


async def _run(
    options: _Replay,
    cluster: KubectlSettings,
    connection: settings.PrometheusSettings,
    parts: Sequence[str],
) -> int:
    from adapter.cli.doctor import replay
    from adapter.cli.output import write
    from rules.hpa import replay_report

    behavior = None if options.behavior is None else _behavior(Path(options.behavior))
    wanted = of_flags(replay.ReplayOptions, options, behavior=behavior)
    async with connected(cluster, connection, parts) as (client, found, names):
        replayed = await replay.run(client, found, *names, wanted, progress)
    if options.output in {"json", "yaml"}:
        write(replay_report.document(replayed), options.output)
    elif options.output == "html":
        from adapter.cli.console import pages

        print(pages.replay_file(replayed))
    else:
        for line in replay_report.lines(replayed):
            print(escaped(line))
    return 0
