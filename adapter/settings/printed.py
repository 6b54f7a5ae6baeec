"""The table of flags on paper: the help text, and the README's section."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator

from adapter.settings.flag import Flag
from adapter.settings.table import FLAGS

_WIDTH = 96
_INDENT = " " * 8


def usage() -> str:
    """The help text: every flag, grouped by subject."""
    lines = ["Usage: gpu-metrics-adapter [serve] [flags]"]
    for group, flags in _groups():
        lines += ["", f"{group}:"]
        for flag in flags:
            lines.append(f"  {_spelled(flag)} {_type(flag)}".rstrip())
            text = _plain(flag.help) + (f" (default {flag.default})" if _has_default(flag) else "")
            lines += _wrapped(text)
            if not flag.works:
                lines += _wrapped(f"No effect: {_plain(flag.effect)}.")
    return "\n".join([*lines, ""])


def markdown() -> str:
    """For the README: one table for each subject, and one of the flags that change nothing."""
    lines: list[str] = []
    idle: dict[str, list[str]] = {}
    for group, flags in _groups():
        rows = []
        for flag in flags:
            if flag.works:
                default = f"`{flag.default}`" if _has_default(flag) else ""
                rows.append(f"| `{_spelled(flag)}` | {default} | {_cell(flag.help)} |")
            else:
                idle.setdefault(flag.effect, []).append(f"`{_spelled(flag)}`")
        if rows:
            lines += [
                f"### {group}",
                "",
                "| Flag | Default | Meaning |",
                "|---|---|---|",
                *rows,
                "",
            ]
    lines += ["### Accepted, and without effect", "", "| Why | Flags |", "|---|---|"]
    lines += [f"| {_cell(why)} | {', '.join(flags)} |" for why, flags in idle.items()]
    return "\n".join([*lines, ""])


def _groups() -> Iterator[tuple[str, list[Flag]]]:
    for group, flags in itertools.groupby(FLAGS, key=lambda flag: flag.group):
        yield group, list(flags)


def _spelled(flag: Flag) -> str:
    return f"-{flag.shorthand}, --{flag.name}" if flag.shorthand else f"--{flag.name}"


def _has_default(flag: Flag) -> bool:
    return flag.default not in ("", "false", "0", "0s")


def _type(flag: Flag) -> str:
    return {"bool": "", "array": "string", "strings": "strings"}.get(flag.type, flag.type)


def _plain(text: str) -> str:
    return text.replace("`", "")


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
