"""Detects which GPU exporters, model servers and gateways a Prometheus scrapes: their presets.

`analyze` evaluates `Observations`, which `adapter.clients.detection` queries. The texts of
findings are in `advice`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rules.exporters import advice, generations, lookalikes
from rules.exporters.generations import GENERATIONS, ExporterGeneration
from rules.findings import Finding

Scheme = Literal["exported", "own names", "kube_pod", "honored", "direct", "scraped", "repeated"]

_SCHEMES: Mapping[Scheme, str] = {
    "exported": "`exported_pod`: scraped without honor_labels; `pod` is the exporter's own pod",
    "own names": "`pod_name`: honor_labels does not change it, unlike a label `namespace`",
    "kube_pod": "`kube_pod`: honor_labels does not change it",
    "honored": "`pod`: scraped with honor_labels; idle devices have the exporter's own, or none",
    "direct": "`pod`: the scrape config adds no `pod` of its own",
    "scraped": "`pod`: the pod that is scraped",
    "repeated": "`pod`: the engine whose series it repeats, not the pod that is scraped",
}
DEFAULT = "gpu-dcgm"
"""Preset to use while nothing is detected: its metrics can be requested once series appear."""
KEPT = 3600.0
"""Seconds for which a preset stays in use after its series."""
_LAST = (generations.PROFILING, generations.NODE)
_ORDER = (
    *dict.fromkeys(
        preset
        for each in GENERATIONS
        for preset in (generations.VARIANTS.get(each.name, each.preset), each.preset)
        if preset not in {"", *_LAST}
    ),
    *_LAST,
)
"""All presets in the order in which they are combined, from new to old generations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observations:
    """Names of series and labels in a Prometheus. Series are those of `generations.SERIES`."""

    live: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Live series -> those of `generations.LABELS` that any live series of this name has."""
    indexed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The same from the index, which also has series that ended in the last hours."""
    matching: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Each of `generations.matchers` -> live series of which some match it."""
    targets_of_pod: Mapping[str, int] = field(default_factory=dict)
    """Live series -> the most targets of one port of a pod that report it, if several."""
    ports_of_pod: Mapping[str, int] = field(default_factory=dict)
    """Live series -> the most ports of one pod that report it, if several."""
    honored: frozenset[str] = frozenset()
    """Live series whose `pod` differs from the `pod` of their target."""
    direct: frozenset[str] = frozenset()
    """Live series with a `pod`, whose target has none."""
    recently_foreign: frozenset[str] = frozenset()
    """Series that were `honored` or `direct` in the last hours."""
    hostname_is_pod: frozenset[str] = frozenset()
    """Live series whose Hostname or hostname is the `pod` of their target."""
    targets: int = 0
    down: int = 0
    """Targets with `up == 0`."""
    anything: bool = False
    """Whether Prometheus has any series."""
    others: frozenset[str] = frozenset()
    """Names in the index that may be the utilization of an accelerator, known or not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedExporter:
    """An exporter, model server or gateway that Prometheus scrapes."""

    generation: ExporterGeneration
    release: str = ""
    """Releases of the exporter that have these labels; may be empty."""
    schemes: tuple[Scheme, ...]
    """How series name pods; several if the exporter is scraped in several ways."""
    nodes: tuple[str, ...] = ()
    """Labels that name nodes for the presets, in order of preference."""
    metrics: tuple[str, ...]
    """API names without `_current` or `_over_time` that the presets provide."""
    presets: tuple[str, ...]
    findings: tuple[Finding, ...]
    provisional: bool = False
    """Whether other presets may fit once a pod uses a GPU."""

    @property
    def pods(self) -> tuple[str, ...]:
        """Return how series name pods, as text."""
        return tuple(_SCHEMES[scheme] for scheme in self.schemes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Result of a detection, the newest generation first."""

    exporters: tuple[DetectedExporter, ...]
    presets: tuple[str, ...]
    """Presets that fit, in the order of the flags; may be empty."""
    findings: tuple[Finding, ...]
    """Findings about Prometheus as a whole."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the command-line flags for the presets."""
        return tuple(f"--preset={name}" for name in self.presets)

    @property
    def provisional(self) -> bool:
        """Return whether other presets may fit once a pod uses a GPU."""
        return any(each.provisional for each in self.exporters)

    @property
    def waiting(self) -> str:
        """Return the preset that `--preset=auto` adds for pods that use a GPU later, or nothing."""
        return DEFAULT if self.provisional and DEFAULT not in self.presets else ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return all findings as text."""
        of_exporters = [
            f"{each.generation.title}: {text}"
            for each in self.exporters
            for text in (*each.pods, *(finding.sentence for finding in each.findings))
        ]
        return (*of_exporters, *(finding.sentence for finding in self.findings))


def analyze(observations: Observations) -> Detection:
    """Return the exporters and fitting presets. Without `up`, a `pod` counts as the workload's."""
    present = [each for each in GENERATIONS if _live(each, observations)]
    names = {each.name for each in present}
    present = [each for each in present if each.superseded_by not in names]
    exporters = tuple(
        (_server if each.server else _detected)(each, observations) for each in present
    )
    fitting = dict.fromkeys(name for each in exporters for name in each.presets)
    ended = observations.indexed.keys() - observations.live.keys()
    known = ended.union(*(_live(each, observations) for each in present))
    findings = [*advice.on_lookalikes(lookalikes.among(observations.others, known))]
    if not exporters:
        findings += advice.on_nothing(
            ended=[each.title for each in GENERATIONS if _names(each, observations.indexed)],
            targets=observations.targets,
            down=observations.down,
            anything=observations.anything,
            unknown=bool(findings),
        )
    return Detection(
        exporters=exporters,
        presets=in_order(fitting),
        findings=tuple(findings),
    )


def absences(
    report: Detection, before: Mapping[str, float | None], now: float
) -> Mapping[str, float | None]:
    """Return the presets to use, in order, each with the time since which it fits no series.

    That is None while it does. `before` is the result for the last report; presets that no longer
    fit stay for KEPT seconds, because an exporter may return, or be upgraded node by node.
    """
    fitting = {*report.presets, *((DEFAULT,) if report.provisional else ())}
    since = {
        name: None if name in fitting else now if (start := before.get(name)) is None else start
        for name in {*before, *fitting}
    }
    return {
        name: since[name]
        for name in in_order(since)
        if (start := since[name]) is None or now - start < KEPT
    }


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names of presets in the order in which they are loaded, each once."""
    return tuple(sorted({*names}, key=_ORDER.index))


def _names(generation: ExporterGeneration, labels: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the series of this generation; `labels` are those of each series."""
    return frozenset(
        name
        for name in generation.series & labels.keys()
        if (not generation.labels or labels[name] & generation.labels)
        and not labels[name] & generation.without_labels
    )


def _live(generation: ExporterGeneration, observations: Observations) -> frozenset[str]:
    """Return the live series of this generation."""
    names = _names(generation, observations.live)
    if generation.matcher:
        names &= observations.matching.get(generation.matcher, frozenset())
    if generation.rival in observations.live and names.isdisjoint(generation.own_series):
        return frozenset()
    return names


def _detected(generation: ExporterGeneration, observations: Observations) -> DetectedExporter:
    live = _live(generation, observations)
    names = live | _renamed(generation, live)
    labels = _labels(live, observations.live)
    schemes = _schemes(
        labels, honored=live & observations.honored, direct=live & observations.direct
    )
    unused = generation.only_used and not names & generations.needed(generation.fields)
    idle = unused
    if not schemes and not unused:
        schemes = _recent_schemes(generation, observations, labels)
        idle = bool(schemes)
    podless = not schemes and not idle
    presets = tuple(_presets(generation, names, labels, schemes, podless=podless, idle=idle))
    known = generations.node_labels(presets[0]) if presets else ()
    nodes = tuple(label for label in known if label in labels)
    return DetectedExporter(
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
                nodes, hostname_is_pod=bool(live & observations.hostname_is_pod), known=known
            ),
        ),
        provisional=podless and bool(generation.podless_preset),
    )


def _server(generation: ExporterGeneration, observations: Observations) -> DetectedExporter:
    live = _live(generation, observations)
    names = live | _renamed(generation, live)
    labels = _labels(live, observations.live)
    presets = (generation.preset,) if generation.preset else ()
    # What a gateway repeats has the pods of the engines on purpose.
    repeated = frozenset[str]().union(
        *(_live(each, observations) for each in GENERATIONS if each.repeats)
    )
    honored = live & observations.honored
    schemes: tuple[Scheme, ...] = ()
    if "pod" in labels and not generation.external:  # series of a gateway are of no pod
        schemes = ("repeated" if generation.repeats and honored else "scraped",)
    return DetectedExporter(
        generation=generation,
        schemes=schemes,
        metrics=tuple(_metrics(generation, names, presets)),
        presets=presets,
        findings=(
            *advice.on_server(generation, labels, names, replaced=bool(honored - repeated)),
            *advice.on_targets(
                max((observations.targets_of_pod.get(each, 1) for each in live), default=1),
                max((observations.ports_of_pod.get(each, 1) for each in live), default=1),
            ),
        ),
    )


def _renamed(generation: ExporterGeneration, live: frozenset[str]) -> frozenset[str]:
    """Return the series of `fields` of which a live series is another name."""
    others = generation.other_names.items()
    return frozenset(series for series, names in others if not live.isdisjoint(names))


def _labels(names: frozenset[str], labels: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*(labels[name] for name in names))


def _schemes(
    labels: frozenset[str], *, honored: frozenset[str], direct: frozenset[str]
) -> tuple[Scheme, ...]:
    """Return how series of one generation name pods; `honored` and `direct` are its series."""
    applies: Mapping[Scheme, bool] = {
        "exported": "exported_pod" in labels,
        "own names": "pod_name" in labels,
        "kube_pod": "kube_pod" in labels,
        "honored": bool(honored),
        "direct": bool(direct),
    }
    return tuple(scheme for scheme, applied in applies.items() if applied)


def _recent_schemes(
    generation: ExporterGeneration, observations: Observations, labels: frozenset[str]
) -> tuple[Scheme, ...]:
    """Return how series named pods in the last hours; `labels` are those of live series."""
    names = _names(generation, observations.indexed)
    foreign = names & observations.recently_foreign
    # Live series no longer name a workload, so a `pod` on them is their target's.
    target_has_pod = "pod" in labels
    return _schemes(
        _labels(names, observations.indexed),
        honored=foreign if target_has_pod else frozenset(),
        direct=frozenset() if target_has_pod else foreign,
    )


def _presets(
    generation: ExporterGeneration,
    names: frozenset[str],
    labels: frozenset[str],
    schemes: tuple[Scheme, ...],
    *,
    podless: bool,
    idle: bool,
) -> Iterator[str]:
    engine = generation.profiling.get("gr_engine_active", ())
    if generation.preset and (idle or names & generations.needed(generation.fields)):
        if podless and generation.podless_preset:
            yield generation.podless_preset
        elif generation.name == "dcgm" and "GPU_I_PROFILE" in labels and names.issuperset(engine):
            yield generations.MIG
        elif (
            generation.name == "dcgm-compat" and schemes == ("own names",) and "UUID" not in labels
        ):
            yield generations.OLD_NAMES
        else:
            yield generation.preset
    if names & generations.needed(generation.profiling) and not podless:
        yield generations.PROFILING


def _metrics(
    generation: ExporterGeneration, names: frozenset[str], presets: tuple[str, ...]
) -> Iterator[str]:
    for metric, needed in generation.fields.items():
        if names.issuperset(needed) and set(presets) - {generations.PROFILING}:
            yield metric
    for metric, needed in generation.profiling.items():
        if names.issuperset(needed) and generations.PROFILING in presets:
            yield metric


def _release(generation: ExporterGeneration, labels: frozenset[str]) -> str:
    """Return the releases of dcgm-exporter that have these labels."""
    if generation.name != "dcgm":
        return ""
    if "hostname" in labels:
        return "4.8.3 or later"
    if "pci_bus_id" in labels:
        return "3.5.0 to 4.8.2" if "Hostname" in labels else "3.5.0 or later"
    return "before 3.5.0" if "Hostname" in labels else ""
