"""All settings of the server, from one command line, and the flags that have no effect.

The latter are those of the original's release 0.12.0, of klog in its releases up to 0.10, and of
newer generic API servers.
"""

from __future__ import annotations

import dataclasses
import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from adapter.settings import command_line
from adapter.settings.access import AuthenticationSettings, AuthorizationSettings
from adapter.settings.cluster import ClusterSettings
from adapter.settings.command_line import UsageError
from adapter.settings.embedded import EmbeddedSettings
from adapter.settings.fallback import FallbackSettings
from adapter.settings.flag import STRING, SWITCH, Flag, FlagGroup
from adapter.settings.limits import LimitSettings
from adapter.settings.logs import LogSettings
from adapter.settings.prometheus import PrometheusSettings
from adapter.settings.rules import RulesSettings
from adapter.settings.serving import ServingSettings
from adapter.settings.values import RelistSettings, ValuesSettings
from rules.findings import Finding

_TABLE = (
    # why the flags have no effect, switches, flags with a value
    (
        "the log goes to standard error only",
        "logtostderr alsologtostderr one_output skip_log_headers",
        "stderrthreshold log_dir log_file log_file_max_size",
    ),
    ("log lines have a fixed format", "add_dir_header skip_headers", ""),
    ("there are no stack traces of Go code", "", "log_backtrace_at"),
    ("all modules have the same verbosity; use --v", "", "vmodule"),
    ("log lines are not buffered", "", "log-flush-frequency"),
    (
        "only HTTP/1.1 is served",
        "disable-http2 disable-http2-serving",
        "http2-max-streams-per-connection",
    ),
    ("OpenSSL chooses the curves", "", "tls-curve-preferences"),
    ("SO_REUSEADDR is always set", "permit-address-sharing", ""),
    ("there is no /debug/pprof", "profiling contention-profiling", "debug-socket-path"),
    (
        "there is no API priority and fairness, as in the original by default",
        "enable-priority-and-fairness",
        "",
    ),
    (
        "there is no audit log",
        """
        audit-log-compress audit-log-batch-throttle-enable audit-log-truncate-enabled
        audit-webhook-batch-throttle-enable audit-webhook-truncate-enabled
        """,
        """
        audit-policy-file
        audit-log-path audit-log-maxage audit-log-maxbackup audit-log-maxsize audit-log-format
        audit-log-version audit-log-mode audit-log-batch-buffer-size audit-log-batch-max-size
        audit-log-batch-max-wait audit-log-batch-throttle-qps audit-log-batch-throttle-burst
        audit-log-truncate-max-batch-size audit-log-truncate-max-event-size
        audit-webhook-config-file audit-webhook-initial-backoff
        audit-webhook-batch-initial-backoff audit-webhook-version audit-webhook-mode
        audit-webhook-batch-buffer-size audit-webhook-batch-max-size audit-webhook-batch-max-wait
        audit-webhook-batch-throttle-qps audit-webhook-batch-throttle-burst
        audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size
        """,
    ),
)

IGNORED: tuple[Flag[Any], ...] = tuple(
    Flag(name=name, type=flag_type, ignored=reason)
    for reason, switches, valued in _TABLE
    for flag_type, names in ((SWITCH, switches), (STRING, valued))
    for name in names.split()
)


_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Validated settings, one field for each group of flags. Times are in seconds."""

    rules: RulesSettings
    relist: RelistSettings
    prometheus: PrometheusSettings
    embedded: EmbeddedSettings
    values: ValuesSettings
    cluster: ClusterSettings
    fallback: FallbackSettings
    serving: ServingSettings
    authentication: AuthenticationSettings
    authorization: AuthorizationSettings
    limited: LimitSettings
    logs: LogSettings
    notices: tuple[str, ...]
    """Flags without effect and the reasons, to be logged once at the start."""


GROUPS: Mapping[str, type[FlagGroup]] = {
    name: group
    for name, group in get_type_hints(Settings).items()
    if isinstance(group, type) and issubclass(group, FlagGroup)
}
"""Fields of Settings and their groups, in the order of the help text."""


def parse(argv: Iterable[str], *, commands: Collection[str] = ()) -> Settings:
    """Return the settings for `argv` (without the program's name).

    Ignores arguments that are not flags, like the original, whose chart passes `/adapter` first,
    except for the names in `commands`, which would not be executed. Raises UsageError with all
    problems, and HelpRequested for `-h` and `--help`.
    """
    line = command_line.parse(argv, tuple(GROUPS.values()), ignored=IGNORED)
    groups: dict[str, Any] = dict(zip(GROUPS, line.groups, strict=True))
    settings = Settings(**groups, notices=())
    given = {flag.name for flag in line.given}
    if (url := settings.embedded.url) is not None and "prometheus-url" not in given:
        prometheus = dataclasses.replace(settings.prometheus, url=url)
        settings = dataclasses.replace(settings, prometheus=prometheus)
    problems = list(line.problems)
    problems += [
        Finding(
            subject=text,
            fact=f"a command must be the first argument: gpu-metrics-adapter {text} ...",
        )
        for text in line.positional
        if text in commands
    ]
    if settings.cluster.objects:
        if "bind-address" not in given:
            serving = dataclasses.replace(settings.serving, bind_address=_LOOPBACK)
            settings = dataclasses.replace(settings, serving=serving)
        if not _is_loopback(settings.serving.bind_address):
            problems.append(
                Finding(
                    subject=f"--bind-address={settings.serving.bind_address}",
                    fact="must be a loopback address (127.0.0.0/8, ::1 or localhost): with "
                    "--objects, callers are not authenticated",
                )
            )
        if settings.fallback.server:
            problems.append(
                Finding(
                    subject="--external-fallback",
                    fact="not together with --objects, because the adapter then has no account in "
                    "a cluster",
                )
            )
    if problems:
        raise UsageError(problems)
    notices = (
        *_notices(settings, line.given),
        *(
            f"{text}: ignored, because it is not a flag"
            for text in line.positional
            if not text.endswith("/adapter")
        ),
    )
    return dataclasses.replace(settings, notices=notices)


def _is_loopback(address: str) -> bool:
    return address == "localhost" or ipaddress.ip_address(address).is_loopback


def _notices(settings: Settings, given: Iterable[Flag[Any]]) -> Iterator[str]:
    by_reason: dict[str, dict[str, None]] = {}
    for flag in given:
        if flag.ignored:
            by_reason.setdefault(flag.ignored, {})[f"--{flag.name}"] = None
    for reason, names in by_reason.items():
        yield f"{', '.join(names)}: {'have' if len(names) > 1 else 'has'} no effect: {reason}"
    if settings.cluster.objects and settings.cluster.kubeconfig:
        yield "--lister-kubeconfig: has no effect: --objects replaces the cluster"
    yield from settings.prometheus.notices()
    yield from settings.serving.tls_options.notices
