"""Steps and bindings for tests of scopes: one rule with a given query."""

from __future__ import annotations

import json

from rules import ruleset
from rules.query.catalog import Source, Step
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


def step_of(query: str, binding: LabelBinding = POD, *, section: str = "rules") -> Step:
    """Return the step of a rule whose `metricsQuery` is `query`."""
    rule = {"seriesQuery": "A", "resources": _RESOURCES, "metricsQuery": query}
    # JSON is YAML.
    compiled = ruleset.load([("rules.yaml", json.dumps({section: [rule]}))])
    source = Source(rule=compiled.all[0], series="A", bindings=(binding,))
    return Step(source=source, binding=binding)
