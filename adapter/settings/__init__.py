"""Every flag once: its type, default, help and effect.

From the one table `FLAGS` come the parsing of the command line (by pflag's rules, as the original
has them), its checks, the help text and the README's section on flags. Nothing here reads a file or
opens a socket; only the composition root may import this package.
"""

from __future__ import annotations

from adapter.settings.checks import HelpRequested, UsageError, parse
from adapter.settings.flag import Flag
from adapter.settings.printed import markdown, usage
from adapter.settings.settings import Settings, Source
from adapter.settings.table import FLAGS

__all__ = [
    "FLAGS",
    "Flag",
    "HelpRequested",
    "Settings",
    "Source",
    "UsageError",
    "markdown",
    "parse",
    "usage",
]
