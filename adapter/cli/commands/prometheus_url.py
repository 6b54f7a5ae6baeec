"""Command lines with the flags of Prometheus, whose URL may come from `$PROMETHEUS_URL`."""

from __future__ import annotations

import os
from collections.abc import Sequence

from adapter import settings
from adapter.settings.command_line import CommandLine


def parse(
    command: settings.CommandSpec, argv: Sequence[str]
) -> tuple[CommandLine, settings.PrometheusSettings | None]:
    """Parse a command line whose last group is that of Prometheus, None without its URL."""
    url = os.environ.get("PROMETHEUS_URL", "")
    default = [f"--prometheus-url={url}"] if url else []
    line = command.parse([*default, *argv])
    known = any(each.name == "prometheus-url" for each in line.given)
    return line, line.groups[-1] if known else None


def parse_required(
    command: settings.CommandSpec, argv: Sequence[str]
) -> tuple[CommandLine, settings.PrometheusSettings]:
    """Parse a command line as `parse`. Raises UsageError without the URL of Prometheus."""
    line, prometheus = parse(command, argv)
    if prometheus is None:
        raise command.error("--prometheus-url", "is missing, and so is $PROMETHEUS_URL")
    return line, prometheus
