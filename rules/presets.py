"""Ready-made rules files, shipped as data beside this module and chosen by name."""

from __future__ import annotations

import importlib.resources
from importlib.resources.abc import Traversable

from rules.errors import ConfigError, Problem

_SUFFIX = ".yaml"


def names() -> tuple[str, ...]:
    """The presets that there are, sorted."""
    return tuple(sorted(each.name.removesuffix(_SUFFIX) for each in _files()))


def text(name: str) -> str:
    """The rules file called `name`. Raises ConfigError, naming the presets that there are."""
    for each in _files():
        if each.name == name + _SUFFIX:
            return each.read_text(encoding="utf-8")
    known = ", ".join(names()) or "none"
    message = f"there is no preset called {name!r}; there are: {known}"
    raise ConfigError([Problem(severity="error", message=message)])


def describe(name: str) -> str:
    """What a preset is for: the comment on its first line. Raises ConfigError as `text` does."""
    first = text(name).partition("\n")[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def _files() -> list[Traversable]:
    folder = importlib.resources.files("rules") / "presets"
    return [each for each in folder.iterdir() if each.name.endswith(_SUFFIX)]
