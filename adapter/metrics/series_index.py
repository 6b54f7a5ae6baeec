"""What is known of the series of one selector, and how that knowledge ages.

A `SeriesIndex` belongs to the rules that share a selector. It asks through a Lister and keeps its
last good answer whatever fails; a failure is logged once when it begins and once when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from adapter import errors, telemetry
from adapter.background import gather_or_cancel
from adapter.metrics.lister import IndexedNames, Lister, LiveNames
from rules import promql
from rules.errors import RulesError
from rules.kinds import GroupResource, Kinds
from rules.query import label_binding
from rules.query.catalog import Listing, Series
from rules.query.label_binding import LabelBinding
from rules.ruleset import CompiledRule

logger = logging.getLogger(__name__)

_EXACT_PACE = 100
"""The exact question is asked not more often than this many times its own duration."""

_Choice = dict[tuple[str, GroupResource], tuple[LabelBinding, ...]]
_Competing = Mapping[int, Mapping[GroupResource, tuple[LabelBinding, ...]]]
"""By rule: the labellings of each resource for which labels compete."""
_Matchers = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleState:
    """How it stands with the listing of one rule. Times are Unix seconds."""

    index: int
    rule: str
    """`rules[3]`"""
    selector: str
    names: int
    """Series names in the last good listing, before the rule's filters."""
    attempted: float | None
    succeeded: float | None
    """When the last good listing was asked for."""
    seconds: float
    """What the last attempt took."""
    error: str
    """Why the last attempt failed; empty when it did not. For operators, not for callers."""
    remarks: tuple[str, ...]
    """What is not as it should be although the rule was listed."""


class SeriesIndex:
    """Knows the series of one selector, as well as its Prometheus lets it."""

    def __init__(
        self,
        selector: str,
        rules: tuple[CompiledRule, ...],
        lister: Lister,
        *,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        meter: telemetry.Relists | None = None,
    ) -> None:
        self.selector = selector
        self._rules = rules
        self._places = {rule.index: _place(rule) for rule in rules}
        self._pins = {
            rule.index: name
            for rule in rules
            if (name := promql.bare_name(rule.config.series_query)) is not None
        }
        self._overrides = frozenset(
            override.label for rule in rules for override in rule.config.resources.overrides
        )
        self._lister = lister
        self._clock = clock
        self._monotonic = monotonic
        self._meter = meter

        self._names: Mapping[str, frozenset[str]] | None = None
        """The last good answer: names with labels; None before the first."""
        self._ended: frozenset[str] = frozenset()
        """Names that the index still has and the exact question no longer found."""
        self._asked_exactly: float | None = None
        self._exact_seconds = 0.0
        self._live: dict[int, _Choice] = {rule.index: {} for rule in rules}

        self._attempted: float | None = None
        self._succeeded: float | None = None
        self._seconds = 0.0
        where = ", ".join(self._places.values())
        self._unlisted = Degraded(where, "series are not listed, known metrics stay as they are")
        self._inexact = Degraded(where, "metrics that ended may stay listed")
        self._unseen = Degraded(where, "the labels to ask by stay as they were chosen last")

    @property
    def complete(self) -> bool:
        """Whether the last good listing has every name that rules name, and at least one."""
        names = self._names or {}
        return bool(names) and all(name in names for name in self._pins.values())

    @property
    def states(self) -> tuple[RuleState, ...]:
        remarks = tuple(str(each) for each in (self._inexact, self._unseen) if each.error)
        return tuple(
            RuleState(
                index=rule.index,
                rule=self._places[rule.index],
                selector=rule.config.series_query,
                names=len(self._of(rule.index)),
                attempted=self._attempted,
                succeeded=self._succeeded,
                seconds=self._seconds,
                error=self._unlisted.error,
                remarks=remarks,
            )
            for rule in self._rules
        )

    def listings(self) -> dict[int, Listing]:
        """What is known, by rule; nothing before the first success."""
        if self._names is None:
            return {}
        return {
            index: Listing(series=self._of(index), live=dict(choice))
            for index, choice in self._live.items()
        }

    def _of(self, index: int) -> tuple[Series, ...]:
        """What was found of one rule's series: of the family's, if the rule names only one."""
        pinned = self._pins.get(index)
        return tuple(
            Series(name=name, labels=labels)
            for name, labels in sorted((self._names or {}).items())
            if pinned in {None, name}
        )

    async def relist(self, kinds: Kinds) -> bool:
        """Ask for names and labels, and look. Returns whether the names were found."""
        self._attempted, began = self._clock(), self._monotonic()
        try:
            found = await self._lister.index(self.selector, self._overrides, self._fits(kinds))
        except (errors.BackendError, RulesError) as e:
            self._unlisted.begins(e)
            self._tell_meter(type(e).__name__)
            return False
        finally:
            self._seconds = self._monotonic() - began
        exact = None if found.exact else await self._exact()
        self._take(found, exact)
        await self.refresh_live_labels(kinds)
        self._succeeded, self._seconds = self._attempted, self._monotonic() - began
        self._unlisted.ends()
        self._tell_meter("")
        return True

    async def refresh_live_labels(self, kinds: Kinds) -> None:
        """Ask which of several labels for one resource live series carry now.

        Labels that the last relist did not see count as well: a fleet may have switched since.
        Where nothing live is found, the last choice stays.
        """
        if not self._names:
            return
        present = self._overrides.union(*self._names.values())
        ambiguous_bindings = {
            rule.index: label_binding.ambiguous_bindings(
                rule, rule.mapping.bind(kinds), present, kinds
            )
            for rule in self._rules
        }
        needed, spared = self._probes(ambiguous_bindings)
        bearers: dict[_Matchers, frozenset[str]] = {}
        try:
            await self._ask(needed, bearers)
            await self._ask(spared & _contested(ambiguous_bindings, bearers), bearers)
        except (errors.BackendError, RulesError) as e:
            self._unseen.begins(e)
            return
        self._unseen.ends()
        self._choose(ambiguous_bindings, bearers)

    def _probes(self, ambiguous_bindings: _Competing) -> tuple[set[_Matchers], set[_Matchers]]:
        """What to ask now, and what only if something else turns out to be live.

        A labelling by which all is asked already stays the choice whether it is found or not, as
        long as no other is; and nearly all series bear it, which makes the question dear.
        """
        needed: set[_Matchers] = set()
        spared: set[_Matchers] = set()
        for index, resources in ambiguous_bindings.items():
            for resource, bindings in resources.items():
                candidates = {x.resource or x.namespace for x in bindings}
                choices = {
                    self._live[index].get((name, resource), ())
                    for name, labels in (self._names or {}).items()
                    if candidates & labels
                }
                for each in bindings:
                    (spared if choices == {(each,)} else needed).add(each.probe_matchers())
        return needed, spared - needed

    async def _ask(
        self, probes: Iterable[_Matchers], bearers: dict[_Matchers, frozenset[str]]
    ) -> None:
        ordered = sorted(probes)
        answers = await gather_or_cancel(self._lister.live(self.selector, each) for each in ordered)
        bearers.update(zip(ordered, answers, strict=True))

    def _choose(
        self,
        ambiguous_bindings: _Competing,
        bearers: Mapping[_Matchers, frozenset[str]],
    ) -> None:
        names = dict(self._names or {})
        live: dict[int, _Choice] = {}
        for index, resources in ambiguous_bindings.items():
            before, choice = self._live[index], live.setdefault(index, {})
            for resource, bindings in resources.items():
                for name, labels in tuple(names.items()):
                    borne = tuple(
                        x for x in bindings if name in bearers.get(x.probe_matchers(), ())
                    )
                    carried = {x.resource for x in borne} | {x.namespace for x in borne}
                    names[name] = labels.union(carried - {""})
                    if chosen := borne or before.get((name, resource)):
                        choice[name, resource] = chosen
        self._names, self._live = names, live

    def _take(self, found: IndexedNames, exact: LiveNames | None) -> None:
        known = self._names or {}
        if found.exact:
            self._names, self._ended = found.names, frozenset()
            return
        if exact and exact.whole:
            self._ended = frozenset(found.names.keys() - exact.names)
            known = {name: labels for name, labels in known.items() if name in exact.names}
        else:
            self._ended &= found.names.keys()
        new = {name: labels for name, labels in found.names.items() if name not in self._ended}
        self._names = {**known, **new}

    async def _exact(self) -> LiveNames | None:
        """The exact names, if it is time to ask for them and they can be had."""
        began = self._monotonic()
        asked = self._asked_exactly
        if asked is not None and began - asked < _EXACT_PACE * self._exact_seconds:
            return None
        try:
            exact = await self._lister.exact(self.selector)
        except errors.BackendError as e:
            self._inexact.begins(e)
            return None
        finally:
            self._asked_exactly = self._monotonic()
            self._exact_seconds = self._asked_exactly - began
        self._inexact.ends()
        return exact

    def _fits(self, kinds: Kinds) -> Callable[[str], bool] | None:
        """Whether a label's name stands for a resource by a template; None without templates."""
        mappings = [
            rule.mapping.bind(kinds) for rule in self._rules if rule.config.resources.template
        ]
        if not mappings:
            return None
        return lambda label: any(mapping.carried((label,)) for mapping in mappings)

    def _tell_meter(self, failure: str) -> None:
        for index, rule in self._places.items() if self._meter else ():
            assert self._meter
            if failure:
                self._meter.failed(rule, outcome=failure)
            else:
                at = self._succeeded or 0.0
                self._meter.listed(rule, names=len(self._of(index)), at=at)


class Degraded:
    """One thing that can be wrong with a family, told when it begins and when it ends."""

    def __init__(self, where: str, consequence: str) -> None:
        self.error = ""
        self._where = where
        self._consequence = consequence

    def __str__(self) -> str:
        return f"{self._consequence}: {self.error}"

    def begins(self, error: Exception) -> None:
        news = not self.error
        self.error = str(error) or type(error).__name__
        if news:
            logger.warning("%s: %s", self._where, self)

    def ends(self) -> None:
        if self.error:
            logger.info("%s: again as it should be; it was: %s", self._where, self)
        self.error = ""


def _contested(
    ambiguous_bindings: _Competing, bearers: Mapping[_Matchers, frozenset[str]]
) -> set[_Matchers]:
    """The probes of all labellings that stand beside one that series were found to bear."""
    return {
        each.probe_matchers()
        for resources in ambiguous_bindings.values()
        for bindings in resources.values()
        if any(bearers.get(each.probe_matchers()) for each in bindings)
        for each in bindings
    }


def _place(rule: CompiledRule) -> str:
    return rule.config.where.path or f"{rule.section}[{rule.index}]"
