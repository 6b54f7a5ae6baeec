"""Generation: everything that follows from the rules, the kinds and the last relists.

`relist` builds the generations, and has the reference to the present one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rules import teams
from rules.causes import candidates
from rules.causes.candidates import Inventory, ListingStatus, SeriesByMetric
from rules.kinds import Kinds
from rules.query import catalog, resource
from rules.query.catalog import Catalog, Listing
from rules.query.resource import ResourceQueries
from rules.ruleset import CompiledRule, RuleSet

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generation:
    """Immutable value that a request reads once, so that its answer is of one set of rules."""

    ruleset: RuleSet
    """Requests outside the namespaces of teams see its rules, without those of teams."""
    teams: Mapping[str, Generation] = field(default_factory=dict)
    """What requests in the namespace of a team see: its rules, too, and no others. By namespace."""
    resources: ResourceQueries | None
    """The queries of `resourceRules`; None without them, and then metrics.k8s.io is not served."""
    kinds: Kinds
    listings: Mapping[int, Listing]
    """By `CompiledRule.index`; a rule is absent until its first successful relist."""
    statuses: Mapping[int, ListingStatus]
    """As of `listings`: a newer status may say that labels are known which `catalog` lacks."""
    catalog: Catalog
    series_by_metric: SeriesByMetric
    problem: str = ""
    """Why the rules of the team have no effect; empty if they have."""

    def of(self, namespace: str) -> Generation:
        """Return what requests in a namespace see."""
        return self.teams.get(namespace, self)

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """All rules, also of teams, and the queries of `resourceRules`."""
        return (*self.ruleset.every, *(self.resources.rules if self.resources else ()))

    def inventory(self, now: float) -> Inventory:
        """Return what explains why a metric is missing; `now` is in Unix seconds."""
        return Inventory(
            ruleset=self.ruleset,
            catalog=self.catalog,
            kinds=self.kinds,
            listings=self.listings,
            series_by_metric=self.series_by_metric,
            statuses=self.statuses,
            now=now,
        )

    def aged(self, statuses: Mapping[int, ListingStatus], kinds: Kinds) -> Generation:
        """Return the same with the results of later relists that found the same series."""
        views = {name: each.aged(statuses, kinds) for name, each in self.teams.items()}
        return replace(self, statuses=statuses, kinds=kinds, teams=views)


def build(
    ruleset: RuleSet,
    listings: Mapping[int, Listing],
    statuses: Mapping[int, ListingStatus],
    kinds: Kinds,
) -> Generation:
    """Build a generation; rules without a listing are listed by the name that they pin, if any.

    Blocks for about a second with 10 000 series names.
    """

    def of_rules(rules: RuleSet) -> Generation:
        return _of_rules(rules, listings, statuses, kinds)

    try:
        present = of_rules(ruleset)
    except Exception:
        log.exception("the series of a rule cannot be used; the rule has no metrics")
        sound = _sound(ruleset, of_rules)
        unused = {rule.index for rule in ruleset.all} - {rule.index for rule in sound.all}
        listings = {rule: each for rule, each in listings.items() if rule not in unused}
        present = replace(of_rules(sound), ruleset=ruleset)
    views = {namespace: _of_team(present, namespace) for namespace in ruleset.teams}
    return replace(present, teams=views)


def _sound(ruleset: RuleSet, of_rules: Callable[[RuleSet], Generation]) -> RuleSet:
    """Return the rules without those that fail alone: what their series have affects no other."""

    def works(rule: CompiledRule) -> bool:
        alone = replace(
            ruleset,
            rules=tuple(each for each in ruleset.rules if each is rule),
            external=tuple(each for each in ruleset.external if each is rule),
        )
        try:
            of_rules(alone)
        except Exception:  # noqa: BLE001 (`build` has logged it)
            return False
        return True

    return replace(
        ruleset,
        rules=tuple(filter(works, ruleset.rules)),
        external=tuple(filter(works, ruleset.external)),
    )


def _of_team(cluster: Generation, namespace: str) -> Generation:
    """Return what requests in the namespace of a team see.

    Whatever goes wrong leaves it with the rules of the cluster, and affects no other team.
    """
    team = cluster.ruleset.teams[namespace]
    try:
        narrow = {
            rule.index: cluster.listings[rule.index]
            for rule in team.all
            if rule.index in cluster.listings and not teams.too_wide(rule, cluster.listings)
        }
        own = _of_rules(team, narrow, cluster.statuses, cluster.kinds)
    except Exception as error:
        log.exception("the rules of a team cannot be used")
        problem = f"the rules of the namespace cannot be used ({type(error).__name__})"
        return replace(cluster, problem=f"{problem}: simplify them")
    return replace(
        cluster,
        ruleset=cluster.ruleset.of(namespace),
        catalog=replace(own.catalog, cluster=cluster.catalog),
        series_by_metric={**cluster.series_by_metric, **own.series_by_metric},
    )


def _of_rules(
    ruleset: RuleSet,
    listings: Mapping[int, Listing],
    statuses: Mapping[int, ListingStatus],
    kinds: Kinds,
) -> Generation:
    pinned = catalog.pinned_listings(ruleset)
    return Generation(
        ruleset=ruleset,
        resources=resource.compile(ruleset.resource_rules) if ruleset.resource_rules else None,
        kinds=kinds,
        listings=listings,
        statuses=statuses,
        catalog=catalog.build(ruleset, {**pinned, **listings}, kinds),
        series_by_metric=candidates.series_by_metric(ruleset, listings),
    )
