"""What GPU exporters a Prometheus sees, and which presets fit them.

`Observations` holds what Prometheus answered, names only; `judge` draws the conclusions. What is
missing for more presets is in `advice`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rules.exporters import advice, generations
from rules.exporters.advice import Finding
from rules.exporters.generations import GENERATIONS, Generation

Scheme = Literal["exported", "own names", "honored", "direct"]

_SCHEMES: Mapping[Scheme, str] = {
    "exported": "`exported_pod`: scraped without honor_labels; a bare `pod` is the exporter's own",
    "own names": "`pod_name`: a name that clashes with none, whatever honor_labels says",
    "honored": "`pod`: scraped with honor_labels; GPUs that nobody uses bear the exporter's own",
    "direct": "`pod`: the scrape configuration adds no pod of its own",
}
_LAST = (generations.PROFILING, generations.NODE)
"""Presets that come after those of the generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """What a Prometheus knows, as names only. Series are those of `exporters.SERIES`."""

    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Series that are live, with those of `exporters.LABELS` that any live one carries."""
    before: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same by the index, which remembers for some hours what has ended."""
    honored: frozenset[str] = frozenset()
    """Live series with a `pod` that is not their target's own, though the target has one."""
    direct: frozenset[str] = frozenset()
    """Live series with a `pod` whose target has none."""
    foreign_before: frozenset[str] = frozenset()
    """Series that lately were in one of these two."""
    named_after_exporter: frozenset[str] = frozenset()
    """Live series whose Hostname (or hostname) is the pod of their target."""
    targets: int = 0
    """How many `up` there are."""
    down: int = 0
    """How many of them are 0."""
    anything: bool = False
    """Whether there is any series at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """A generation of exporters that is there."""

    generation: Generation
    release: str
    """What its labels tell of it; may be empty."""
    schemes: tuple[Scheme, ...]
    """How its series name pods; several where it is scraped in several ways."""
    nodes: tuple[str, ...]
    """The labels that can name its nodes to the presets, in order of preference."""
    metrics: tuple[str, ...]
    """API names, less `_current`, that the presets can give."""
    presets: tuple[str, ...]
    findings: tuple[Finding, ...]
    provisional: bool
    """Whether other presets may fit once a pod has a GPU."""

    @property
    def pods(self) -> tuple[str, ...]:
        """In words, how its series name pods."""
        return tuple(_SCHEMES[scheme] for scheme in self.schemes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found, the newest generation first."""

    sightings: tuple[Sighting, ...]
    presets: tuple[str, ...]
    """What fits, in the order in which the flags are to be given; none if nothing does."""
    findings: tuple[Finding, ...]
    """About the Prometheus as a whole."""

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"--preset={name}" for name in self.presets)

    @property
    def provisional(self) -> bool:
        return any(each.provisional for each in self.sightings)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Everything that was found, in words."""
        told = [
            f"{each.generation.title}: {text}"
            for each in self.sightings
            for text in (*each.pods, *(finding.text for finding in each.findings))
        ]
        return (*told, *(finding.text for finding in self.findings))


def judge(seen: Observations) -> Report:
    """What `seen` means. Where `up` is missing, a bare `pod` counts as the workload's."""
    there = [each for each in GENERATIONS if _names(each, seen.names)]
    if any(each.preset for each in there):
        # HAMi reports its old names beside the new ones, which are enough.
        there = [each for each in there if each.preset]
    sightings = tuple(_sighting(each, seen) for each in there)
    fitting = dict.fromkeys(name for each in sightings for name in each.presets)
    general: tuple[Finding, ...] = ()
    if not sightings:
        ended = [each.title for each in GENERATIONS if _names(each, seen.before)]
        general = tuple(
            advice.on_nothing(
                ended=ended, targets=seen.targets, down=seen.down, anything=seen.anything
            )
        )
    return Report(
        sightings=sightings,
        presets=tuple(sorted(fitting, key=lambda name: name in _LAST and _LAST.index(name) + 1)),
        findings=general,
    )


def _names(generation: Generation, names: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Those of `names` that this generation's exporters write."""
    return frozenset(
        name
        for name in generation.series & names.keys()
        if (not generation.marks or names[name] & generation.marks)
        and not names[name] & generation.excluded
    )


def _sighting(generation: Generation, seen: Observations) -> Sighting:
    names = _names(generation, seen.names)
    labels = _carried(names, seen.names)
    schemes = _schemes(labels, honored=names & seen.honored, direct=names & seen.direct)
    # GKE's plugin reports its fields for pods only.
    unused = generation.name == "gke-plugin" and not names & generations.needed(generation.fields)
    idle = unused
    if not schemes and not unused:
        schemes = _schemes_before(generation, seen, labels)
        idle = bool(schemes)
    podless = not schemes and not idle
    presets = tuple(_presets(generation, names, labels, schemes, podless=podless, idle=idle))
    known = _node_labels(generation, presets)
    nodes = tuple(label for label in known if label in labels)
    return Sighting(
        generation=generation,
        release=_release(generation, labels),
        schemes=schemes,
        nodes=nodes,
        metrics=tuple(_metrics(generation, names, presets)),
        presets=presets,
        findings=(
            *advice.on_pods(generation, labels, podless=podless, idle=idle),
            *(() if unused else advice.on_fields(generation, names, presets)),
            *advice.on_sharing(generation, labels, names, presets),
            *advice.on_nodes(
                nodes,
                named_after_exporter=bool(names & seen.named_after_exporter),
                known=known,
            ),
        ),
        provisional=podless and generation.preset not in ("", generations.NODE),
    )


def _carried(names: frozenset[str], labels: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(labels[name] for name in names))


def _schemes(
    labels: frozenset[str], *, honored: frozenset[str], direct: frozenset[str]
) -> tuple[Scheme, ...]:
    """`honored` and `direct` are series of the generation; whether there are any is what counts."""
    found: Mapping[Scheme, bool] = {
        "exported": "exported_pod" in labels,
        "own names": "pod_name" in labels,
        "honored": bool(honored),
        "direct": bool(direct),
    }
    return tuple(scheme for scheme, there in found.items() if there)


def _schemes_before(
    generation: Generation, seen: Observations, labels: frozenset[str]
) -> tuple[Scheme, ...]:
    """How the generation's series lately named pods; `labels` are those they carry now."""
    names = _names(generation, seen.before)
    foreign = names & seen.foreign_before
    # What is left now of a target with a pod is that pod.
    has_pod = "pod" in labels
    return _schemes(
        _carried(names, seen.before),
        honored=foreign if has_pod else frozenset(),
        direct=frozenset() if has_pod else foreign,
    )


def _presets(
    generation: Generation,
    names: frozenset[str],
    labels: frozenset[str],
    schemes: tuple[Scheme, ...],
    *,
    podless: bool,
    idle: bool,
) -> Iterator[str]:
    if generation.preset and (idle or names & generations.needed(generation.fields)):
        yield _preset(generation, names, labels, schemes, podless=podless)
    if names & generations.needed(generation.profiling) and not podless:
        yield generations.PROFILING


def _preset(
    generation: Generation,
    names: frozenset[str],
    labels: frozenset[str],
    schemes: tuple[Scheme, ...],
    *,
    podless: bool,
) -> str:
    engine = generation.profiling.get("gr_engine_active", ())
    if podless and generation.podless:
        return generation.podless
    if generation.name == "dcgm" and "GPU_I_PROFILE" in labels and names.issuperset(engine):
        return generations.MIG
    if generation.name == "dcgm-compat" and schemes == ("own names",) and "UUID" not in labels:
        return generations.OLD_NAMES
    return generation.preset


def _node_labels(generation: Generation, presets: tuple[str, ...]) -> tuple[str, ...]:
    if generations.NODE in presets:
        return generations.NODES_OF_NODE
    if generations.OLD_NAMES in presets:
        return generations.NODES_OF_OLD_NAMES
    return generation.nodes if presets else ()


def _metrics(
    generation: Generation, names: frozenset[str], presets: tuple[str, ...]
) -> Iterator[str]:
    for metric, needed in generation.fields.items():
        if names.issuperset(needed) and set(presets) - {generations.PROFILING}:
            yield metric
    for metric, needed in generation.profiling.items():
        if names.issuperset(needed) and generations.PROFILING in presets:
            yield metric


def _release(generation: Generation, labels: frozenset[str]) -> str:
    """By labels that came or went with a release of dcgm-exporter."""
    if generation.name != "dcgm":
        return ""
    if "hostname" in labels:
        return "4.8.3 or later"
    if "pci_bus_id" in labels:
        return "3.5.0 to 4.8.2" if "Hostname" in labels else "3.5.0 or later"
    return "before 3.5.0" if "Hostname" in labels else ""
