"""Flags for the log."""

from __future__ import annotations

from dataclasses import dataclass

from adapter.settings.flag import Group, flag
from adapter.settings.flag_types import integer


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs(Group):
    """Verbosity of the log."""

    TITLE = "Logging"

    verbosity: int = flag(
        "v",
        integer(),
        "Log verbosity. From 6 on, each request to Prometheus is logged.",
        default="0",
        shorthand="v",
    )
