"""Catalog: which metrics exist, for which resources, and by which label bindings.

It is built from the series names and labels that relists found, and replaced as a whole.
`rules.query.plan` renders the PromQL of a request.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rules.document.ahead import Ahead
from rules.document.config import Workloads
from rules.kinds import NAMESPACES, PODS, GroupResource, Kinds
from rules.query import label_binding
from rules.query.label_binding import Choice, LabelBinding
from rules.ruleset import CompiledRule, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rule and series name from which a metric is computed."""

    rule: CompiledRule
    series: str
    bindings: tuple[LabelBinding, ...]
    """In order of preference; several only while live series carry several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One query of a plan, for any objects."""

    source: Source
    binding: LabelBinding
    """Its `resource` label names the object of each sample."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Compute the hash, which each request needs."""
        object.__setattr__(self, "_hash", hash((self.source, self.binding)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def rule(self) -> CompiledRule:
        """The rule of the source."""
        return self.source.rule

    @property
    def series(self) -> str:
        """The series name of the source."""
        return self.source.series


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A metric of one resource (custom.metrics.k8s.io)."""

    metric: str
    resource: GroupResource
    namespaced: bool
    """Whether objects of this resource live in namespaces."""
    sources: tuple[Source, ...]
    """In the order of the rules; several only if these say `merge: true`."""
    listed: bool = True
    """False if no relist found a series yet; requests still work, because a rule pins the name."""
    pods: Entry | None = None
    """The metric of pods from which this one of their workload is computed."""

    @functools.cached_property
    def steps(self) -> tuple[Step, ...]:
        """The queries of the metric. If several have a value for one object, the earliest wins."""
        return tuple(
            Step(source=source, binding=binding)
            for source in self.sources
            for binding in source.bindings
        )

    @functools.cached_property
    def min_pod_age(self) -> float | None:
        """Seconds for which a pod must have been Ready; of several rules, the longest counts."""
        if self.resource != PODS:
            return self.pods.min_pod_age if self.pods else None
        ages = (source.rule.config.min_pod_age for source in self.sources)
        return max((age for age in ages if age is not None), default=None)

    @functools.cached_property
    def ahead(self) -> Ahead | None:
        """How values follow the load of one season ago; of several rules, the first counts."""
        sources = self.pods.sources if self.pods else self.sources
        of_rules = (source.rule.config.ahead for source in sources)
        return next(filter(None, of_rules), None) if self.pods or self.resource == PODS else None

    @functools.cached_property
    def workloads(self) -> Workloads | None:
        """How values of pods become one of their workload; of several rules, the first counts."""
        of_rules = (source.rule.config.workloads for source in self.sources)
        return next(filter(None, of_rules), None)


@dataclass(frozen=True, kw_only=True)
class ExternalEntry:
    """A metric of external.metrics.k8s.io."""

    metric: str
    namespaced: bool
    """Whether a request's namespace selects series; false under `namespaced: false`."""
    source: Source
    """Has exactly one binding, with an empty `resource`."""

    @functools.cached_property
    def step(self) -> Step:
        """The query of the metric."""
        (binding,) = self.source.bindings
        return Step(source=self.source, binding=binding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A series name and the labels that its series carry."""

    name: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The series that a relist found for one rule."""

    series: tuple[Series, ...]
    """In the order in which Prometheus lists them."""
    live: Mapping[tuple[str, GroupResource], tuple[LabelBinding, ...]] = field(default_factory=dict)
    """Series name and resource -> those of its ambiguous bindings that live series carry, or last
    carried. A key is absent if nothing is ambiguous, and if no series was live yet. The resource
    is NAMESPACES for external rules."""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class Catalog:
    """All metrics, as one immutable snapshot."""

    entries: tuple[Entry, ...]
    """The listed ones, sorted by resource (group, then name) and metric."""
    external: Mapping[str, ExternalEntry]
    """By metric name, sorted."""
    cluster: Catalog | None = None
    """If these are the metrics of a team: those of all namespaces, which come first."""
    _by_resource: Mapping[GroupResource, Mapping[str, Entry]] = field(repr=False, compare=False)
    _by_lower_case: Mapping[str, ExternalEntry] = field(repr=False, compare=False)

    @classmethod
    def of(cls, entries: Iterable[Entry], external: Iterable[ExternalEntry]) -> Catalog:
        """Return the catalog of these entries, in any order."""
        ordered = sorted(
            entries, key=lambda each: (each.resource.group, each.resource.resource, each.metric)
        )
        by_resource: dict[GroupResource, dict[str, Entry]] = {}
        for each in ordered:
            by_resource.setdefault(each.resource, {})[each.metric] = each
        named = {each.metric: each for each in sorted(external, key=lambda each: each.metric)}
        return cls(
            entries=tuple(each for each in ordered if each.listed),
            external=named,
            _by_resource=by_resource,
            _by_lower_case={name.lower(): each for name, each in reversed(named.items())},
        )

    @classmethod
    def empty(cls) -> Catalog:
        """Return the catalog without metrics."""
        return cls.of((), ())

    def entry(self, resource: GroupResource, metric: str) -> Entry | None:
        """Return a metric of a resource, listed or not; None if no rule produces it."""
        entry = self.cluster.entry(resource, metric) if self.cluster else None
        return entry or self._by_resource.get(resource, {}).get(metric)

    def external_entry(self, metric: str) -> ExternalEntry | None:
        """Return the external metric of this name, else the first that differs only in case.

        The RESTMapper of client-go lower-cases the names that autoscalers request.
        """
        entry = self.cluster.external_entry(metric) if self.cluster else None
        return entry or self.external.get(metric) or self._by_lower_case.get(metric.lower())


def build(ruleset: RuleSet, listings: Mapping[int, Listing], kinds: Kinds) -> Catalog:
    """Build the catalog of `listings` (by `CompiledRule.index`).

    Blocks for about half a second with 10 000 series names.

    If several sources produce one metric of one resource, the last series of the last rule wins;
    if that rule says `merge: true`, so do all other rules that say it. Rules that pin their series
    name also produce metrics without a listing: custom ones unlisted, external ones listed unless
    another rule has series for the same name.
    """
    pins = pinned_listings(ruleset)
    unlisted = {
        index: pin
        for index, pin in pins.items()
        if index not in listings or not listings[index].series
    }
    external = {
        **_external(_sources(ruleset.external, unlisted, kinds)),
        **_external(_sources(ruleset.external, listings, kinds)),
    }
    listed = _sources(ruleset.rules, listings, kinds)
    pinned = _sources(ruleset.rules, pins, kinds)
    entries = [
        entry
        for resource in {**pinned, **listed}
        for entry in _entries(resource, listed.get(resource, {}), pinned.get(resource, {}), kinds)
    ]
    return Catalog.of(_with_workloads(entries, kinds), external.values())


def _with_workloads(entries: Iterable[Entry], kinds: Kinds) -> Iterable[Entry]:
    """Return the metrics, and those of workloads that are computed from their pods.

    A metric that a rule has for the workload itself comes first.
    """
    every = {(entry.resource, entry.metric): entry for entry in entries}
    for pods in [each for each in every.values() if each.resource == PODS and each.workloads]:
        for resource in kinds.workloads:
            own = every.get((resource, pods.metric))
            is_first = own is None or (pods.listed and not own.listed)
            if is_first and kinds.find(resource.resource, resource.group):
                every[resource, pods.metric] = replace(pods, resource=resource, pods=pods)
    return every.values()


def pinned_listings(ruleset: RuleSet) -> dict[int, Listing]:
    """Return listings for the rules that need no relist, by `CompiledRule.index`.

    Those are rules whose selector pins one metric name and whose labels are all overrides; every
    override counts as carried. External rules need no labels, so only the name is required.
    """
    listings = {}
    for rule in ruleset.all:
        name = rule.pinned_series
        if name is None or (rule.section == "rules" and rule.config.resources.template):
            continue
        labels = frozenset(override.label for override in rule.config.resources.overrides)
        listings[rule.index] = Listing(series=(Series(name=name, labels=labels),))
    return listings


_Sources = Mapping[GroupResource, Mapping[str, Sequence[Source]]]
"""Resource -> metric -> its sources, in the order of the rules and of their series."""


def _sources(
    rules: Iterable[CompiledRule], listings: Mapping[int, Listing], kinds: Kinds
) -> _Sources:
    """Return the sources of each metric; those of external rules are under NAMESPACES."""
    sources: dict[GroupResource, dict[str, list[Source]]] = {}
    for rule in rules:
        listing = listings.get(rule.index)
        if listing is None:
            continue
        bound = rule.mapping.bind(kinds)
        # Thousands of series names share a few sets of labels.
        choices: dict[frozenset[str], Mapping[GroupResource, Choice]] = {}
        for series in listing.series:
            metric = rule.metric(series.name)
            if metric is None:
                continue
            if series.labels not in choices:
                choices[series.labels] = label_binding.choices(rule, bound, series.labels, kinds)
            for resource, possible in choices[series.labels].items():
                live = listing.live.get((series.name, resource), ())
                source = Source(rule=rule, series=series.name, bindings=_chosen(possible, live))
                sources.setdefault(resource, {}).setdefault(metric, []).append(source)
    return sources


def _chosen(possible: Choice, live: Collection[LabelBinding]) -> tuple[LabelBinding, ...]:
    """Return the possible bindings that live series carry, or else the preferred one."""
    labels = {(each.resource, each.namespace) for each in live}
    chosen = (
        [each for each in possible if (each.resource, each.namespace) in labels] if live else []
    )
    if len(chosen) > 1:
        return tuple(chosen)
    # A single one needs no matchers on `absent`, so that the query's text is the original's.
    return (replace(chosen[0], absent=()),) if chosen else (possible.preferred,)


def _entries(
    resource: GroupResource,
    listed: Mapping[str, Sequence[Source]],
    pinned: Mapping[str, Sequence[Source]],
    kinds: Kinds,
) -> Iterator[Entry]:
    """Yield the metrics of one resource, given the sources of each metric."""
    namespaced = kinds.resolve(resource.resource, resource.group).namespaced
    for metric in {**pinned, **listed}:
        yield Entry(
            metric=metric,
            resource=resource,
            namespaced=namespaced,
            sources=_winners(listed.get(metric, ()), pinned.get(metric, ())),
            listed=metric in listed,
        )


def _winners(listed: Sequence[Source], pinned: Sequence[Source]) -> tuple[Source, ...]:
    """Return the last listed source; if its rule merges, one of each rule that merges.

    Pinned sources stand in if none is listed. They also complete merged ones, so that an exporter
    of the next generation counts from its first scrape on, before any relist.
    """
    candidates = listed or pinned
    last = candidates[-1]
    if not last.rule.config.merge:
        return (last,)
    winners = {each.rule.index: each for each in candidates if each.rule.config.merge}
    for each in pinned:
        if each.rule.config.merge and each.rule.index not in winners:
            winners[each.rule.index] = replace(each, bindings=_borrowed(each, last))
    return tuple(winners[index] for index in sorted(winners))


def _borrowed(source: Source, other: Source) -> tuple[LabelBinding, ...]:
    """Return the bindings of `other` that the rule of `source` maps, too; without any, its own."""
    mapped = {override.label for override in source.rule.config.resources.overrides}
    fitting = (each for each in other.bindings if {each.resource, each.namespace} <= {*mapped, ""})
    return tuple(fitting) or source.bindings


def _external(sources: _Sources) -> dict[str, ExternalEntry]:
    entries = {}
    for metric, candidates in sources.get(NAMESPACES, {}).items():
        last = candidates[-1]
        binding = replace(last.bindings[0], absent=())
        entries[metric] = ExternalEntry(
            metric=metric,
            namespaced=label_binding.selects_namespace(last.rule),
            source=replace(last, bindings=(binding,)),
        )
    return entries
