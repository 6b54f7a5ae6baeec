"""Command-line flags: declaration, parsing, validation and reference.

Each group of flags is one dataclass in a module of its own. Only `rule_files` reads files, those
that `--config` names; nothing here opens a socket.
"""

from __future__ import annotations

from adapter.settings.command_line import CommandSpec, HelpRequested, UsageError
from adapter.settings.prometheus import PrometheusSettings
from adapter.settings.reference import flag_help, usage
from adapter.settings.rules import AUTO, RulesSettings, RulesSource
from adapter.settings.settings import Settings, parse

__all__ = [
    "AUTO",
    "CommandSpec",
    "HelpRequested",
    "PrometheusSettings",
    "RulesSettings",
    "RulesSource",
    "Settings",
    "UsageError",
    "flag_help",
    "parse",
    "usage",
]
