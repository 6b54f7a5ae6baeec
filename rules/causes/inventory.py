"""Snapshot of the rules, the series that relists found and the state of each relist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules.causes.candidates import SeriesByMetric
from rules.kinds import Kinds
from rules.query.catalog import Catalog, Listing, Series
from rules.ruleset import CompiledRule, RuleSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingStatus:
    """State of the relists of one rule."""

    listed: float | None
    """When the last successful relist started, in Unix seconds; None before the first."""
    failed: bool
    """Whether the last relist failed."""
    first_listed: float | None = None
    """When the first successful relist started; None if that does not matter."""
    failing_since: float | None = None
    """When the first of the failed relists since the last success started."""
    partial: bool = False
    """Whether the last successful relist may lack series."""
    refusal: str = ""
    """Why Prometheus, or a limit, refused the last relist if it failed for that; else empty."""


NEVER_LISTED = ListingStatus(listed=None, failed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Everything that a diagnosis needs."""

    ruleset: RuleSet
    catalog: Catalog
    kinds: Kinds
    listings: Mapping[int, Listing]
    """`CompiledRule.index` -> last successful relist. Pinned listings are not included."""
    series_by_metric: SeriesByMetric
    """The metrics of `listings`; it may have those of further rules."""
    statuses: Mapping[int, ListingStatus]
    """`CompiledRule.index` -> state of its relists."""
    now: float
    """Unix seconds."""

    def status(self, rule: CompiledRule) -> ListingStatus:
        """Return the state of the relists of `rule`."""
        return self.statuses.get(rule.index, NEVER_LISTED)

    def series(self, rule: CompiledRule) -> tuple[Series, ...]:
        """Return the series of the last successful relist of `rule`; empty before the first."""
        listing = self.listings.get(rule.index)
        return listing.series if listing else ()

    def series_of(self, rule: CompiledRule, metric: str) -> tuple[Series, ...]:
        """Return those series of the last successful relist that `rule` names `metric`."""
        if rule.index not in self.listings:
            return ()
        return self.series_by_metric[rule.index].get(metric, ())
