"""A metric's rules as a document, from which another program plans the same queries.

Pure. `?explain=true` has the document. Only the keys that decide about queries and values are in
it, in the form of a rules file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from rules import ruleset
from rules.document import config
from rules.document.sources import DEFAULT
from rules.errors import ConfigError, PlanError
from rules.kinds import PODS, GroupResource
from rules.query.catalog import Entry, ExternalEntry, Source, Step
from rules.query.label_binding import LabelBinding
from rules.ruleset import Team

Document = Mapping[str, Any]


def document(entry: Entry | ExternalEntry) -> Document:
    """Return the document of a metric."""
    external = isinstance(entry, ExternalEntry)
    steps: Iterable[Step] = (entry.step,) if isinstance(entry, ExternalEntry) else entry.steps
    return {
        "metric": entry.metric,
        "external": external,
        "namespaced": entry.namespaced,
        "ofPods": isinstance(entry, Entry) and entry.pods is not None,
        "steps": [_step(each) for each in steps],
    }


def read(document: Document, resource: GroupResource = PODS) -> Entry | ExternalEntry:
    """Return the metric of a document; `resource` is that of its objects.

    The series of its rules are those that the adapter found. Raises PlanError.
    """
    try:
        external = bool(document["external"])
        sources = tuple(_source(each, external=external) for each in document["steps"])
        metric, namespaced = str(document["metric"]), bool(document["namespaced"])
        if external:
            return ExternalEntry(metric=metric, namespaced=namespaced, source=sources[0])
        entry = Entry(metric=metric, resource=resource, namespaced=namespaced, sources=sources)
        if document["ofPods"]:
            return replace(entry, pods=replace(entry, resource=PODS))
    except (ConfigError, KeyError, IndexError, TypeError) as error:
        raise PlanError(f"the rules of the metric cannot be read: {error}") from error
    return entry


def sources(document: Document) -> tuple[str, ...]:
    """Return the names of the Prometheus servers that the rules of a document query."""
    return tuple(dict.fromkeys(str(each["rule"]["source"]) for each in document["steps"]))


def _step(step: Step) -> Document:
    binding, team = step.binding, step.rule.team
    return {
        "rule": rule(step.rule.config),
        "where": str(step.rule.config.where),
        "series": step.series,
        "labels": {
            "resource": binding.resource,
            "namespace": binding.namespace,
            "absent": list(binding.absent),
        },
        "team": None if team is None else {"namespace": team.namespace, "label": team.label},
    }


def _source(step: Document, *, external: bool) -> Source:
    labels, team = step["labels"], step["team"]
    binding = LabelBinding(
        resource=labels["resource"], namespace=labels["namespace"], absent=tuple(labels["absent"])
    )
    # The client that is used decides which Prometheus the default one is.
    local = {**step["rule"], "source": DEFAULT}
    section = "externalRules" if external else "rules"
    (compiled,) = ruleset.load([(step["where"], json.dumps({section: [local]}))]).all
    if team is not None:
        compiled = replace(compiled, team=Team(namespace=team["namespace"], label=team["label"]))
    return Source(rule=compiled, series=step["series"], bindings=(binding,))


def rule(rule: config.Rule) -> Document:
    """Return a rule in the form of a rules file, without names of metrics and filters."""
    resources, missing = rule.resources, rule.on_missing
    found: dict[str, Any] = {
        "seriesQuery": rule.series_query,
        "metricsQuery": rule.metrics_query,
        "resources": {
            "overrides": {
                each.label: {"group": each.group, "resource": each.resource}
                for each in resources.overrides
            }
        },
        "aggregate": rule.aggregate,
        "onNaN": rule.on_nan,
        "merge": rule.merge,
        "source": rule.source,
    }
    if resources.template:
        found["resources"]["template"] = resources.template
    if resources.namespaced is not None:
        found["resources"]["namespaced"] = resources.namespaced
    if missing.value is not None:
        found["onMissing"] = {"value": missing.value}
    if missing.last_known is not None:
        found["onMissing"] = {"lastKnown": _duration(missing.last_known)}
    for key, seconds in (("maxSampleAge", rule.max_sample_age), ("minPodAge", rule.min_pod_age)):
        if seconds is not None:
            found[key] = _duration(seconds)
    if rule.workloads is not None:
        found["workloads"] = rule.workloads
    if (ahead := rule.ahead) is not None:
        horizon = {} if ahead.horizon is None else {"horizon": _duration(ahead.horizon)}
        found["ahead"] = {"season": _duration(ahead.season), **horizon}
    return found


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"
