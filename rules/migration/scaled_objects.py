"""KEDA ScaledObjects as rules and HorizontalPodAutoscalers, with a note about each key.

A query becomes an external rule, whose value KEDA would have put into its own HPA. A query that
returns one series for each pod becomes a rule for a Pods metric, because KEDA refuses its result
as soon as there are two replicas.

https://keda.sh/docs/2.18/reference/scaledobject-spec/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import promql_parser as ast

from rules import promql, quantity
from rules.document import nodes
from rules.document.found import Manifest
from rules.document.yaml import Entry, MappingNode, Node
from rules.errors import PlanError, QuantityError
from rules.migration.notes import Note, Notes

_TRUE = frozenset(("1", "t", "true"))
_HPA = "a HorizontalPodAutoscaler has no equal"
_SPEC = {
    "cooldownPeriod": "it delays only the step to zero replicas; see behavior.scaleDown",
    "initialCooldownPeriod": "it delays only the step to zero replicas",
    "idleReplicaCount": f"{_HPA}: it scales between minReplicas and maxReplicas",
    "pollingInterval": "the HPA controller requests metrics every 15 s",
    "fallback": f"{_HPA}: without a value it keeps the replicas",
}
_METADATA = {
    "activationThreshold": f"{_HPA}: KEDA uses it only between 0 and 1 replicas",
    "namespace": "set a query parameter of the server: docs/backends.md",
    "queryParameters": "set them in --prometheus-url: docs/backends.md",
    "customHeaders": "use --prometheus-header: docs/backends.md",
    "cortexOrgID": "use --prometheus-header: docs/backends.md",
    "authModes": "credentials are flags of the adapter: docs/backends.md",
    "unsafeSsl": "set --prometheus-ca-file: docs/backends.md",
    "metricName": "the rule names the metric",
    "timeout": "the adapter has one timeout for all queries",
}
_TRIGGER = {
    "authenticationRef": "credentials are flags of the adapter: docs/backends.md",
    "useCachedMetrics": "the adapter shares queries itself: --query-freshness",
}
_CONFIG = "horizontalPodAutoscalerConfig"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_RESOURCES = frozenset(("cpu", "memory"))
_CHOOSE = frozenset(("topk", "bottomk", "limitk", "limit_ratio", "count_values"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What follows from one ScaledObject."""

    hpa: dict[str, Any] | None
    """None if no trigger has an equal."""
    rules: list[dict[str, Any]] = field(default_factory=list)
    external: list[dict[str, Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def addresses(documents: Sequence[Manifest]) -> Iterator[str]:
    """Yield the address of Prometheus in each trigger that has one."""
    for each in documents:
        for trigger in nodes.mappings(nodes.items(nodes.mapping(each.node, "spec"), "triggers")):
            if address := nodes.text(nodes.mapping(trigger, "metadata"), "serverAddress"):
                yield address.rstrip("/")


def convert(found: Manifest, url: str) -> Converted:
    """Return HPA, rules and notes for a ScaledObject; `url` is the adapter's Prometheus."""
    return _Conversion(found, url).run()


class _Conversion:
    def __init__(self, found: Manifest, url: str) -> None:
        self.title = found.title
        self.node = found.node
        self.url = url.rstrip("/")
        self.notes = Notes(found.file)
        metadata = nodes.mapping(found.node, "metadata")
        self.name = nodes.text(metadata, "name")
        self.namespace = nodes.text(metadata, "namespace") or "default"
        self.spec = nodes.mapping(found.node, "spec")
        self.rules: list[dict[str, Any]] = []
        self.external: list[dict[str, Any]] = []

    def run(self) -> Converted:
        hpa = self._hpa()
        return Converted(hpa=hpa, rules=self.rules, external=self.external, notes=self.notes.notes)

    def _hpa(self) -> dict[str, Any] | None:
        spec: dict[str, Any] = {"scaleTargetRef": self._target()}
        spec["minReplicas"], spec["maxReplicas"] = self._limits()
        metadata = self._metadata()
        known = ("scaleTargetRef", "triggers", "minReplicaCount", "maxReplicaCount", "advanced")
        for key, entry in self.spec.entries.items():
            if key not in known:
                self._left_out(key, entry, _SPEC.get(key, "ScaledObjects have no such key"))
        advanced = nodes.mapping(self.spec, "advanced")
        for key, entry in advanced.entries.items():
            if key != _CONFIG:
                self._left_out(f"advanced.{key}", entry, _HPA)
        config = nodes.mapping(advanced, _CONFIG)
        for key, entry in config.entries.items():
            if key in {"name", "behavior"}:
                self._same(f"{_CONFIG}.{key}", entry)
            else:
                self._left_out(f"{_CONFIG}.{key}", entry, _HPA)
        if behavior := nodes.plain(nodes.mapping(config, "behavior")):
            spec["behavior"] = behavior
        metadata["name"] = nodes.text(config, "name") or self.name
        if "scalingModifiers" in advanced.entries:
            message = "no HPA is written: it would scale on each trigger instead of the formula"
            self.notes.left_out(self.title, self.node, message)
            return None
        triggers = nodes.items(self.spec, "triggers")
        metrics = [
            metric
            for index, trigger in enumerate(nodes.mappings(triggers))
            if (metric := self._metric(index, trigger)) is not None
        ]
        if not metrics:
            self.notes.left_out(self.title, self.node, "no HPA is written: no trigger has an equal")
            return None
        if len(metrics) < len(triggers):
            message = "the HPA does not scale on the triggers that are left out"
            self.notes.differs(self.title, self.node, message)
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata,
            "spec": {**spec, "metrics": metrics},
        }

    def _metadata(self) -> dict[str, Any]:
        found = nodes.mapping(self.node, "metadata")
        for key, entry in nodes.mapping(found, "annotations").entries.items():
            if key != _APPLIED:
                self._left_out(f"annotation {key}", entry, "annotate the HPA, if it needs it")
        metadata: dict[str, Any] = {"namespace": self.namespace}
        if labels := nodes.plain(nodes.mapping(found, "labels")):
            self._same("metadata.labels", found.entries["labels"])
            metadata["labels"] = labels
        return metadata

    def _target(self) -> dict[str, str]:
        target = nodes.mapping(self.spec, "scaleTargetRef")
        known = ("apiVersion", "kind", "name", "deploymentName")
        for key, entry in target.entries.items():
            if key in known:
                self._same(f"scaleTargetRef.{key}", entry)
            else:
                self._left_out(f"scaleTargetRef.{key}", entry, "only KEDA's triggers use it")
        return {
            "apiVersion": nodes.text(target, "apiVersion") or "apps/v1",
            "kind": nodes.text(target, "kind") or "Deployment",
            "name": nodes.text(target, "name") or nodes.text(target, "deploymentName"),
        }

    def _limits(self) -> tuple[int, int]:
        found = []
        for key, default in (("minReplicaCount", 0), ("maxReplicaCount", 100)):
            entry = self.spec.entries.get(key)
            text = nodes.text(self.spec, key)
            found.append(int(text) if text.isdecimal() else default)
            if entry is not None and found[-1]:
                self._same(key, entry)
            elif found[-1]:
                self.notes.same(key, self.spec, f"not set: {default}, as in KEDA")
        if not found[0]:
            node = _key(self.spec, "minReplicaCount")
            message = (
                "zero replicas need Kubernetes 1.37 or the feature gate HPAScaleToZero: written "
                "as 1, see docs/hpa-recipes.md"
            )
            self.notes.differs("minReplicaCount", node, message)
        return max(found[0], 1), max(found[1], 1)

    def _metric(self, index: int, trigger: MappingNode) -> dict[str, Any] | None:
        kind, path = nodes.text(trigger, "type"), f"triggers[{index}]"
        if kind in _RESOURCES:
            return self._resource(path, kind, trigger)
        if kind != "prometheus":
            message = f"the adapter reads Prometheus, not {kind or 'an unnamed trigger'}"
            self.notes.left_out(path, trigger, f"{message}: export the value to Prometheus")
            return None
        metadata = nodes.mapping(trigger, "metadata")
        read = ("serverAddress", "query", "threshold", "ignoreNullValues")
        for key, entry in metadata.entries.items():
            if key not in read:
                message = _METADATA.get(key, "prometheus triggers have no such key")
                self._left_out(f"{path}.{key}", entry, message)
        for key, entry in trigger.entries.items():
            if key not in {"type", "metadata", "metricType", "name"}:
                message = _TRIGGER.get(key, "triggers have no such key")
                self._left_out(f"{path}.{key}", entry, message)
        address = nodes.text(metadata, "serverAddress").rstrip("/")
        address = address if "://" in address or not address else f"http://{address}"
        if address != self.url:
            message = f"{address or 'no address'} is not the adapter's Prometheus, {self.url}"
            self.notes.left_out(path, trigger, f"{message}: add it to sources, docs/backends.md")
            return None
        query = nodes.text(metadata, "query").strip()
        threshold = nodes.text(metadata, "threshold")
        try:
            tree = promql.parse(query)
            milli = quantity.milli_value(threshold)
        except (PlanError, QuantityError) as error:
            what = "query" if isinstance(error, PlanError) else "threshold"
            self.notes.left_out(f"{path}.{what}", metadata, str(error))
            return None
        if not (names := list(_names(tree))):
            message = "names no series, by which the rule could be listed: write the rule by hand"
            self.notes.left_out(f"{path}.query", _key(metadata, "query"), message)
            return None
        if not milli:
            message = "the target of an HPA cannot be 0"
            self.notes.left_out(f"{path}.threshold", _key(metadata, "threshold"), message)
            return None
        trigger_name = nodes.text(trigger, "name") or str(index)
        name = f"{self.namespace}_{self.name}_{trigger_name}".lower()
        target = quantity.decimal(milli)
        kind = nodes.text(trigger, "metricType") or "AverageValue"
        null = nodes.text(metadata, "ignoreNullValues").lower() or "true"
        if (selection := _of_pods(query, tree)) and kind == "AverageValue":
            return self._pods(path, metadata, name, selection, target)
        if null in _TRUE:
            query = f"({promql.one_line(query)}) or vector(0)"
        self.external.append(
            {
                "seriesQuery": names[0],
                "resources": {"namespaced": False},
                "name": {"as": name},
                "metricsQuery": query.replace("<<", '<<"<<">>'),
            }
        )
        notes = []
        if not _is_single(tree):
            notes.append("several series are an error in KEDA, and are added up by an HPA")
        if isinstance(tree, ast.AggregateExpr) and str(tree.op) == "avg" and kind != "Value":
            notes.append("an average is divided by the replicas again, as in KEDA: use type Value")
        notes.append(f"external metric {name}, the same in every namespace")
        self.notes.either(f"{path}.query", _key(metadata, "query"), "; ".join(notes))
        self.notes.same(f"{path}.threshold", _key(metadata, "threshold"), f"{kind} {target}")
        if null in _TRUE:
            message = "no series count as 0: `or vector(0)`"
            node = _key(metadata, "ignoreNullValues")
            self.notes.same(f"{path}.ignoreNullValues", node, message)
        else:
            node = metadata.entries["ignoreNullValues"].key
            self.notes.same(f"{path}.ignoreNullValues", node, "without series, no value")
        key = "value" if kind == "Value" else "averageValue"
        return {
            "type": "External",
            "external": {"metric": {"name": name}, "target": {"type": kind, key: target}},
        }

    def _pods(
        self, path: str, metadata: MappingNode, name: str, selection: tuple[str, str], target: str
    ) -> dict[str, Any]:
        series, query = selection
        self.rules.append(
            {
                "seriesQuery": series,
                "resources": {
                    "overrides": {
                        "namespace": {"resource": "namespace"},
                        "pod": {"resource": "pod"},
                    }
                },
                "name": {"as": name},
                "metricsQuery": f"sum({query}) by (<<.GroupBy>>)",
            }
        )
        message = (
            f"Pods metric {name}: KEDA refuses one series for each pod as soon as there are two. "
            "The series need the labels namespace and pod"
        )
        self.notes.differs(f"{path}.query", _key(metadata, "query"), message)
        message = "a pod without a series is not counted as 0"
        self.notes.differs(f"{path}.ignoreNullValues", metadata, message)
        node = _key(metadata, "threshold")
        self.notes.same(f"{path}.threshold", node, f"AverageValue {target}")
        return {
            "type": "Pods",
            "pods": {
                "metric": {"name": name},
                "target": {"type": "AverageValue", "averageValue": target},
            },
        }

    def _resource(self, path: str, kind: str, trigger: MappingNode) -> dict[str, Any] | None:
        metadata = nodes.mapping(trigger, "metadata")
        type_ = nodes.text(trigger, "metricType") or nodes.text(metadata, "type") or "Utilization"
        value, container = nodes.text(metadata, "value"), nodes.text(metadata, "containerName")
        for key, entry in metadata.entries.items():
            if key not in {"type", "value", "containerName"}:
                message = _METADATA.get(key, f"{kind} triggers have no such key")
                self._left_out(f"{path}.{key}", entry, message)
        target: dict[str, Any] = {"type": type_}
        if type_ == "Utilization" and value.isdecimal() and int(value):
            target["averageUtilization"] = int(value)
        elif type_ == "AverageValue" and value:
            target["averageValue"] = value
        else:
            message = f"{type_} {value or 'without a value'} is no target of a Resource metric"
            self.notes.left_out(path, trigger, message)
            return None
        self.notes.same(path, trigger, f"Resource metric {kind}")
        if container:
            resource = {"name": kind, "container": container, "target": target}
            return {"type": "ContainerResource", "containerResource": resource}
        return {"type": "Resource", "resource": {"name": kind, "target": target}}

    def _same(self, key: str, entry: Entry) -> None:
        self.notes.same(key, entry.key)

    def _left_out(self, key: str, entry: Entry, message: str) -> None:
        self.notes.left_out(key, entry.key, message)


def _key(node: MappingNode, name: str) -> Node:
    """Return the position of a key; that of the mapping without it."""
    entry = node.entries.get(name)
    return entry.key if entry else node


def _names(tree: ast.Expr) -> Iterator[str]:
    """Yield the names of the series that a query reads."""
    found: list[ast.Expr] = []
    ast.walk(tree, found.append)
    for each in found:
        selector = each.vector_selector if isinstance(each, ast.MatrixSelector) else each
        if isinstance(selector, ast.VectorSelector) and selector.name:
            yield selector.name


def _is_single(tree: ast.Expr) -> bool:
    """Return whether a query returns one sample at most, as far as its form shows it."""
    match tree:
        case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr():
            return _is_single(tree.expr)
        case ast.AggregateExpr():
            return tree.modifier is None and str(tree.op) not in _CHOOSE
        case ast.BinaryExpr():
            return _is_single(tree.lhs) and _is_single(tree.rhs)
        case ast.Call():
            if tree.func.name == "histogram_quantile" and len(tree.args) == 2:
                return _is_by_le(tree.args[1])
            if tree.func.name in {"scalar", "vector", "time"}:
                return True
            return bool(tree.args) and all(map(_is_single, tree.args))
        case ast.NumberLiteral():
            return True
        case _:
            return False


def _is_by_le(tree: ast.Expr) -> bool:
    while isinstance(tree, ast.ParenExpr):
        tree = tree.expr
    return (
        isinstance(tree, ast.AggregateExpr)
        and tree.modifier is not None
        and tree.modifier.type == ast.AggModifierType.By
        and set(tree.modifier.labels) <= {"le"}
    )


def _of_pods(query: str, tree: ast.Expr) -> tuple[str, str] | None:
    """Return the selector and the template of a query of raw series, or of a function of them.

    None for other queries.
    """
    selector: ast.Expr = tree
    if isinstance(tree, ast.Call) and len(tree.args) == 1:
        selector = tree.args[0]
        if not isinstance(selector, ast.MatrixSelector):
            return None
    ranged = isinstance(selector, ast.MatrixSelector)
    vector = selector.vector_selector if ranged else selector  # type: ignore[attr-defined]
    if not isinstance(vector, ast.VectorSelector) or not vector.name or vector.offset or vector.at:
        return None
    text = promql.one_line(query)
    opening, closing = text.find("{"), text.rfind("}")
    if opening >= 0:
        matchers = text[opening + 1 : closing].rstrip(", ")
        inside = f"{matchers},<<.LabelMatchers>>" if matchers else "<<.LabelMatchers>>"
        template = f"{text[: opening + 1]}{inside}{text[closing:]}"
    else:
        matchers = ""
        template = text.replace(vector.name, f"{vector.name}{{<<.LabelMatchers>>}}", 1)
    wanted = ",".join(filter(None, [matchers, 'namespace!=""', 'pod!=""']))
    return f"{vector.name}{{{wanted}}}", template
