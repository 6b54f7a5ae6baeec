"""Flags for the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from adapter.settings.flag import Flag, Group, flags
from adapter.settings.flag_types import repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A rules file by its path, or a preset by its name."""

    kind: Literal["config", "preset"]
    name: str


def _source(kind: Literal["config", "preset"]) -> Callable[[str], Source]:
    return lambda name: Source(kind=kind, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Group):
    """Where the rules come from."""

    TITLE = "Rules"

    sources: tuple[Source, ...] = flags(
        Flag(
            name="config",
            type=repeated("file", _source("config")),
            help="Rules file, in the format of prometheus-adapter, or a folder whose .yaml and "
            ".yml files are rules files. Read again when it changes, and on SIGHUP. Repeatable, "
            "also together with --preset: the rules keep the order of the command line.",
        ),
        Flag(
            name="preset",
            type=repeated("name", _source("preset")),
            help="Built-in rules; `gpu-metrics-adapter presets` lists them. Repeatable. Without "
            "--config and --preset, the adapter chooses presets that match the series in "
            "Prometheus.",
        ),
    )
    """In the order of the command line; empty if the server chooses the presets."""
