"""Loads rules files and presets."""

from __future__ import annotations

from pathlib import Path

from adapter.settings import Source
from rules import presets, ruleset
from rules.errors import ConfigError, Problem
from rules.ruleset import RuleSet


def load(sources: tuple[Source, ...]) -> RuleSet:
    """Return the compiled rules of `sources`, in order.

    Raises ConfigError with the problems of all files.
    """
    texts: list[tuple[str, str | bytes]] = []
    unreadable: list[Problem] = []
    for source in sources:
        if source.kind == "preset":
            texts.append((f"{presets.FILE}{source.name}", presets.text(source.name)))
            continue
        try:
            texts.append((source.name, Path(source.name).read_bytes()))
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            unreadable.append(Problem(severity="error", message=message, file=source.name))
    if unreadable:
        raise ConfigError(unreadable)
    return ruleset.load(texts)
