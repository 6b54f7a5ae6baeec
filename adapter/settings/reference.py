"""Text of --help: all flags by group."""

from __future__ import annotations

import textwrap
from typing import Any

from adapter.settings.flag import Flag, FlagGroup
from adapter.settings.settings import GROUPS, IGNORED

_WIDTH = 96
_INDENT = " " * 8
IGNORED_TITLE = "Accepted, without effect"


def usage() -> str:
    """Return the flags of the server for --help."""
    lines = [flag_help(*GROUPS.values()), "", f"{IGNORED_TITLE}:"]
    for reason, names in ignored_by_reason().items():
        lines += [f"  {reason}:", *_wrapped(", ".join(f"--{name}" for name in names))]
    return "\n".join(lines)


def flag_help(*groups: type[FlagGroup]) -> str:
    """Return the help text for the flags of `groups`, one section for each."""
    sections = []
    for group in groups:
        lines = [f"{group.TITLE}:"]
        for _, flag in group.flags():
            default = f" (default {flag.default})" if has_default(flag) else ""
            lines.append(f"  {spelled(flag)} {flag.type.name}".rstrip())
            lines += _wrapped(flag.help + default)
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def ignored_by_reason() -> dict[str, list[str]]:
    """Return the names of the flags without effect, by reason."""
    names: dict[str, list[str]] = {}
    for flag in IGNORED:
        names.setdefault(flag.ignored, []).append(flag.name)
    return names


def spelled(flag: Flag[Any]) -> str:
    """Return a flag as on the command line, with its shorthand: `-v, --v`."""
    return f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"


def has_default(flag: Flag[Any]) -> bool:
    """Return whether the default is more than empty, false or zero."""
    return flag.default not in ("", "false", "0", "0s")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
