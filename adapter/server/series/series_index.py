"""Index of the series of one selector: names, and the labels that can identify objects.

A `SeriesIndex` belongs to the rules that share a selector. It keeps its last good answer when
Prometheus fails. `lister` sends the queries, `relist` decides when.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from adapter import errors, telemetry
from adapter.background import Condition
from adapter.clients.lister import IndexedNames, Lister
from rules import promql
from rules.causes.candidates import NEVER_LISTED, ListingStatus
from rules.errors import RulesError
from rules.kinds import GroupResource, Kinds
from rules.query import label_binding
from rules.query.catalog import Listing, Series
from rules.query.label_binding import LabelBinding
from rules.quoting import counted
from rules.ruleset import CompiledRule

logger = logging.getLogger(__name__)

_FIRST_RELIST = "relist", "and no earlier one succeeded"
_RELIST = "relist", "the last result stays in use"
_EXACT = "exact query", "metrics that ended may stay listed"
_LIVE = "query of live labels", "the last ones stay in use"
"""Actions, and what follows if one fails."""

_EXACT_PACE = 100
"""Minimum pause between exact queries, as a multiple of the duration of the last one."""
_ABSENT_SECONDS = 3600.0
"""How long a name is kept after Prometheus' index last had it, if no exact query succeeds."""

_Bindings = tuple[LabelBinding, ...]
_Ambiguous = Mapping[CompiledRule, Mapping[GroupResource, _Bindings]]
"""By rule: the resources that several labels can identify, with all bindings of each."""
_Probe = tuple[str, ...]
"""Matchers of the series that carry the labels of one binding."""


class SeriesIndex:
    """Index of the series of one selector, refreshed by `relist` and `refresh_live_labels`."""

    def __init__(
        self,
        selector: str,
        rules: tuple[CompiledRule, ...],
        lister: Lister,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        meter: telemetry.RelistMetrics | None = None,
    ) -> None:
        self.lister = lister
        self._clock = clock
        self._monotonic = monotonic
        self._meter = meter

        self._names: Mapping[str, frozenset[str]] | None = None
        """Series names with their label names; None before the first success."""
        self._last_indexed: Mapping[str, float] = {}
        """When Prometheus' index last had each of `_names`, in monotonic time."""
        self._ended: frozenset[str] = frozenset()
        """Names that the last exact query did not find, and that the index still has."""
        self._exact_queried: float | None = None
        self._exact_seconds = 0.0
        self._live: dict[CompiledRule, dict[tuple[str, GroupResource], _Bindings]] = {}

        self._asked: frozenset[str] = frozenset()
        """Names for which the query of live labels was answered, now or earlier."""
        self._guessed = False
        """Whether that query failed for a name that it was never answered for."""
        self._status = NEVER_LISTED
        """Of the relists alone; while labels are guesses, `statuses` differs."""
        self._conditions = {action: Condition() for action, _ in (_RELIST, _EXACT, _LIVE)}
        self.follow(selector, rules)

    def follow(self, selector: str, rules: tuple[CompiledRule, ...]) -> None:
        """Index the series of these rules only; the first call begins, later ones narrow."""
        self.selector = selector
        self.rules = rules
        self._pinned_names = {
            rule.index: name
            for rule in rules
            if (name := promql.bare_name(rule.config.series_query)) is not None
        }
        self._override_labels = frozenset(
            override.label for rule in rules for override in rule.config.resources.overrides
        )
        self._live = {rule: self._live.get(rule, {}) for rule in rules}
        if self._names is not None and len(self._pinned_names) == len(rules):
            pinned = set(self._pinned_names.values())
            self._names = {name: self._names[name] for name in self._names if name in pinned}
        first, *others = (str(rule.config.where) for rule in rules)
        self._where = f"{first} and {counted(len(others), 'more rule')}" if others else first

    def paths(self) -> list[str]:
        """Return the path of each rule in its file, `rules[3]`."""
        return [rule.config.where.path or f"{rule.section}[{rule.index}]" for rule in self.rules]

    @property
    def complete(self) -> bool:
        """Whether the last good listing has a name, and every name that rules pin."""
        names = self._names or {}
        return bool(names) and all(name in names for name in self._pinned_names.values())

    def statuses(self) -> dict[int, ListingStatus]:
        """Return the status of each rule, by index; not listed while its labels are guesses."""
        status = self._status
        if self._guessed:
            status = replace(status, listed=None, failed=True)
        return dict.fromkeys((rule.index for rule in self.rules), status)

    def listings(self) -> dict[int, Listing]:
        """Return the listing of each rule, by index; empty before the first success."""
        if self._names is None:
            return {}
        # All rules share these, because there may be thousands.
        series = {name: Series(name=name, labels=self._names[name]) for name in sorted(self._names)}
        every = tuple(series.values())
        listings: dict[int, Listing] = {}
        for rule in self.rules:
            own = every
            if (pinned := self._pinned_names.get(rule.index)) is not None:
                own = (series[pinned],) if pinned in series else ()
            listings[rule.index] = Listing(series=own, live=dict(self._live[rule]))
        return listings

    async def relist(self, kinds: Kinds) -> bool:
        """List names and labels, then refresh live labels. Return whether both succeeded.

        A partial one adds names and labels, and removes none. Whatever goes wrong is a failure of
        this selector alone: its rules and series may be somebody else's.
        """
        started = self._clock()
        try:
            return await self._list(kinds, started)
        except Exception as error:  # noqa: BLE001 (see above)
            self._note(_FIRST_RELIST if self._names is None else _RELIST, error)
            self._status = replace(
                self._status,
                failed=True,
                failing_since=self._failing_since(started),
                refusal=error.refusal if isinstance(error, errors.BackendError) else "",
            )
            if self._meter is not None:
                for path in self.paths():
                    self._meter.failed(path, outcome=type(error).__name__)
            return False

    def _failing_since(self, now: float) -> float:
        last = self._status.failing_since
        return now if last is None else last

    async def _list(self, kinds: Kinds, started: float) -> bool:
        last = self._status
        found = await self.lister.index(
            self.selector, self._override_labels, self._template_filter(kinds)
        )
        if found.partial:
            known = self._names or {}
            more = {name: known.get(name, frozenset()) | each for name, each in found.names.items()}
            found = replace(found, names={**known, **more})
        exact = None if found.exact or found.partial else await self._exact()
        self._update(found, exact)
        await self.refresh_live_labels(kinds)
        self._note(_RELIST)
        self._status = ListingStatus(
            listed=started,
            failed=False,
            first_listed=started if last.first_listed is None else last.first_listed,
            failing_since=self._failing_since(started) if self._guessed else None,
            partial=found.partial,
        )
        if self._meter is not None and found.partial:
            for path in self.paths():
                self._meter.failed(path, outcome="Partial")
        elif self._meter is not None:
            for path, listing in zip(self.paths(), self.listings().values(), strict=True):
                self._meter.listed(path, names=len(listing.series), at=started)
        return not self._guessed

    async def refresh_live_labels(self, kinds: Kinds) -> None:
        """Query which of several labels that identify a resource live series carry now.

        Includes labels that the last relist did not find: exporters may have changed since. The
        last answer stays in use while no live series are found.
        """
        if not self._names:
            self._guessed = False
            return
        labels = self._override_labels.union(*self._names.values())
        try:
            ambiguous = {
                rule: label_binding.ambiguous_bindings(
                    rule, rule.mapping.bind(kinds), labels, kinds
                )
                for rule in self.rules
            }
            required, optional = self._probes(ambiguous)
            carriers: dict[_Probe, frozenset[str]] = {}
            whole = await self._query(required, carriers)
            whole &= await self._query(optional & _contested(ambiguous, carriers), carriers)
        except Exception as error:  # noqa: BLE001 (as for `relist`)
            self._note(_LIVE, error)
            self._guessed = not self._asked.issuperset(self._names)
            return
        self._note(_LIVE)
        self._asked, self._guessed = frozenset(self._names), False
        self._update_live(ambiguous, carriers, whole=whole)

    def _probes(self, ambiguous: _Ambiguous) -> tuple[set[_Probe], set[_Probe]]:
        """Return the probes to query, and those to query only if others found live series.

        The second set has those of resources of which only one binding is in use, which stays so
        until another is found. Nearly all series match them, so they are the expensive ones.
        """
        required: set[_Probe] = set()
        optional: set[_Probe] = set()
        for rule, resources in ambiguous.items():
            for resource, bindings in resources.items():
                candidates = {each.resource or each.namespace for each in bindings}
                in_use = {
                    self._live[rule].get((name, resource), ())
                    for name, labels in (self._names or {}).items()
                    if candidates & labels
                }
                for each in bindings:
                    probes = optional if in_use == {(each,)} else required
                    probes.add(each.probe_matchers())
        return required, optional - required

    async def _query(
        self, probes: Iterable[_Probe], carriers: dict[_Probe, frozenset[str]]
    ) -> bool:
        """Put the names of the live series that match each probe into `carriers`.

        Return whether all series were there to match.
        """
        ordered = sorted(probes)
        names = await self.lister.live(self.selector, ordered)
        carriers.update(zip(ordered, names.content, strict=True))
        return not names.partial

    def _update_live(
        self, ambiguous: _Ambiguous, carriers: Mapping[_Probe, frozenset[str]], *, whole: bool
    ) -> None:
        """Replace the bindings in use by those of live series; unless `whole`, only add to them."""
        names = dict(self._names or {})
        live: dict[CompiledRule, dict[tuple[str, GroupResource], _Bindings]] = {}
        for rule in self.rules:  # fewer than those of `ambiguous` if others were removed meanwhile
            resources = ambiguous[rule]
            last, current = self._live[rule], live.setdefault(rule, {})
            for resource, bindings in resources.items():
                for name, labels in tuple(names.items()):
                    kept = () if whole else last.get((name, resource), ())
                    carried = tuple(
                        each
                        for each in bindings
                        if name in carriers.get(each.probe_matchers(), ()) or each in kept
                    )
                    live_labels = {
                        label
                        for each in carried
                        for label in (each.resource, each.namespace)
                        if label
                    }
                    names[name] = labels | live_labels
                    if in_use := carried or last.get((name, resource)):
                        current[name, resource] = in_use
        self._names, self._live = names, live

    def _update(self, found: IndexedNames, exact: frozenset[str] | None) -> None:
        if found.exact:
            self._names, self._ended, self._last_indexed = found.names, frozenset(), {}
            return
        now = self._monotonic()
        known = self._names or {}
        if exact is not None:
            self._ended = frozenset(found.names.keys() - exact)
            known = {name: labels for name, labels in known.items() if name in exact}
        else:
            self._ended &= found.names.keys()
        new = {name: labels for name, labels in found.names.items() if name not in self._ended}
        last_indexed = {**self._last_indexed, **dict.fromkeys(found.names, now)}
        self._names = {
            name: labels
            for name, labels in {**known, **new}.items()
            if now - last_indexed.get(name, now) <= _ABSENT_SECONDS
        }
        self._last_indexed = {name: last_indexed.get(name, now) for name in self._names}

    async def _exact(self) -> frozenset[str] | None:
        """Return the exact names; None if the query is not due yet, fails or is incomplete."""
        start = self._monotonic()
        last = self._exact_queried
        if last is not None and start - last < _EXACT_PACE * self._exact_seconds:
            return None
        try:
            exact = await self.lister.exact(self.selector)
        except errors.BackendError as error:
            self._note(_EXACT, error)
            return None
        finally:
            self._exact_queried = self._monotonic()
            self._exact_seconds = self._exact_queried - start
        self._note(_EXACT)
        return exact

    def _note(self, what: tuple[str, str], error: Exception | None = None) -> None:
        """Log that an action begins to fail, or succeeds again."""
        action, consequence = what
        changed = self._conditions[action].becomes("fails" if error else "")
        if changed and error:
            defect = None if isinstance(error, (errors.BackendError, RulesError)) else error
            logger.warning(
                "%s: %s failed, %s: %s", self._where, action, consequence, error, exc_info=defect
            )
        elif changed:
            logger.info("%s: %s succeeds again", self._where, action)

    def _template_filter(self, kinds: Kinds) -> Callable[[str], bool] | None:
        """Return a predicate for labels that a template maps to a resource; None without one."""
        mappings = [
            rule.mapping.bind(kinds) for rule in self.rules if rule.config.resources.template
        ]
        if not mappings:
            return None
        return lambda label: any(mapping.associations((label,)) for mapping in mappings)


def _contested(ambiguous: _Ambiguous, carriers: Mapping[_Probe, frozenset[str]]) -> set[_Probe]:
    """Return all probes of the resources for which some probe found live series."""
    return {
        each.probe_matchers()
        for resources in ambiguous.values()
        for bindings in resources.values()
        if any(carriers.get(each.probe_matchers()) for each in bindings)
        for each in bindings
    }
