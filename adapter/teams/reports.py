"""Writes to each ConfigMap with rules what became of them: an annotation, and Events on problems.

Discovery has no namespaces, so it does not list metrics of teams: the annotation does.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NoReturn

from adapter import errors
from adapter.background import Condition
from adapter.clients.events import Event, EventWriter
from adapter.clients.kubernetes import Kube
from adapter.series.generation import Generation
from adapter.teams.config_maps import STATUS, Watched
from adapter.teams.rules import TeamRules
from rules import teams
from rules.quoting import counted, shorten
from rules.ruleset import CompiledRule
from rules.teams import Metric

log = logging.getLogger(__name__)

INTERVAL = 5.0
"""Seconds between two looks."""
REFUSED, WITHOUT_EFFECT = "RulesRefused", "RulesWithoutEffect"
_MAX_METRICS = 20
"""Metrics that the annotation names."""
_MAX_STATUS = 2000
_FORBIDDEN, _GONE = 403, 404


class Reports:
    """Reports while `run` runs."""

    def __init__(
        self,
        rules: TeamRules,
        generation: Callable[[], Generation],
        kube: Kube,
    ) -> None:
        self._rules = rules
        self._generation = generation
        self._kube = kube
        self._events = EventWriter(kube, "ConfigMaps")
        self._condition = Condition()
        self._written: dict[str, str] = {}
        """Uid of a ConfigMap -> the status that was last written, or found."""

    async def run(self) -> NoReturn:
        """Write what has changed, every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Write once what has changed."""
        generation, present = self._generation(), set()
        for each in self._rules.watched():
            present.add(each.uid)
            reason, status = self._status(each, generation)
            # Only a change of our own: another replica, or another release, may word it otherwise.
            if status and self._written.get(each.uid, each.status) != status:
                await self._annotate(each, status)
                if reason:
                    await self._tell(each, reason, status)
            if status:
                self._written[each.uid] = status
        self._written = {uid: text for uid, text in self._written.items() if uid in present}

    def _status(self, each: Watched, generation: Generation) -> tuple[str, str]:
        """Return the reason of an Event, if one is due, and the status; empty if not known yet."""
        key, loaded = str(each.config_map), self._rules.loaded
        if (problem := loaded.refused.get(key)) is not None:
            kept = "; the rules of before stay in use" if key in loaded.kept else ""
            return REFUSED, shorten(f"refused: {problem}{kept}", _MAX_STATUS)
        view = generation.of(each.config_map.namespace)
        rules = [rule for rule in view.ruleset.all if _is_of(rule, each)]
        if not rules:
            return "", ""
        metrics = [metric for metric in teams.metrics(view.catalog) if metric.rule in rules]
        problems = list(_problems(rules, metrics, view))
        names = sorted(metric.name for metric in metrics if not metric.hidden)
        named = ", ".join(names[:_MAX_METRICS])
        more = f" and {len(names) - _MAX_METRICS} more" if len(names) > _MAX_METRICS else ""
        in_use = f"{counted(len(rules), 'rule')} in use; metrics: {named or 'none yet'}{more}"
        status = "; ".join((*problems, in_use))
        return WITHOUT_EFFECT if problems else "", shorten(status, _MAX_STATUS)

    async def _annotate(self, each: Watched, status: str) -> None:
        place = each.config_map
        path = f"/api/v1/namespaces/{place.namespace}/configmaps/{place.name}"
        try:
            await self._kube.patch(path, {"metadata": {"annotations": {STATUS: status}}})
        except errors.BackendError as error:
            code = error.status if isinstance(error, errors.Refused) else None
            cure = "; grant patch of configmaps" if code == _FORBIDDEN else ""
            if code != _GONE and self._condition.becomes(type(error).__name__):
                log.warning("ConfigMaps with rules cannot be annotated%s: %s", cure, error)
        else:
            self._condition.becomes("")

    async def _tell(self, each: Watched, reason: str, status: str) -> None:
        """Write an Event, unless it was written before, also by another replica."""
        place = each.config_map
        digest = hashlib.sha256(f"{each.uid}/{status}".encode()).hexdigest()
        event = Event(
            name=f"{place.name}.{digest[:16]}",
            api_version="v1",
            kind="ConfigMap",
            namespace=place.namespace,
            object_name=place.name,
            uid=each.uid,
            reason=reason,
            message=status,
            warning=True,
        )
        with self._events.reporting():
            await self._events.create(event)


def _is_of(rule: CompiledRule, each: Watched) -> bool:
    return rule.team is not None and rule.config.where.path.startswith(f"{each.config_map}: ")


def _problems(
    rules: Sequence[CompiledRule], metrics: Iterable[Metric], view: Generation
) -> Iterator[str]:
    for rule in rules:
        if problem := teams.too_wide(rule, view.listings):
            yield problem
    hidden: dict[CompiledRule, list[str]] = {}
    for each in metrics:
        if each.hidden:
            hidden.setdefault(each.rule, []).append(each.name)
    for rule, names in hidden.items():
        yield (
            f"{rule.config.where}: a rule of all namespaces has {', '.join(sorted(names))}, and "
            "comes first: choose another name"
        )
