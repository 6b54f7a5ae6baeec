"""Reads the presets: rules files in `rules/presets/` that ship with the package."""

from __future__ import annotations

import difflib
import importlib.resources
from importlib.resources.abc import Traversable

from rules.errors import ConfigError, Problem

FILE = "preset "
"""Prefix of the name that a preset has where others have the name of their file."""
_SUFFIX = ".yaml"


def is_preset(file: str) -> bool:
    """Return whether a preset has this name where others have the name of their file."""
    return file.startswith(FILE)


def names() -> tuple[str, ...]:
    """Return the names of all presets, sorted."""
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in _files()))


def text(name: str) -> str:
    """Return the text of a preset. Raises ConfigError if there is none of this name."""
    for each in _files():
        if each.name == name + _SUFFIX:
            return each.read_text(encoding="utf-8")
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    message = f"there is no preset called {name!r}{hint} (presets: {', '.join(names())})"
    raise ConfigError([Problem(severity="error", message=message)])


def describe(name: str) -> str:
    """Return the comment on the first line of a preset. Raises ConfigError as `text` does."""
    return text(name).partition("\n")[0].removeprefix("#").strip()


def _files() -> list[Traversable]:
    folder = importlib.resources.files("rules") / "presets"
    return [each for each in folder.iterdir() if each.name.endswith(_SUFFIX)]
