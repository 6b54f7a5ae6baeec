"""The flag -o of commands that print a document."""

from __future__ import annotations

from adapter.settings.flag import choice, flag


def output(*others: str, note: str = "") -> str:
    """Declare the flag for text, JSON, YAML and the formats `others`, which `note` explains."""
    formats = ("text", "json", "yaml", *others)
    *most, last = formats
    description = f"Format: {', '.join(most)} or {last}{note}."
    return flag("output", choice(*formats), description, default="text", shorthand="o")
