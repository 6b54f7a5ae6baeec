"""`check --prometheus-url`: what the queries of `resourceRules` return for the whole cluster.

`check_live` does the same for the other rules.
"""

from __future__ import annotations

import time
from collections import Counter

from adapter import errors
from adapter.clients.prometheus import Prometheus
from rules.errors import RulesError
from rules.findings import Finding, State
from rules.query import plan, resource
from rules.query.aggregate import Sample
from rules.query.catalog import Step
from rules.query.plan import SelectedObjects
from rules.quoting import counted
from rules.ruleset import CompiledResourceRules
from rules.selectors.selectors import Selector


async def report(
    rules: CompiledResourceRules, prometheus: Prometheus
) -> tuple[list[str], list[Finding]]:
    """Return a line about every query that can be rendered, and warnings."""
    queries = resource.compile(rules)
    lines: list[str] = []
    problems: list[Finding] = []
    for rule, of_pods, of_nodes in zip(
        (rules.cpu, rules.memory), queries.pods, queries.nodes, strict=True
    ):
        for step, kind in ((of_pods, "pod"), (of_nodes, "node")):
            if not step.rule.query.source or not step.binding.resource:
                continue  # reported without a Prometheus
            line, message = await _try(step, kind, prometheus)
            lines += [line] if line else []
            if message:
                key = step.rule.config.where.path.rpartition(".")[2]
                problems.append(rule.config.where.problem(State.WARNING, key, message))
    return lines, problems


async def _try(step: Step, kind: str, prometheus: Prometheus) -> tuple[str, str]:
    """Return what the query returns for all objects, and a warning; either may be empty."""
    namespaced = bool(step.binding.namespace)
    every = SelectedObjects(namespaces=None if namespaced else (), names=None)
    try:
        text = plan.render(step, every, Selector(), by_namespace=namespaced)
        started = time.monotonic()
        result = await prometheus.query(text)
    except (errors.BackendError, RulesError) as error:
        return "", f"fails: {error}"
    took = time.monotonic() - started
    counts = Counter(key for sample in result.samples if (key := _key(step, sample))[0])
    objects = {key[:2] for key in counts}
    of = f"{counted(len(counts), 'container')} of " if kind == "pod" else ""
    many = counted(len(objects), kind)
    line = f"{step.rule.config.where}: {of}{many}, {took * 1000:.0f} ms"
    if not result.samples:
        return line, "returns nothing: Prometheus has no such series"
    if not counts:
        label = step.binding.resource
        return line, f"returns {len(result.samples)} samples, none of which has the label {label}"
    if (most := max(counts.values())) > 1:
        each = "container" if kind == "pod" else "node"
        return line, f"returns up to {most} samples for one {each}, whose average is used"
    return line, ""


def _key(step: Step, sample: Sample) -> tuple[str, str, str]:
    """Return name, namespace and container of a sample."""
    binding = step.binding
    labels = (binding.resource, binding.namespace, binding.container)
    name, namespace, container = (sample.labels.get(label, "") for label in labels)
    return name, namespace, container
