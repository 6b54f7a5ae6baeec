"""Finds rules and flags in values of the prometheus-adapter Helm chart.

Values are a file of their own, or part of what Argo CD or Flux deploys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rules.document import config, nodes, yaml
from rules.document.found import Arguments, Found, HelmValues, RulesPart
from rules.document.schema import Fields, SchemaPath
from rules.document.yaml import MappingNode, Scalar
from rules.findings import Finding, State

_VALUES = ("default", "custom", "existing", "external", "resource", "sources")
"""Keys of `rules` in the values of the prometheus-adapter chart; `sources` only in ours."""
_CHART = "prometheus-adapter"
"""Name of the chart, below which a chart that depends on it has its values."""
KINDS = ("Application", "HelmRelease")
"""Kinds of Argo CD and Flux that hold Helm values."""


def deployed(document: MappingNode, file: str) -> Iterator[Found]:
    """Yield what the Helm values in an Application of Argo CD or a HelmRelease of Flux contain."""
    spec = nodes.mapping(document, "spec")
    for source in (nodes.mapping(spec, "source"), *nodes.mappings(nodes.items(spec, "sources"))):
        helm = nodes.mapping(source, "helm")
        if (values := chart_values(nodes.mapping(helm, "valuesObject"))) is not None:
            yield parse(*values, file)
        text = helm.entries["values"].value if "values" in helm.entries else None
        if isinstance(text, Scalar):
            content, where = nodes.embedded(text, file, "values")
            node, problems = yaml.load(content, file=where)
            if isinstance(node, MappingNode) and (values := chart_values(node)) is not None:
                found = parse(*values, where)
                yield replace(found, problems=(*problems, *found.problems))
    if (values := chart_values(nodes.mapping(spec, "values"))) is not None:
        yield parse(*values, file)


def chart_values(document: MappingNode) -> tuple[MappingNode, str] | None:
    """Return the values of the chart and their path; None if the document has none."""
    for values, path in ((document, ""), (nodes.mapping(document, _CHART), _CHART)):
        has_rules = set(_VALUES) & nodes.mapping(values, "rules").entries.keys()
        has_url = "url" in nodes.mapping(values, "prometheus").entries
        if has_rules or (has_url and not nodes.items(values, "rules")):
            return values, path
    return None


def parse(values: MappingNode, path: str, file: str) -> Found:
    """Return the rules and flags in the values at `path` of a file."""
    problems: list[Finding] = []
    rules = _effective(values)
    record = SchemaPath(file, path, problems)
    server = nodes.mapping(values, "prometheus")
    if nodes.text(server, "path").rstrip("/") == "/metrics":
        message = (
            "is where Prometheus has its own metrics, not its API: every query gets 404. Leave it "
            "empty, or set the path of --web.route-prefix"
        )
        record.report(State.WARNING, "prometheus.path", server.entries["path"].value, message)
    if misplaced := server.entries.get("rules"):
        message = "is not a value of the chart and has no effect. Move rules out of prometheus"
        record.report(State.WARNING, "prometheus.rules", misplaced.key, message)
    top = Fields(record, rules, "rules", known=_VALUES)
    if top.get("existing") is None:
        _warn_of_default(record, rules)
    parsed = config.parse_sections(top, "custom", "external", "resource")
    if top.get("existing") is not None:
        message = "replaces the rules of these values, which have no effect: check the ConfigMap"
        node = rules.entries["existing"].value
        record.report(State.WARNING, "rules.existing", node, message)
    title = HelmValues.title
    part = RulesPart(
        title=title, file=file, line=rules.line, parsed=(parsed[0], tuple(problems)), node=rules
    )
    arguments = tuple(e for e in nodes.items(values, "extraArguments") if isinstance(e, Scalar))
    flags = Arguments(
        title=f"{title}, extraArguments",
        file=file,
        line=values.line,
        arguments=arguments,
    )
    return Found(
        rules=(part,),
        arguments=(flags,) if arguments else (),
        values=(HelmValues(file=file, path=path, node=values),),
    )


def _effective(values: MappingNode) -> MappingNode:
    """Return the rules without empty mappings, which the chart ignores (`resource: {}`)."""
    if "rules" not in values.entries:
        return replace(nodes.EMPTY, line=values.line, column=values.column)
    rules = nodes.mapping(values, "rules")
    entries = {
        key: entry
        for key, entry in rules.entries.items()
        if not isinstance(entry.value, MappingNode) or entry.value.entries
    }
    return replace(rules, entries=entries)


def _warn_of_default(record: SchemaPath, rules: MappingNode) -> None:
    default = rules.entries.get("default")
    if default is not None and getattr(default.value, "value", "") == "false":
        return
    message = (
        "is true unless it is set: the chart adds six rules that match nearly every series, and "
        "discovery lists thousands of metrics. Set it to false if the other rules suffice"
    )
    node = default.value if default else rules
    record.report(State.WARNING, "rules.default", node, message)
