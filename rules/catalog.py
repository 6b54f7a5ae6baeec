"""Which metrics exist, for which resources, and which rule and series answer each.

A `Catalog` is built whole from what a relist found and swapped whole; two rules that produce the
same metric are data (`conflicts`), not a surprise. The module holds, too, the half of a relist that
needs no network: which labels compete for a resource (`competing`), how Prometheus is asked which
of them live series carry (`Labelling.probe_matchers`), and what needs no relist (`pinned`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rules import promql
from rules.kinds import GroupResource, Kinds
from rules.mapping import BoundMapping
from rules.ruleset import CompiledRule, RuleSet

NAMESPACES = GroupResource("", "namespaces")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """One way in which series name their object.

    Where several labels may stand for one resource (`exported_pod`, then `pod`), a series belongs
    to the object named by the *first* of them that it carries; with namespaces likewise. So to ask
    by a later label is to ask, too, that the earlier ones are absent: those are `absent`.
    """

    resource: str
    """The label that holds the object's name; empty for an external metric, which has no object."""
    namespace: str = ""
    """The label that holds the object's namespace; empty where there is none: for root-scoped
    resources, and for rules that map none."""
    absent: tuple[str, ...] = ()
    """Labels that must be empty for this labelling to hold: the resource's, then the namespace's,
    each in the order of the overrides."""

    def probe_matchers(self) -> tuple[str, ...]:
        """The matchers of series that bear this labelling: `earlier=""`, then `label!=""`."""
        present = (label for label in (self.resource, self.namespace) if label)
        return (
            *(promql.matcher(label, "=", "") for label in self.absent),
            *(promql.matcher(label, "!=", "") for label in present),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rule and series that answers a metric."""

    rule: CompiledRule
    series: str
    labellings: tuple[Labelling, ...]
    """In order of preference; more than one only while live series carry several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A metric of a resource."""

    metric: str
    resource: GroupResource
    namespaced: bool
    """Whether the cluster's objects of this resource live in namespaces."""
    sources: tuple[Source, ...]
    """More than one only where rules say `merge: true`; the earlier rule first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEntry:
    """A metric of external.metrics.k8s.io."""

    metric: str
    namespaced: bool
    """Whether a request's namespace selects series; false under `namespaced: false`."""
    source: Source
    """With exactly one labelling, whose `resource` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What a relist knows of one series name: the label names that its series carry."""

    name: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a relist found for one rule."""

    series: tuple[Series, ...]
    """In the order in which Prometheus lists them."""
    live: Mapping[tuple[str, GroupResource], tuple[Labelling, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Series name and resource -> those of its `competing` labellings that live series bear. Keys
    of which nothing is known, because none was found or nothing competes, are left out; a relist
    that finds none live passes on what the last one found. For external rules the resource is
    NAMESPACES."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Two series that produce the same metric, of which only one can answer."""

    metric: str
    resource: GroupResource | None
    """None for an external metric."""
    winner: Source
    loser: Source

    def __str__(self) -> str:
        of = f" of {self.resource}" if self.resource else ""
        won, lost = self.winner, self.loser
        if won.rule is lost.rule:
            return (
                f"{place(won.rule)}: the series {lost.series!r} and {won.series!r} both become the "
                f"metric {self.metric!r}{of}; {won.series!r}, listed last, answers it and "
                f"{lost.series!r} never does: narrow `seriesQuery` or `name.matches`, or give them "
                "different names"
            )
        merge = "" if self.resource is None else ", or say `merge: true` in both"
        return (
            f"the metric {self.metric!r}{of} is produced by {place(lost.rule)} (from "
            f"{lost.series!r}) and by {place(won.rule)} (from {won.series!r}); the later rule "
            f"answers it and the earlier one never does: give them different names{merge}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Every metric there is, as one immutable snapshot."""

    entries: tuple[Entry, ...]
    """Sorted by resource (group, then name) and metric."""
    external: Mapping[str, ExternalEntry]
    """By metric name, sorted."""
    conflicts: tuple[Conflict, ...]
    _by_key: Mapping[tuple[GroupResource, str], Entry] = field(repr=False, compare=False)
    _by_lower_case: Mapping[str, ExternalEntry] = field(repr=False, compare=False)

    @classmethod
    def of(
        cls,
        entries: Collection[Entry],
        external: Collection[ExternalEntry],
        conflicts: Collection[Conflict],
    ) -> Catalog:
        by_key = {(entry.resource, entry.metric): entry for entry in entries}
        named = {entry.metric: entry for entry in sorted(external, key=lambda entry: entry.metric)}
        lower = {metric.lower(): entry for metric, entry in reversed(named.items())}
        return cls(
            entries=tuple(by_key[key] for key in sorted(by_key)),
            external=MappingProxyType(named),
            conflicts=tuple(conflicts),
            _by_key=by_key,
            _by_lower_case=lower,
        )

    @classmethod
    def empty(cls) -> Catalog:
        return cls.of((), (), ())

    def entry(self, resource: GroupResource, metric: str) -> Entry | None:
        return self._by_key.get((resource, metric))

    def external_entry(self, metric: str) -> ExternalEntry | None:
        """The external metric of this name, else the first that differs from it only in case.

        client-go's RESTMapper lower-cases what the autoscaler asks for.
        """
        return self.external.get(metric) or self._by_lower_case.get(metric.lower())


def place(rule: CompiledRule) -> str:
    """Where a rule stands, for people: `rules.yaml: rules[3]`."""
    where = rule.config.where
    return ": ".join(part for part in (where.file, where.path) if part)


def build(ruleset: RuleSet, listings: Mapping[int, Listing], kinds: Kinds) -> Catalog:
    """The catalog of what `listings` found; a rule without a listing produces nothing.

    Where several produce one metric of one resource, the last series of the last rule wins, save
    that rules with `merge: true` answer together if the last of all says so; every loser is a
    `Conflict`.
    """
    conflicts: list[Conflict] = []
    inside: dict[tuple[GroupResource, str], list[Source]] = {}
    for rule in ruleset.rules:
        for metric, resource, source in _sources(rule, listings, kinds):
            inside.setdefault((resource, metric), []).append(source)
    entries = [
        Entry(
            metric=metric,
            resource=resource,
            namespaced=kinds.resolve(resource.resource, resource.group).namespaced,
            sources=_winners(sources, metric, resource, conflicts),
        )
        for (resource, metric), sources in inside.items()
    ]
    outside: dict[str, list[Source]] = {}
    for rule in ruleset.external:
        for metric, _, source in _sources(rule, listings, kinds):
            first = replace(source.labellings[0], absent=())
            outside.setdefault(metric, []).append(replace(source, labellings=(first,)))
    external = []
    for metric, sources in outside.items():
        (source,) = _winners(sources, metric, None, conflicts)
        namespaced = _selects_namespace(source.rule)
        external.append(ExternalEntry(metric=metric, namespaced=namespaced, source=source))
    return Catalog.of(entries, external, conflicts)


def pinned(ruleset: RuleSet, kinds: Kinds) -> Catalog:
    """What can be listed and asked before any relist has succeeded: see `pinned_listings`."""
    return build(ruleset, pinned_listings(ruleset), kinds)


def pinned_listings(ruleset: RuleSet) -> dict[int, Listing]:
    """The listings of rules that need no discovery, by `CompiledRule.index`.

    They are the rules whose selector pins one metric name by equality and whose labels are all
    overrides; every override counts as carried. External rules need no labels, so only the name.
    """
    listings = {}
    for rule in (*ruleset.rules, *ruleset.external):
        name = promql.pinned_name(rule.config.series_query)
        if name is None or (rule.section == "rules" and rule.config.resources.template):
            continue
        labels = frozenset(override.label for override in rule.config.resources.overrides)
        listings[rule.index] = Listing(series=(Series(name=name, labels=labels),))
    return listings


def competing(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, tuple[Labelling, ...]]:
    """Where labels compete among `labels` (those of one series name), all labellings that may hold.

    Empty when nothing competes. In order of preference: every label of the resource with every
    label of namespaces. A relist asks, for each, an instant query with its `probe_matchers` and
    puts those that found the series into `Listing.live` under (series, resource).
    """
    found = possible(rule, bound, labels, kinds)
    return {resource: each for resource, each in found.items() if len(each) > 1}


def possible(
    rule: CompiledRule, bound: BoundMapping, labels: frozenset[str], kinds: Kinds
) -> dict[GroupResource, tuple[Labelling, ...]]:
    """Each resource that `labels` associate, with its labellings in order of preference.

    Where series carry no label of namespaces, it is the first that the rule has, as in the original
    (the query then finds nothing). An external rule associates nothing; its labellings, of
    namespaces alone, stand under NAMESPACES.
    """
    carried = bound.carried(labels)
    namespaces = carried.get(NAMESPACES) or bound.labels(NAMESPACES)[:1]
    if rule.section == "externalRules":
        return {NAMESPACES: labellings(("",), namespaces if _selects_namespace(rule) else ())}
    return {
        resource: labellings(
            names,
            namespaces if kinds.resolve(resource.resource, resource.group).namespaced else (),
        )
        for resource, names in carried.items()
    }


def labellings(resource: Collection[str], namespace: Collection[str]) -> tuple[Labelling, ...]:
    """Every pair of a resource's label and a namespace's, earlier ones first."""
    resources, namespaces = tuple(resource), tuple(namespace) or ("",)
    return tuple(
        Labelling(resource=name, namespace=space, absent=resources[:i] + namespaces[:j])
        for i, name in enumerate(resources)
        for j, space in enumerate(namespaces)
    )


def _sources(
    rule: CompiledRule, listings: Mapping[int, Listing], kinds: Kinds
) -> Iterator[tuple[str, GroupResource, Source]]:
    listing = listings.get(rule.index)
    if listing is None:
        return
    bound = rule.mapping.bind(kinds)
    for series in listing.series:
        metric = rule.namer.metric(series.name) if rule.filters.accept(series.name) else None
        if metric is None:
            continue
        for resource, candidates in possible(rule, bound, series.labels, kinds).items():
            chosen = _settled(candidates, listing.live.get((series.name, resource), ()))
            yield metric, resource, Source(rule=rule, series=series.name, labellings=chosen)


def _settled(
    candidates: tuple[Labelling, ...], live: Collection[Labelling]
) -> tuple[Labelling, ...]:
    known = {(labelling.resource, labelling.namespace) for labelling in live}
    chosen = [each for each in candidates if (each.resource, each.namespace) in known]
    if len(chosen) > 1:
        return tuple(chosen)
    # Alone it needs no matcher on the others, and the query's text is the original's.
    return (replace((chosen or candidates)[0], absent=()),)


def _winners(
    sources: Collection[Source],
    metric: str,
    resource: GroupResource | None,
    conflicts: list[Conflict],
) -> tuple[Source, ...]:
    """Those of one metric's sources, in the order of rules and then of series, that answer it."""
    last_of_rule = {source.rule.index: source for source in sources}
    *_, last = last_of_rule.values()
    together = resource is not None and last.rule.config.merge
    winners = tuple(
        source
        for source in last_of_rule.values()
        if source is last or (together and source.rule.config.merge)
    )
    for source in sources:
        best = last_of_rule[source.rule.index]
        winner = last if source is best and source not in winners else best
        if (winner.rule, winner.series) != (source.rule, source.series):
            conflicts.append(
                Conflict(metric=metric, resource=resource, winner=winner, loser=source)
            )
    return winners


def _selects_namespace(rule: CompiledRule) -> bool:
    return rule.config.resources.namespaced is not False
