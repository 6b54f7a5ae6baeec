"""Lists for `rules` the rules of files, or those that adapters in the cluster use."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence

from adapter import errors, settings
from adapter.cli import output
from adapter.cli.commands import check_inputs, deployments, without_log
from adapter.cli.doctor.client import ApiClient, connected
from adapter.clients import detection, sources
from adapter.settings.kubectl import KubectlSettings
from rules import ruleset, teams
from rules.document import manifests
from rules.document.found import Found
from rules.document.where import Where
from rules.errors import ConfigError, UnreadableError
from rules.findings import State
from rules.hpa import reading
from rules.quoting import escaped
from rules.ruleset import RuleSet

_COLUMNS = ("source", "team", "api", "metric", "series")
_APIS = {"rules": "custom", "externalRules": "external"}


def run(
    named: Sequence[settings.RulesSource],
    cluster: KubectlSettings,
    prometheus: settings.PrometheusSettings | None,
    *,
    namespace: str,
    form: str,
) -> int:
    """Print the rules; return 0, or 1 if they are invalid or cannot be read.

    Without `named` sources, they are those of the cluster, or of one `namespace` of it.
    """
    try:
        with without_log():
            notes, rows = asyncio.run(read(named, cluster, prometheus, namespace))
    except (ConfigError, UnreadableError, errors.BackendError, errors.StartError) as error:
        print(escaped(str(error), keep="\n"), file=sys.stderr)
        return 1
    if form != "text":
        output.write({"notes": notes, "rules": rows}, form)
        return 0
    for note in notes:
        print(escaped(note))
    heads = [name.upper() for name in _COLUMNS]
    print(*output.table([heads, *([row[name] for name in _COLUMNS] for row in rows)]), sep="\n")
    return 0


async def read(
    named: Sequence[settings.RulesSource],
    cluster: KubectlSettings,
    prometheus: settings.PrometheusSettings | None,
    namespace: str,
) -> tuple[list[str], list[dict[str, str]]]:
    """Return what was read, and a row for each rule; the console shows them, too.

    Arguments are as for `run`. Raises ConfigError, UnreadableError, BackendError, StartError.
    """
    if named:
        return await _rows(named, None, prometheus)
    async with connected(cluster) as client:
        documents = await client.run(deployments.read(ours=True, namespace=namespace))
        inside = manifests.find(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}).encode(),
            file="cluster",
        )
        if inside is None or not inside.arguments:
            where = f"namespace {namespace}" if namespace else "the cluster"
            raise UnreadableError(f"{where} has no Deployment of gpu-metrics-adapter; name a FILE")
        used = [check_inputs.flags(each)[0] for each in inside.arguments]
        automatic = any(
            each and (not each.rules.sources or settings.AUTO in each.rules.sources)
            for each in used
        )
        notes, rows = await _rows([settings.AUTO] * automatic, inside, prometheus)
        for each in used:
            if each and each.rules.team_selector:
                rows += await _of_teams(client, each.rules, notes)
    return notes, rows


async def _rows(
    named: Sequence[settings.RulesSource],
    inside: Found | None,
    prometheus: settings.PrometheusSettings | None,
) -> tuple[list[str], list[dict[str, str]]]:
    if settings.AUTO in named and prometheus is not None:
        async with sources.connect_prometheus(prometheus) as connection:
            detected = (await detection.report(connection)).presets
        named = [
            *(each for each in named if each != settings.AUTO),
            *(settings.RulesSource(kind="preset", name=each) for each in detected),
        ]
    inputs = check_inputs.read(named, inside)
    if failures := [each for each in inputs.problems if each.state is State.FAILURE]:
        raise ConfigError(failures)
    notes = [*inputs.notes, *map(str, inputs.problems)]
    return notes, _documents(ruleset.compile(inputs.parsed))


async def _of_teams(
    client: ApiClient, flags: settings.RulesSettings, notes: list[str]
) -> list[dict[str, str]]:
    """Return rows for the rules in ConfigMaps of teams; add to `notes` which are refused."""
    selector = {"labelSelector": flags.team_selector}
    listed = await client.run(reading.get("/api/v1/configmaps", **selector))
    rows = []
    for each in listed["items"] or ():
        config_map = teams.read(each)
        try:
            rows += _documents(teams.load(config_map, label=flags.team_label))
        except ConfigError as error:
            notes.append(f"ConfigMap {config_map} is refused: {error.problems[0].sentence}")
    return rows


def _documents(rules: RuleSet) -> list[dict[str, str]]:
    rows = [
        _row(
            rule.config.where,
            api=_APIS[rule.section],
            metric=rule.config.name.as_ or rule.config.name.matches or rule.pinned_series or "",
            series=rule.config.series_query,
            team=rule.team.namespace if rule.team else "",
        )
        for rule in (*rules.rules, *rules.external)
    ]
    if found := rules.resource_rules:
        for metric, resource in (("cpu", found.cpu), ("memory", found.memory)):
            query = resource.config.container_query
            rows.append(_row(resource.config.where, api="resource", metric=metric, series=query))
    return rows


def _row(where: Where, *, api: str, metric: str, series: str, team: str = "") -> dict[str, str]:
    source = f"{where.place.file}:{where.place.line}"
    return {"source": source, "team": team, "api": api, "metric": metric, "series": series}
