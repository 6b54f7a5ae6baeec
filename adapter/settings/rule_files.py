"""Loads rules files and presets."""

from __future__ import annotations

from pathlib import Path

from adapter.files import read_file
from adapter.settings import RulesSource
from rules import presets, ruleset
from rules.errors import ConfigError
from rules.findings import Finding, State, in_file
from rules.ruleset import RuleSet

_SUFFIXES = {".yaml", ".yml"}


def paths(sources: tuple[RulesSource, ...]) -> tuple[Path, ...]:
    """Return the files and folders of `sources`."""
    return tuple(Path(source.name) for source in sources if source.kind == "config")


def load(sources: tuple[RulesSource, ...], detected: tuple[str, ...] = ()) -> RuleSet:
    """Return the compiled rules of `sources`, in order; `auto` means the presets `detected`.

    Raises ConfigError with the problems of all files.
    """
    texts: list[tuple[str, str | bytes]] = []
    unreadable: list[Finding] = []
    named = {source.name for source in sources if source.kind == "preset"}
    for source in sources:
        if source.kind != "config":
            others = [each for each in detected if each not in named]
            chosen = [source.name] if source.kind == "preset" else others
            texts.extend((f"{presets.FILE}{each}", presets.text(each)) for each in chosen)
            continue
        name = source.name
        try:
            for path in files(Path(source.name)):
                name = str(path)
                texts.append((name, read_file(path)))
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            unreadable.append(in_file(State.FAILURE, message, file=name))
    if unreadable:
        raise ConfigError(unreadable)
    return ruleset.load(texts)


def files(path: Path) -> tuple[Path, ...]:
    """Return the file itself, or the rules files of a folder by name, without hidden ones."""
    if not path.is_dir():
        return (path,)
    found = (each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file())
    return tuple(sorted(each for each in found if not each.name.startswith(".")))
