"""Which metrics exist, for which resources, and which rule and series answer each.

A `Catalog` is built whole from what a relist found and swapped whole; two rules that produce the
same metric are data (`conflicts`), not a surprise. What needs no relist, since a rule pins its
name, can be asked before one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rules import promql
from rules.kinds import GroupResource, Kinds
from rules.query import label_binding
from rules.query.label_binding import LabelBinding
from rules.ruleset import CompiledRule, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rule and series that answers a metric."""

    rule: CompiledRule
    series: str
    bindings: tuple[LabelBinding, ...]
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
    listed: bool = True
    """False for what can be asked, since its rule pins the name, and was not found by a relist."""


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
    live: Mapping[tuple[str, GroupResource], tuple[LabelBinding, ...]] = field(
        default_factory=lambda: MappingProxyType({})
    )
    """Series name and resource -> those of its `ambiguous_bindings` that live series bear. Keys
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
    """Those that are listed, sorted by resource (group, then name) and metric."""
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
            entries=tuple(by_key[key] for key in sorted(by_key) if by_key[key].listed),
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
    `Conflict`. What rules pin and `listings` lack can be asked all the same: see `_unlisted`. As an
    external metric it is listed, too, and stands in for none of that name that was found.
    """
    conflicts: list[Conflict] = []
    inside = _inside(ruleset, listings, kinds)
    entries = {
        key: _entry(key, _winners(sources, key[1], key[0], conflicts), kinds)
        for key, sources in inside.items()
    }
    entries |= _unlisted(entries, _inside(ruleset, pinned_listings(ruleset), kinds), kinds)
    external = _outside(ruleset, listings, kinds, conflicts)
    lacking = {
        index: listing
        for index, listing in pinned_listings(ruleset).items()
        if index not in listings or not listings[index].series
    }
    external = _outside(ruleset, lacking, kinds, []) | external
    return Catalog.of(entries.values(), external.values(), conflicts)


_Key = tuple[GroupResource, str]


def _inside(
    ruleset: RuleSet, listings: Mapping[int, Listing], kinds: Kinds
) -> dict[_Key, list[Source]]:
    found: dict[_Key, list[Source]] = {}
    for rule in ruleset.rules:
        for metric, resource, source in _sources(rule, listings, kinds):
            found.setdefault((resource, metric), []).append(source)
    return found


def _outside(
    ruleset: RuleSet, listings: Mapping[int, Listing], kinds: Kinds, conflicts: list[Conflict]
) -> dict[str, ExternalEntry]:
    found: dict[str, list[Source]] = {}
    for rule in ruleset.external:
        for metric, _, source in _sources(rule, listings, kinds):
            first = replace(source.bindings[0], absent=())
            found.setdefault(metric, []).append(replace(source, bindings=(first,)))
    entries = {}
    for metric, sources in found.items():
        (source,) = _winners(sources, metric, None, conflicts)
        namespaced = label_binding.selects_namespace(source.rule)
        entries[metric] = ExternalEntry(metric=metric, namespaced=namespaced, source=source)
    return entries


def _entry(key: _Key, sources: tuple[Source, ...], kinds: Kinds, *, listed: bool = True) -> Entry:
    resource, metric = key
    namespaced = kinds.resolve(resource.resource, resource.group).namespaced
    return Entry(
        metric=metric, resource=resource, namespaced=namespaced, sources=sources, listed=listed
    )


def _unlisted(
    listed: Mapping[_Key, Entry], pinned: Mapping[_Key, list[Source]], kinds: Kinds
) -> dict[_Key, Entry]:
    """What pinned rules add to the listed entries: those to be put in, or in place of another.

    A metric that is not listed can be asked the moment its series appear. A merged one is asked of
    every rule that merges, found or not, by the labels that the others go by: so an exporter of the
    next generation counts from its first scrape on.
    """
    added: dict[_Key, Entry] = {}
    for key, sources in pinned.items():
        entry = listed.get(key)
        if entry is None:
            added[key] = _entry(key, _winners(sources, key[1], key[0], []), kinds, listed=False)
            continue
        there = {source.rule.index for source in entry.sources}
        last = entry.sources[-1]
        new = [
            replace(source, bindings=_borrowed(source, last))
            for source in sources
            if source.rule.index not in there and source.rule.config.merge
        ]
        if new and last.rule.config.merge:
            together = sorted((*entry.sources, *new), key=lambda source: source.rule.index)
            added[key] = replace(entry, sources=tuple(together))
    return added


def _borrowed(source: Source, other: Source) -> tuple[LabelBinding, ...]:
    """The labellings of `other`, as far as the rule of `source` has their labels."""
    known = {override.label for override in source.rule.config.resources.overrides}
    fitting = (each for each in other.bindings if {each.resource, each.namespace} <= {*known, ""})
    return tuple(fitting) or source.bindings


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
        for resource, candidates in label_binding.bindings(
            rule, bound, series.labels, kinds
        ).items():
            chosen = _settled(candidates, listing.live.get((series.name, resource), ()))
            yield metric, resource, Source(rule=rule, series=series.name, bindings=chosen)


def _settled(
    candidates: tuple[LabelBinding, ...], live: Collection[LabelBinding]
) -> tuple[LabelBinding, ...]:
    known = {(each.resource, each.namespace) for each in live}
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
