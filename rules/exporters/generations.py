"""Exporters, model servers and gateways: their series, labels and presets, from the presets' YAML.

The second document of a preset lists the exporters whose series its rules read, and `unread.yaml`
those that no preset reads. What a preset reads of an exporter follows from its rules. `GENERATIONS`
is sorted by `order`, from new to old: in this order presets are combined. Sources are the counter
files and label code of each exporter release, and the metrics code of each model server.
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from rules import presets
from rules.exporters import target
from rules.exporters.target import Target

PROFILING = "gpu-dcgm-prof"
MIG = "gpu-dcgm-mig"
NODE = "gpu-node"
OLD_NAMES = "gpu-dcgm1x"
VARIANTS: Mapping[str, str] = {"dcgm": MIG, "dcgm-compat": OLD_NAMES}
"""Generation -> the preset that replaces its own, and comes before that if both are used."""

POD_LABELS = ("exported_pod", "pod_name", "pod")
"""Labels that name a pod, in the presets' order of preference."""

UNREAD = "no preset reads these series"
_WRITE_RULES = "Write rules for them, and load them with --config"
# YAML of all presets takes 50 ms to parse, which each start would wait for.
_RULE = re.compile(r"'([\w:]+).* name: \{as: (\w+)_(?:current|over_time)\}(.*)", re.DOTALL)
_OPERAND = re.compile(r"([A-Za-z_:][\w:]*)\{")
_OVERRIDE = re.compile(r"^ +(\w+): \{resource: (\w+)\}$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterGeneration:
    """Exporters, model servers or gateways, and releases with the same series names."""

    name: str
    order: int
    title: str
    preset: str = ""
    """Preset for series that name pods; empty if none reads them."""
    podless_preset: str = ""
    """Preset for series that do not name pods; empty for the same preset."""
    scrape: Target = field(default_factory=Target)
    endpoint: str = ""
    """What must be known to find metrics there, as a sentence with `{path}`; may be empty."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` or `_over_time` -> the series that it needs, in `preset`.

    A histogram is named by its `_count`, which has the fewest series.
    """
    profiling: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """API name without `_current` -> the series that it needs, in the preset `PROFILING`."""
    other_series: tuple[str, ...] = ()
    """Further series that identify the generation."""
    labels: frozenset[str] = frozenset()
    """Series count only with one of these labels, where names are ambiguous; empty for all."""
    without_labels: frozenset[str] = frozenset()
    """Series with one of these labels belong to another generation."""
    matcher: str = ""
    """Only series that it matches count, where names and labels are ambiguous; empty for all."""
    own_series: frozenset[str] = frozenset()
    """Those that no server with `rival` reports; others of these names are then the rival's."""
    rival: str = ""
    """A series that only another server with the same names reports; empty without one."""
    superseded_by: str = ""
    """Generation whose series the same exporter reports as well, and which suffices."""
    only_used: bool = False
    """Whether it reports `fields` only for devices that a pod uses."""
    server: bool = False
    """Whether it is a model server or gateway: its series belong to the pod that is scraped."""
    external: bool = False
    """Whether it is a gateway: its metrics are external ones, of a namespace and not of a pod."""
    other_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Series -> its names in other releases, which `preset` reads as well."""
    late: bool = False
    """Whether series of requests appear with the first request."""
    advice: str = ""
    """How to get series that are missing; without a preset, what to do instead."""
    repeats: str = ""
    """What to do about series that it repeats from servers; empty if it repeats none."""

    @property
    def is_unread(self) -> bool:
        """Whether no preset reads it, and `advice` says so."""
        return not self.preset and bool(self.advice)

    @property
    def series(self) -> frozenset[str]:
        """Return the names of all series that identify the generation or that presets read."""
        return (
            needed(self.fields)
            | needed(self.profiling)
            | needed(self.other_names)
            | frozenset(self.other_series)
        )


def needed(fields: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return all series of `Generation.fields`, `profiling` or `other_names`."""
    return frozenset[str]().union(*fields.values())


@functools.cache
def _labels_of(preset: str, resource: str) -> tuple[str, ...]:
    overrides = _OVERRIDE.findall(presets.text(preset))
    return tuple(dict.fromkeys(label for label, named in overrides if named == resource))


def node_labels(preset: str) -> tuple[str, ...]:
    """Return the labels that name a node in a preset, in order of preference."""
    return _labels_of(preset, "node")


def pod_labels(preset: str) -> tuple[str, ...]:
    """Return the labels that name a pod in a preset, in order of preference."""
    return _labels_of(preset, "pod")


@functools.cache
def _read_by(preset: str) -> Sequence[tuple[str, tuple[str, ...]]]:
    """Return the metric of each rule of a preset, and the series without which it has no value."""
    texts = presets.text(preset).split("\n  - seriesQuery: ")
    return tuple(
        (rule[2], tuple(dict.fromkeys(_count(each) for each in (rule[1], *operands))))
        for rule in map(_RULE.match, texts)
        if rule
        for operands in [_OPERAND.findall(re.split(r"\bor\b", rule[3])[0])]
    )


def _count(series: str) -> str:
    return re.sub("_(bucket|sum)$", "_count", series)


def _fields(
    preset: str, pattern: str, old: frozenset[str] = frozenset()
) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """Return the series of each metric that match `pattern`, under each of their names.

    The order is that of the rules, but names in `old` come last.
    """
    fields: dict[str, list[tuple[str, ...]]] = {}
    for metric, series in _read_by(preset):
        if all(re.fullmatch(pattern, each) for each in series):
            names = fields.setdefault(metric, [])
            names.extend({series} - {*names})
    return {
        metric: sorted(names, key=lambda series: bool(old & {*series}))
        for metric, names in fields.items()
    }


def _generation(
    preset: str,
    *,
    series: str = ".*",
    profiling: str = "",
    reads: Mapping[str, Sequence[str]] | None = None,
    old_names: Collection[str] = (),
    **entry: Any,
) -> ExporterGeneration:
    """Return what an entry of the YAML describes.

    `series` and `profiling` are patterns for the series of `preset` and PROFILING that it has.
    `reads` has the names of the series of each metric if the rules find them by a pattern, new
    ones first; `old_names` are those that come last although their rule does not.
    """
    fields: Mapping[str, Sequence[tuple[str, ...]]] = {}
    if reads:
        fields = {metric: [(name,) for name in names] for metric, names in reads.items()}
    elif preset:
        fields = _fields(preset, series, frozenset(old_names))
    other_names: dict[str, tuple[str, ...]] = {}
    for first, *others in fields.values():
        for position, name in enumerate(first):
            if others:
                other_names[name] = tuple(dict.fromkeys(each[position] for each in others))
    for key in ("labels", "without_labels", "own_series"):
        entry[key] = frozenset(entry.get(key, ()))
    entry["other_series"] = tuple(entry.get("other_series", ()))
    entry["scrape"] = target.read(entry.get("scrape", {}))
    if not preset and "repeats" not in entry:
        entry.setdefault("advice", _WRITE_RULES)
    return ExporterGeneration(
        preset=preset,
        fields={metric: names[0] for metric, names in fields.items()},
        profiling={metric: names[0] for metric, names in _fields(PROFILING, profiling).items()},
        other_names=other_names,
        external=bool(preset) and "externalRules:" in presets.text(preset),
        **entry,
    )


def _load() -> Iterator[ExporterGeneration]:
    unread = importlib.resources.files(__package__) / "unread.yaml"
    texts = {name: presets.exporters(name) for name in presets.names()}
    texts[""] = unread.read_text(encoding="utf-8")
    for preset, text in texts.items():
        for entry in yaml.load(text, Loader=yaml.CSafeLoader) or ():
            yield _generation(preset, **target.fields(entry))


GENERATIONS = tuple(sorted(_load(), key=lambda each: each.order))

REQUESTS = frozenset[str]().union(
    *(each.fields.get("requests_per_second", ()) for each in GENERATIONS)
)
"""The series of model servers that count requests."""
OLD_NAMES_OF: Mapping[str, str] = {
    old: new
    for each in GENERATIONS
    if each.server
    for new, others in each.other_names.items()
    for old in others
    if old.replace(":", "_") != new.replace(":", "_")
}
"""Series -> its name in later releases of the same server."""
GAUGES = frozenset(
    name
    for each in GENERATIONS
    if not each.matcher
    for metric, required in each.fields.items()
    if not re.search("_(per_second|milliseconds)$", metric)
    for series in required
    for name in (series, *each.other_names.get(series, ()))
)
"""Series of which presets read the value, except names that other software has as well."""
SERVER_SERIES = frozenset[str]().union(*(each.series for each in GENERATIONS if each.server))
"""The series of model servers and gateways."""
LOAD = tuple(
    sorted(
        {
            name
            for each in GENERATIONS
            if each.server and each.fields
            for series in next(iter(each.fields.values()))
            for name in (series, *each.other_names.get(series, ()))
        }
    )
)
"""One series of each model server and gateway, under all its names."""
SERIES = tuple(sorted(frozenset[str]().union(*(each.series for each in GENERATIONS))))
"""All series that identify a generation or that presets read."""

LABELS = tuple(
    sorted(
        {
            *POD_LABELS,
            "namespace",
            *(label for each in GENERATIONS for label in each.labels),
            *(*node_labels(NODE), "node_name"),
            *("UUID", "uuid", "pci_bus_id"),  # exporter release, and its spelling of the GPU
            *("GPU_I_PROFILE", "vgpu", "dra_claim_name"),  # sharing of GPUs
        }
    )
)
"""All labels that matter to the detection, except `own_labels`."""


def own_labels(names: Collection[str]) -> tuple[str, ...]:
    """Return the labels of pods and nodes that only presets for series of these `names` read."""
    read = {each.preset for each in GENERATIONS if not each.series.isdisjoint(names)} - {""}
    labels = {label for preset in read for label in (*pod_labels(preset), *node_labels(preset))}
    return tuple(sorted(labels.difference(LABELS)))


def matchers(names: Collection[str]) -> tuple[str, ...]:
    """Return the matchers that decide whose series of these `names` are."""
    return tuple(
        sorted(
            {
                each.matcher
                for each in GENERATIONS
                if each.matcher and not each.series.isdisjoint(names)
            }
        )
    )


def preset_of(series: str) -> str:
    """Return the first preset that reads a series; empty without one."""
    return next((each.preset for each in GENERATIONS if series in each.series and each.preset), "")


def is_of_gpus(series: str) -> bool:
    """Return whether a series is that of an exporter of GPUs, which reports the pods on them."""
    known = series in SERIES and series not in SERVER_SERIES
    return known or "gpu" in series.lower() or series.lower().startswith(("dcgm_", "nvidia_"))
