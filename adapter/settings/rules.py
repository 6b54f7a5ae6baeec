"""Flags for the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from adapter.settings.flag import (
    LABEL_SELECTOR,
    STRING,
    SWITCH,
    Flag,
    FlagGroup,
    flag,
    flags,
    repeated,
)
from rules.findings import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSource:
    """A rules file by its path, a preset by its name, or the presets that are detected."""

    kind: Literal["config", "preset", "auto"]
    name: str


AUTO = RulesSource(kind="auto", name="auto")


def _preset(name: str) -> RulesSource:
    return AUTO if name == AUTO.name else RulesSource(kind="preset", name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesSettings(FlagGroup):
    """Where the rules come from."""

    TITLE = "Rules"

    sources: tuple[RulesSource, ...] = flags(
        Flag(
            name="config",
            type=repeated("file", lambda path: RulesSource(kind="config", name=path)),
            help="Rules file, in the format of prometheus-adapter, or a folder whose .yaml and "
            ".yml files are rules files. Read again when it changes, and on SIGHUP. Repeatable, "
            "also together with --preset: the rules keep the order of the command line.",
        ),
        Flag(
            name="preset",
            type=repeated("name", _preset),
            help="Built-in rules; `gpu-metrics-adapter presets` lists them. Repeatable. `auto`, "
            "the default without --config, means those that match the series in Prometheus, also "
            "of exporters and model servers that appear later.",
        ),
    )
    """In the order of the command line; empty if there are none."""
    team_selector: str = flag(
        "team-rules-selector",
        LABEL_SELECTOR,
        "Label selector of ConfigMaps, in any namespace, whose .yaml and .yml keys are rules files "
        "for their own namespace. Their queries are confined to it. Empty for none.",
    )
    team_label: str = flag(
        "team-rules-label",
        STRING,
        "Label of all series whose value is their namespace, to which rules of "
        "--team-rules-selector are confined.",
        default="namespace",
    )
    team_status: bool = flag(
        "team-rules-status",
        SWITCH,
        "Write what became of the rules of --team-rules-selector to each ConfigMap, as an "
        "annotation. The adapter then needs the right to patch ConfigMaps.",
    )

    def problems(self) -> Iterator[Finding]:
        """Yield a problem if the rules of teams could not be confined."""
        if not self.team_label:
            yield Finding(subject="--team-rules-label", fact="must not be empty")
