"""Flags for the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from adapter.settings.flag import FlagGroup, choice, flag, integer


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(FlagGroup):
    """Verbosity and format of the log."""

    TITLE = "Logging"

    verbosity: int = flag(
        "v",
        integer(),
        "Log verbosity. From 6 on, each request to Prometheus and to the API server is logged with "
        "its status and duration, and repeated messages are not limited.",
        default="0",
        shorthand="v",
    )
    format: Literal["text", "json"] = flag(
        "logging-format",
        choice("text", "json"),
        "Format of log lines: text, as klog writes it, or json.",
        default="text",
    )
