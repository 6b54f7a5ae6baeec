"""Flags about the audit log of the original, which this project does not have."""

from __future__ import annotations

from adapter.settings.flag import Flag, Type

_NO_AUDIT = "there is no audit log; in the original, too, nothing is recorded without a policy"

_ROWS: tuple[tuple[str, Type, str, str], ...] = (
    ("policy-file", "string", "", "File with the audit policy."),
    ("log-path", "string", "", "File of the audit log; `-` is standard output."),
    ("log-maxage", "int", "0", "Days that an old audit log is kept."),
    ("log-maxbackup", "int", "0", "Old audit logs that are kept."),
    ("log-maxsize", "int", "0", "Size in MB at which a new audit log begins."),
    ("log-format", "string", "json", "`json` or `legacy`."),
    ("log-version", "string", "audit.k8s.io/v1", "Version of the events."),
    ("log-compress", "bool", "false", "Compress old audit logs."),
    ("log-mode", "string", "blocking", "`batch`, `blocking` or `blocking-strict`."),
    ("log-batch-buffer-size", "int", "10000", "Events that may wait."),
    ("log-batch-max-size", "int", "1", "Events in one batch."),
    ("log-batch-max-wait", "duration", "0s", "How long a batch may wait."),
    ("log-batch-throttle-enable", "bool", "false", "Limit the rate of batches."),
    ("log-batch-throttle-qps", "float", "0", "Batches per second."),
    ("log-batch-throttle-burst", "int", "0", "Batches that need not wait for it."),
    ("log-truncate-enabled", "bool", "false", "Cut large events."),
    ("log-truncate-max-batch-size", "int", "10485760", "Largest batch in bytes."),
    ("log-truncate-max-event-size", "int", "102400", "Largest event in bytes."),
    ("webhook-config-file", "string", "", "Kubeconfig of the webhook that takes the events."),
    ("webhook-initial-backoff", "duration", "10s", "Wait before the first retry."),
    ("webhook-batch-initial-backoff", "duration", "10s", "The same, by its older name."),
    ("webhook-version", "string", "audit.k8s.io/v1", "Version of the events."),
    ("webhook-mode", "string", "batch", "`batch`, `blocking` or `blocking-strict`."),
    ("webhook-batch-buffer-size", "int", "10000", "Events that may wait."),
    ("webhook-batch-max-size", "int", "400", "Events in one batch."),
    ("webhook-batch-max-wait", "duration", "30s", "How long a batch may wait."),
    ("webhook-batch-throttle-enable", "bool", "true", "Limit the rate of batches."),
    ("webhook-batch-throttle-qps", "float", "10", "Batches per second."),
    ("webhook-batch-throttle-burst", "int", "15", "Batches that need not wait for it."),
    ("webhook-truncate-enabled", "bool", "false", "Cut large events."),
    ("webhook-truncate-max-batch-size", "int", "10485760", "Largest batch in bytes."),
    ("webhook-truncate-max-event-size", "int", "102400", "Largest event in bytes."),
)

FLAGS = tuple(
    Flag(
        name=f"audit-{name}",
        type=type_,
        default=default,
        group="Audit",
        help=help_,
        effect=_NO_AUDIT,
    )
    for name, type_, default, help_ in _ROWS
)
