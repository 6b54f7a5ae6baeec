"""Reference of all flags: the text of --help, and the tables in docs/flags.md."""

from __future__ import annotations

import textwrap
from typing import Any

from adapter.settings.flag import Flag, Group, fields_of
from adapter.settings.ignored import IGNORED
from adapter.settings.settings import GROUPS

_WIDTH = 96
_INDENT = " " * 8
_IGNORED_TITLE = "Accepted, without effect"


def usage() -> str:
    """Return the flags of the server for --help."""
    lines = [flag_help(*GROUPS.values()), "", f"{_IGNORED_TITLE}:"]
    for reason, names in _ignored().items():
        lines += [f"  {reason}:", *_wrapped(", ".join(f"--{name}" for name in names))]
    return "\n".join(lines)


def flag_help(*groups: type[Group]) -> str:
    """Return the help text for the flags of `groups`, one section for each."""
    sections = []
    for group in groups:
        lines = [f"{group.TITLE}:"]
        for _, flag in fields_of(group):
            default = f" (default {flag.default})" if _has_default(flag) else ""
            lines.append(f"  {_spelled(flag)} {flag.type.name}".rstrip())
            lines += _wrapped(flag.help + default)
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def markdown() -> str:
    """Return the tables of flags for docs/flags.md."""
    lines: list[str] = []
    for group in GROUPS.values():
        lines += [f"### {group.TITLE}", "", "| Flag | Default | Meaning |", "|---|---|---|"]
        for _, flag in fields_of(group):
            default = f"`{flag.default}`" if _has_default(flag) else ""
            lines.append(f"| `{_spelled(flag)}` | {default} | {flag.help} |")
        lines.append("")
    lines += [f"### {_IGNORED_TITLE}", "", "| Reason | Flags |", "|---|---|"]
    for reason, names in _ignored().items():
        lines.append(f"| {reason} | {', '.join(f'`--{name}`' for name in names)} |")
    return "\n".join([*lines, ""])


def _ignored() -> dict[str, list[str]]:
    """Return the names of the ignored flags by reason."""
    names: dict[str, list[str]] = {}
    for flag in IGNORED:
        names.setdefault(flag.ignored, []).append(flag.name)
    return names


def _spelled(flag: Flag[Any]) -> str:
    return f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"


def _has_default(flag: Flag[Any]) -> bool:
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
