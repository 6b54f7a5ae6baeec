"""Builds what makes values of rules: relist, evaluation, causes, and what requests use of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NoReturn

from adapter import telemetry
from adapter.clients import detection
from adapter.clients.external_metrics import ExternalMetrics
from adapter.clients.prometheus import Prometheus
from adapter.server.api.groups.backend import Backend, Questions
from adapter.server.app.host import Host
from adapter.server.causes.collector import CauseCollector
from adapter.server.causes.evidence import Probes
from adapter.server.cluster.manifests import FileObjects
from adapter.server.cluster.objects import ClusterObjects
from adapter.server.evaluation.evaluation import Evaluation
from adapter.server.evaluation.forecasts import Forecasts
from adapter.server.evaluation.queries import QueryClient
from adapter.server.series.embedded import Embedded, Filling
from adapter.server.series.relist import Relist
from adapter.server.teams.reports import Reports
from rules.document.sources import DEFAULT, FILLING
from rules.ruleset import RuleSet

_REPLICAS_INTERVAL = 600.0
_RESERVE = 1.0
"""Seconds that a request may wait beyond a query, whose own error says more."""


class Values:
    """The relist, the evaluation of values, and the causes of missing ones."""

    def __init__(
        self,
        host: Host,
        ruleset: RuleSet,
        clients: Mapping[str, Prometheus],
        objects: ClusterObjects | FileObjects,
        embedded: Embedded | None = None,
    ) -> None:
        """Start the relist. `clients` are by source."""
        settings = host.settings
        self.relist = Relist(
            ruleset,
            clients,
            lambda: objects.kinds,
            interval=settings.relist.interval,
            max_age=settings.relist.max_age or settings.relist.interval,
            meter=telemetry.RelistMetrics(host.registry),
        )
        host.start("relist", self.relist.run())
        host.start("replicas", _count_replicas(self.relist, {*clients.values()}))
        queried: dict[str, QueryClient] = {**clients}
        if embedded is not None:
            queried[FILLING] = Filling(embedded)
        self.evaluation = Evaluation(
            queried,
            metrics=telemetry.EvaluationMetrics(host.registry),
            freshness=settings.values.query_freshness,
            intervals=embedded.intervals if embedded else {},
            allow_partial=settings.values.allow_partial_responses,
            timeout=max(each.query_seconds for each in clients.values()) + _RESERVE,
        )
        host.serving.push_async_callback(self.evaluation.close)
        self.forecasts = Forecasts()
        self.collector = CauseCollector(
            self.relist.labels,
            metrics=telemetry.CauseMetrics(host.registry),
            probes=Probes(
                lambda rule: clients[rule.config.source].for_team(rule.team).query,
                lambda: detection.report(clients[DEFAULT]),
            ),
        )
        host.start("cause log", self.collector.run())
        host.check("first-relist", lambda: _check_first_relist(self.relist))
        host.check("rules", self.relist.check)
        host.check("evaluation", self.evaluation.status)
        if ruleset.resource_rules:
            host.check("usage", self.evaluation.usage_status.check)

    def backend(
        self,
        host: Host,
        objects: ClusterObjects | FileObjects,
        fallback: ExternalMetrics | None,
        team_rules: Reports | None,
    ) -> Callable[[], Backend]:
        """Return the function that returns what requests use.

        It is the same object as long as the generation and the kinds are the same.
        """
        questions = Questions()
        host.lookups.add("questions", questions.cache)
        present: Backend | None = None

        def read() -> Backend:
            nonlocal present
            generation, kinds = self.relist.generation, objects.kinds
            if (
                present is None
                or present.generation is not generation
                or present.kinds is not kinds
            ):
                present = Backend(
                    generation=generation,
                    kinds=kinds,
                    objects=objects,
                    evaluation=self.evaluation,
                    collector=self.collector,
                    forecasts=self.forecasts,
                    questions=questions,
                    fallback=fallback,
                    team_rules=team_rules,
                    errors_for_empty_lists=host.settings.serving.errors_for_empty_lists,
                )
            return present

        return read

    async def adopt(self, changed: RuleSet) -> None:
        """Use other rules, and forget what was kept about those that are gone."""
        await self.relist.adopt(changed)
        present = self.relist.generation.rules
        self.evaluation.adopt(present)
        self.collector.adopt(present)


async def _count_replicas(relist: Relist, clients: Collection[Prometheus]) -> NoReturn:
    """Every ten minutes, count the servers behind one address, and return to the preferred one."""
    await relist.attempted.wait()
    while True:
        for client in clients:
            await client.count_replicas()
        await asyncio.sleep(_REPLICAS_INTERVAL)


def _check_first_relist(relist: Relist) -> None:
    if not relist.attempted.is_set():
        raise RuntimeError("the first relist is not finished yet")
