"""Writes what became of ConfigMaps with rules: Events on problems and, if wanted, an annotation.

Discovery has no namespaces, so it does not list metrics of teams: `document` has them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from adapter.background import guarded
from adapter.clients.events import EventWriter, Failures, event_name
from adapter.clients.kubernetes import Kube
from adapter.clients.limits import Allowances
from adapter.server.series.generation import Generation
from adapter.server.teams import config_maps, report
from adapter.server.teams.config_maps import STATUS
from adapter.server.teams.report import ConfigMapReport
from adapter.server.teams.rules import ConfigMapState, TeamRules
from rules.findings import Finding

INTERVAL = 5.0
"""Seconds between two comparisons with what was written."""
_RULES_REFUSED, _RULES_WITHOUT_EFFECT = "RulesRefused", "RulesWithoutEffect"
_BURST, _SECONDS = 20, 60.0
"""Of Events, and of annotations, of one namespace: others do not wait for them. What is not written
is written later, in the words that are right then."""
_NUMBER = re.compile(r"\d+")


class Reports:
    """Reports on `rules`, also while `run` does not run. `kube` writes nothing else."""

    def __init__(
        self, rules: TeamRules, generation: Callable[[], Generation], kube: Kube, *, annotate: bool
    ) -> None:
        self._rules = rules
        self._generation = generation
        self._kube = kube
        self._annotates = annotate
        self._events = EventWriter(kube, "ConfigMaps")
        self._annotations = Failures(
            "ConfigMaps with rules cannot be annotated", "patch of configmaps"
        )
        self._allowances: Allowances[tuple[str, str]] = Allowances(_BURST, _SECONDS)
        self._seen: tuple[object, int] = None, -1
        """The catalog, and the revision of the rules, of which everything is written."""
        self._told: dict[str, bytes] = {}
        """Uid of a ConfigMap -> digest of the problem of its last Event."""
        self._written: dict[str, bytes] = {}
        """Uid of a ConfigMap -> digest of the annotation that was last written, or was there."""

    async def run(self) -> NoReturn:
        """Write what has changed, every few seconds, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            await self.look()

    async def look(self) -> None:
        """Write once what has changed, for one namespace after the other."""
        generation, revision = self._generation(), self._rules.revision
        if self._seen == (generation.catalog, revision):
            return
        present, complete = set[str](), True
        for namespace in tuple(self._rules.namespaces):
            with guarded(namespace, "the states of its ConfigMaps cannot be reported"):
                for each in await self._of(namespace, generation.of(namespace)):
                    present.add(each.watched.uid)
                    with guarded("/".join(each.watched.key), "its state cannot be reported"):
                        complete &= await self._write(each)
        for known in (self._told, self._written):
            for uid in known.keys() - present:
                del known[uid]
        if complete:
            self._seen = generation.catalog, revision

    def pending(self, namespace: str) -> Finding | None:
        """Return the cause if rules of the namespace are not loaded yet; None if they are."""
        return self._rules.pending(namespace)

    def causes(self, namespace: str) -> tuple[Finding, ...]:
        """Return why the namespace may lack a metric."""
        return self._rules.causes(namespace)

    async def document(self, namespace: str, view: Generation) -> Mapping[str, Any]:
        """Return the document about the rules of a namespace, which sees `view`."""
        cause = self._rules.pending(namespace)
        pending = "" if cause is None else cause.sentence
        return report.document(
            namespace,
            await self._of(namespace, view),
            count=self._rules.count(namespace),
            pending=pending,
        )

    async def _of(self, namespace: str, view: Generation) -> Sequence[ConfigMapReport]:
        states = self._rules.states(namespace)
        # In a thread: 100 rules of 100 series have 20 000 metrics.
        return await asyncio.to_thread(lambda: list(report.of(states, view)))

    async def _write(self, each: ConfigMapReport) -> bool:
        """Write an Event and the annotation, if they are due; return whether nothing is left."""
        if each.state == ConfigMapState.UNREAD:
            return True
        event = await self._tell(each) if each.problems else True
        if not self._annotates:
            return event
        return await self._annotate(each) and event

    async def _annotate(self, each: ConfigMapReport) -> bool:
        uid, status = each.watched.uid, each.status
        digest = config_maps.digest(status)
        # The present annotation counts only the first time: replicas of two releases, which word it
        # differently, would replace each other's text again and again.
        if not status or self._written.get(uid, each.watched.status) == digest:
            return True
        if not self._allowances.take((STATUS, each.watched.namespace)):
            return False
        with self._annotations.reporting() as writing:
            document = {"metadata": {"annotations": {STATUS: status}}}
            await self._kube.patch(each.watched.path, document)
        if not writing.failed:
            self._written[uid] = digest
        return not writing.failed

    async def _tell(self, each: ConfigMapReport) -> bool:
        """Write an Event, unless it was written before, also by another replica."""
        watched, (namespace, name) = each.watched, each.watched.key
        reason = _RULES_REFUSED if each.state == ConfigMapState.REFUSED else _RULES_WITHOUT_EFFECT
        # Without numbers: how many series there are changes with each relist.
        worded = _NUMBER.sub("", "; ".join(each.problems))
        digest = config_maps.digest(watched.uid, reason, worded)
        if self._told.get(watched.uid) == digest:
            return True
        if not self._allowances.take((reason, namespace)):
            return False
        about = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "namespace": namespace,
            "name": name,
            "uid": watched.uid,
        }
        with self._events.reporting() as writing:
            event = event_name(name, digest.hex())
            await self._events.create(
                event, about, reason=reason, message=each.status, warning=True
            )
        if not writing.failed:
            self._told[watched.uid] = digest
        return not writing.failed
