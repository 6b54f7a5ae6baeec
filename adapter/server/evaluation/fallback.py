"""Fallback: what is queried after a merged query failed. Pure; times are in seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from adapter import errors
from rules.quoting import shorten
from rules.ruleset import CompiledRule
from rules.selectors.selectors import Selector

log = logging.getLogger(__name__)

_DEMOTION = 600.0
"""Seconds for which the requests of a rule are queried separately after a merged query failed."""
_TIMEOUT_DEMOTION = 60.0
"""The same after a timeout that does not follow another one: Prometheus may be at fault."""
_FAULT_OF_QUERY = frozenset({400, 413, 414, 422})
"""Status codes that refuse this query; with others, Prometheus or a proxy refuses every query."""

_MAX_QUOTED = 200


class Demoted:
    """Rules whose requests are queried separately for a while."""

    def __init__(self) -> None:
        self._until: dict[CompiledRule, float] = {}

    def add(self, rule: CompiledRule, until: float) -> None:
        """Demote a rule."""
        self._until[rule] = until

    def retain(self, rules: Iterable[CompiledRule]) -> None:
        """Keep only these rules, with their present places in the files."""
        self._until = {rule: self._until[rule] for rule in rules if rule in self._until}

    def has(self, rule: CompiledRule, now: float) -> bool:
        """Return whether a rule is demoted."""
        return now < self._until.get(rule, 0.0)

    def rules(self, now: float) -> tuple[str, ...]:
        """Return the places of the demoted rules."""
        return tuple(str(rule.config.where) for rule, until in self._until.items() if now < until)


class Fallback:
    """Reaction to the failures of the merged queries of one shared query.

    If a query without names returns too much, names are matched, else the rule is demoted. With a
    metric selector, which may be the cause, only the requests with this selector are demoted. All
    other errors are those of Prometheus: callers share them for `error_ttl` seconds.
    """

    def __init__(self, rule: CompiledRule, demoted: Demoted, *, selector: Selector) -> None:
        self.rule = rule
        self._demoted = demoted
        self._selector = selector
        self._demoted_until = 0.0
        self._error: errors.BackendError | None = None
        self._error_until = 0.0
        self._narrow_until = 0.0
        self._timed_out = False

    def error(self, now: float) -> errors.BackendError | None:
        """Return the error of the last merged query while callers share it."""
        return self._error if now < self._error_until else None

    def wide(self, now: float) -> bool:
        """Return whether a query may select objects of all names."""
        return now >= self._narrow_until

    def demoted(self, now: float) -> bool:
        """Return whether requests must be queried separately."""
        return now < self._demoted_until or self._demoted.has(self.rule, now)

    def succeeded(self) -> None:
        """Forget the last failure."""
        self._error, self._error_until, self._timed_out = None, 0.0, False

    def failed(
        self, error: errors.BackendError, *, wide: bool, now: float, error_ttl: float
    ) -> None:
        """Decide what is queried next; `wide` if the query matched no names."""
        timed_out = isinstance(error, errors.TimedOut)
        too_much = timed_out or isinstance(error, errors.TooLarge)
        refused = isinstance(error, errors.Refused) and error.status in _FAULT_OF_QUERY
        if timed_out or not (too_much or refused):
            self._error, self._error_until = error.without_frames(), now + error_ttl
        seconds = _TIMEOUT_DEMOTION if timed_out and not self._timed_out else _DEMOTION
        self._timed_out = timed_out
        if too_much and wide:
            self._narrow_until = now + seconds
            log.warning(
                "%s: the query for all objects failed, so names are matched for %d min: %s",
                self._subject,
                seconds // 60,
                error,
            )
        elif too_much or refused:
            self._demote(now=now, until=now + seconds, reason=str(error))

    def cannot_merge(self, reason: str, now: float) -> None:
        """Demote the requests, because no merged query can be rendered."""
        until = self._narrow_until if now < self._narrow_until else now + _DEMOTION
        self._demote(now=now, until=until, reason=reason)

    def _demote(self, *, now: float, until: float, reason: str) -> None:
        if self._selector.empty:
            self._demoted.add(self.rule, until)
        else:
            self._demoted_until = until
        log.warning(
            "%s: the query for several requests failed, so they are queried separately for %d "
            "min: %s",
            self._subject,
            round((until - now) / 60),
            reason,
        )

    @property
    def _subject(self) -> str:
        where = str(self.rule.config.where)
        if self._selector.empty:
            return where
        selector = shorten(str(self._selector), _MAX_QUOTED)
        return f"{where} with the metric selector {selector!r}"
