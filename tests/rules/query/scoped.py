"""Sources and bindings for tests of scopes: one rule with a given query."""

from __future__ import annotations

import json

from rules import ruleset
from rules.query.catalog import Source
from rules.query.label_binding import LabelBinding

POD = LabelBinding(resource="pod", namespace="namespace")
NODE = LabelBinding(resource="node")

_RESOURCES = {
    "overrides": {
        "namespace": {"resource": "namespace"},
        "pod": {"resource": "pod"},
        "node": {"resource": "node"},
    }
}


def source_of(query: str, *, section: str = "rules", series: str = "A", **fields) -> Source:
    """Return the source of a rule whose `metricsQuery` is `query`."""
    rule = {"seriesQuery": series, "resources": _RESOURCES, "metricsQuery": query, **fields}
    # JSON is YAML.
    compiled = ruleset.load([("rules.yaml", json.dumps({section: [rule]}))])
    return Source(rule=(*compiled.rules, *compiled.external)[0], series=series, bindings=(POD,))
