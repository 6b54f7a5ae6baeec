"""What a team sees of its ConfigMaps: their states, rules, metrics and problems. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.server.series.generation import Generation
from adapter.server.teams.config_maps import WatchedConfigMap
from adapter.server.teams.rules import ConfigMapState
from rules import teams
from rules.quoting import counted, listed, shorten_middle
from rules.ruleset import CompiledRule
from rules.teams import TeamMetric

_KIND, _API_VERSION = "TeamRules", "team-rules.gpu-metrics-adapter/v1"
_MAX_METRICS, _MAX_LISTED = 1000, 200
"""Names of metrics that a document has of one ConfigMap, and ConfigMaps of a namespace."""
_MAX_PROBLEMS, _MAX_PROBLEM = 20, 1000
_MAX_STATUS = 2000
"""Names of metrics in the annotation, and its characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapReport:
    """What became of one ConfigMap."""

    watched: WatchedConfigMap
    state: ConfigMapState
    rules: int
    metrics: Sequence[str]
    """The served ones, with their resources."""
    hidden: Sequence[str]
    """Those instead of which the metrics of other rules are served."""
    problems: Sequence[str]

    @property
    def status(self) -> str:
        """The same in a line; empty if there is nothing to say yet."""
        if self.state == ConfigMapState.REFUSED:
            return shorten_middle(f"refused: {'; '.join(self.problems)}", _MAX_STATUS)
        if self.state == ConfigMapState.UNREAD or not self.rules:
            return "; ".join(self.problems)
        named = listed(self.metrics) or "none yet"
        in_use = f"{counted(self.rules, 'rule')} in use; metrics: {named}"
        return shorten_middle("; ".join((*self.problems, in_use)), _MAX_STATUS)


def of(
    states: Iterable[tuple[WatchedConfigMap, str | None]], view: Generation
) -> Iterator[ConfigMapReport]:
    """Yield a report on each ConfigMap of a namespace that sees `view`.

    `states` are as of `TeamRules.states`.
    """
    own: dict[str, list[CompiledRule]] = {}
    for rule in view.ruleset.all:
        if rule.team is not None:
            own.setdefault(_config_map(rule), []).append(rule)
    metrics: dict[str, list[TeamMetric]] = {}
    for metric in teams.metrics(view.catalog):
        metrics.setdefault(_config_map(metric.rule), []).append(metric)
    for watched, refusal in states:
        key = "/".join(watched.key)
        rules = own.get(key, ()) if refusal == "" else ()
        found = metrics.get(key, ()) if rules else ()
        problem = refusal or ("" if refusal is None else view.problem)
        problems = [problem] if problem else list(_problems(rules, found, view))
        state = ConfigMapState.REFUSED if refusal else ConfigMapState.IN_USE
        yield ConfigMapReport(
            watched=watched,
            state=ConfigMapState.UNREAD if refusal is None else state,
            rules=len(rules),
            metrics=sorted(each.name for each in found if not each.hidden),
            hidden=sorted(each.name for each in found if each.hidden),
            problems=[shorten_middle(each, _MAX_PROBLEM) for each in problems],
        )


def document(
    namespace: str, reports: Sequence[ConfigMapReport], *, count: int, pending: str
) -> Mapping[str, Any]:
    """Return the document about a namespace that has `count` ConfigMaps.

    `pending` says what is not loaded yet; empty if everything is.
    """
    shown = sorted(reports[:_MAX_LISTED], key=lambda each: each.watched.key)
    return {
        "kind": _KIND,
        "apiVersion": _API_VERSION,
        "metadata": {"namespace": namespace},
        **({"pending": pending} if pending else {}),
        "count": count,
        "items": [
            {
                "configMap": each.watched.name,
                "state": each.state,
                "rules": each.rules,
                "metrics": each.metrics[:_MAX_METRICS],
                "hiddenMetrics": each.hidden[:_MAX_METRICS],
                "problems": each.problems[:_MAX_PROBLEMS],
            }
            for each in shown
        ],
    }


def _config_map(rule: CompiledRule) -> str:
    """Return the namespace and the name of the ConfigMap that a rule of a team is from."""
    return rule.config.where.path.partition(": ")[0]


def _problems(
    rules: Sequence[CompiledRule], metrics: Iterable[TeamMetric], view: Generation
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
