"""The backend of the present generation: what API groups use to answer a request."""

from __future__ import annotations

import functools
from dataclasses import replace

from adapter.clients.external_metrics import ExternalMetrics
from adapter.server.api.groups.group import Backend, Questions
from adapter.server.app.host import Host
from adapter.server.app.teams import Teams
from adapter.server.app.values import Values
from adapter.server.cluster.manifests import FileObjects
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.series.generation import Generation


class Backends:
    """Builds one backend for each generation, with a view for each team."""

    def __init__(
        self,
        host: Host,
        values: Values,
        objects: ClusterObjects | FileObjects,
        fallback: ExternalMetrics | None,
        team_rules: Teams | None,
    ) -> None:
        self._relist = values.relist
        self._parts = functools.partial(
            Backend,
            objects=objects,
            evaluation=values.evaluation,
            collector=values.collector,
            fallback=fallback,
            team_rules=team_rules.reports if team_rules else None,
            errors_for_empty_lists=host.settings.serving.errors_for_empty_lists,
        )
        self._questions = Questions()
        self._questions_of: dict[str, Questions] = {}
        """By the namespace of a team. A relist that finds the same series keeps what is in them."""
        self._of = functools.lru_cache(maxsize=1)(self._build)
        host.lookups.add("questions", self._questions.cache)

    def present(self) -> Backend:
        """Return the backend of the present generation, the same object until the next one."""
        return self._of(self._relist.generation)

    def _build(self, generation: Generation) -> Backend:
        backend = self._parts(generation=generation, questions=self._questions)
        self._questions_of = {
            namespace: self._questions_of.get(namespace) or Questions()
            for namespace in generation.teams
        }
        views = {
            namespace: replace(backend, generation=view, questions=self._questions_of[namespace])
            for namespace, view in generation.teams.items()
        }
        return replace(backend, teams=views)
