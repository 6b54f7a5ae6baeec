"""What is known of every rule's series at one moment, and how well it is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules.diagnosis.candidates import MetricsBySeries
from rules.kinds import Kinds
from rules.query.catalog import Catalog, Listing, Series
from rules.ruleset import CompiledRule, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingStatus:
    """How it stands with the listing of one rule."""

    listed: float | None
    """When the last good listing was asked for, in Unix seconds; None if there has been none."""
    failed: bool
    """Whether the last attempt failed."""


UNHEARD = ListingStatus(listed=None, failed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that may tell why a metric is not there."""

    ruleset: RuleSet
    catalog: Catalog
    kinds: Kinds
    listings: Mapping[int, Listing]
    """By `CompiledRule.index`: what relists found, and nothing that is only pinned."""
    made: MetricsBySeries
    """Of these listings, and perhaps of more."""
    heard: Mapping[int, ListingStatus]
    """By `CompiledRule.index`."""
    now: float
    """Unix seconds."""

    def series(self, rule: CompiledRule) -> tuple[Series, ...]:
        """What the last good listing of `rule` found; nothing if there has been none."""
        listing = self.listings.get(rule.index)
        return listing.series if listing else ()

    def giving(self, rule: CompiledRule, metric: str) -> tuple[Series, ...]:
        """Those of them of which `rule` makes this metric."""
        return self.made[rule.index].get(metric, ()) if rule.index in self.listings else ()
