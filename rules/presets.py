"""Reads the presets: rules files in `rules/presets/` that ship with the package.

A second YAML document in a file describes the exporters that the rules are for.
"""

from __future__ import annotations

import difflib
import functools
import importlib.resources
from collections.abc import Mapping
from importlib.resources.abc import Traversable

from rules.errors import ConfigError
from rules.findings import State, in_file

FILE = "preset "
"""Prefix of the name that a preset has where others have the name of their file."""
_SUFFIX = ".yaml"


def is_preset(file: str) -> bool:
    """Return whether a preset has this name where others have the name of their file."""
    return file.startswith(FILE)


def names() -> tuple[str, ...]:
    """Return the names of all presets, sorted."""
    return tuple(sorted(_files()))


def text(name: str) -> str:
    """Return the rules of a preset. Raises ConfigError if there is none of this name."""
    return _documents(name)[0]


def exporters(name: str) -> str:
    """Return the description of a preset's exporters; empty without. Raises as `text` does."""
    return _documents(name)[1]


def describe(name: str) -> str:
    """Return the comment on the first line of a preset. Raises ConfigError as `text` does."""
    return text(name).partition("\n")[0].removeprefix("#").strip()


@functools.cache
def _documents(name: str) -> tuple[str, str]:
    if name in _files():
        rules, _, described = _files()[name].read_text(encoding="utf-8").partition("\n---\n")
        return rules.rstrip("\n") + "\n", described
    near = difflib.get_close_matches(name, names(), n=1, cutoff=0.75)
    hint = f"; did you mean {near[0]}?" if near else ""
    message = f"there is no preset called {name!r}{hint} (presets: {', '.join(names())})"
    raise ConfigError([in_file(State.FAILURE, message)])


@functools.cache
def _files() -> Mapping[str, Traversable]:
    """Return the file of each preset."""
    folder = importlib.resources.files("rules") / "presets"
    return {
        each.name.removesuffix(_SUFFIX): each
        for each in folder.iterdir()
        if each.name.endswith(_SUFFIX)
    }
