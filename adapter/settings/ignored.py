"""Flags of the original that are accepted without effect.

They are those of its release 0.12.0, of klog in its releases up to 0.10, and of newer generic API
servers.
"""

from __future__ import annotations

from typing import Any

from adapter.settings.flag import Flag
from adapter.settings.flag_types import STRING, SWITCH

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
