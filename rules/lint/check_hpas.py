"""Warnings about HPAs: shapes that the API server refuses, and metrics that no rule produces.

`rules.hpa.units` judges the units of targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rules import quantity
from rules.causes import candidates, suggestions, wording
from rules.document import nodes
from rules.document.found import HpaTarget, Manifest
from rules.document.yaml import MappingNode, Node, Scalar
from rules.errors import Problem, QuantityError
from rules.kinds import Kinds
from rules.ruleset import RuleSet

KIND = "HorizontalPodAutoscaler"
_ENDED: Mapping[str, str] = {"autoscaling/v2beta1": "1.25", "autoscaling/v2beta2": "1.26"}
"""Version of the API -> the release of Kubernetes that serves it no longer."""
_SERVED = ("autoscaling/v1", "autoscaling/v2")
_SOURCES: Mapping[str, str] = {
    "Pods": "pods",
    "Object": "object",
    "External": "external",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Type of a metric -> its key."""
_TARGETS: Mapping[str, tuple[str, ...]] = {
    "Pods": ("averageValue",),
    "Object": ("value", "averageValue"),
    "External": ("value", "averageValue"),
    "Resource": ("averageUtilization", "averageValue"),
    "ContainerResource": ("averageUtilization", "averageValue"),
}
"""Type of a metric -> the keys of its target of which it needs one."""


def shape(manifest: Manifest) -> Iterator[Problem]:
    """Yield a warning for each part of an HPA that the API server does not accept."""

    def warning(node: Node, message: str) -> Problem:
        text = f"{manifest.title}: {message}"
        return Problem(severity="warning", message=text, file=manifest.file, line=node.line)

    document, version = manifest.node, nodes.text(manifest.node, "apiVersion")
    if version in _ENDED:
        yield warning(
            document,
            f"{version} is not served since Kubernetes {_ENDED[version]}, so the API server "
            "refuses it. Write it for autoscaling/v2, whose metrics have the keys metric.name and "
            "target",
        )
        return
    if version not in _SERVED:
        yield warning(document, f"no API server serves {version}. Write autoscaling/v2")
        return
    spec = nodes.mapping(document, "spec")
    target = nodes.mapping(spec, "scaleTargetRef")
    if message := _wrong_group(target):
        yield warning(target, f"scaleTargetRef: {message}")
    low, high = _integer(spec, "minReplicas"), _integer(spec, "maxReplicas")
    if low is not None and high is not None and low > high:
        yield warning(spec, f"minReplicas {low} is above maxReplicas {high}, which is refused")
    for index, metric in enumerate(nodes.mappings(nodes.items(spec, "metrics"))):
        for message in _metric(metric):
            yield warning(metric, f"metrics[{index}]: {message}")
    for direction in ("scaleUp", "scaleDown"):
        rules = nodes.mapping(nodes.mapping(spec, "behavior"), direction)
        if message := _tolerance(nodes.text(rules, "tolerance")):
            yield warning(rules, f"behavior.{direction}.tolerance {message}")


def _metric(metric: MappingNode) -> Iterator[str]:
    type_ = nodes.text(metric, "type")
    if type_ not in _SOURCES:
        yield f"type {type_ or '(missing)'} is not one of {', '.join(_SOURCES)}"
        return
    source = nodes.mapping(metric, _SOURCES[type_])
    if not source.entries:
        yield f"type {type_} needs the key {_SOURCES[type_]}"
        return
    target = nodes.mapping(source, "target")
    if not any(nodes.text(target, key) for key in _TARGETS[type_]):
        found = nodes.text(target, "type")
        shown = f", and the target has type {found}" if found else ""
        yield f"type {type_} needs {' or '.join(_TARGETS[type_])} in its target{shown}"
    selector = nodes.mapping(source, "metric").entries.get("selector")
    if selector is not None and isinstance(selector.value, Scalar) and selector.value.text:
        yield (
            f"selector is the text {wording.printable(selector.value.text)}, and must be a mapping:"
            " {matchLabels: {KEY: VALUE}}"
        )
    if message := _wrong_group(nodes.mapping(source, "describedObject")):
        yield f"describedObject: {message}"


def _wrong_group(reference: MappingNode) -> str:
    """Return what is wrong with the API version of a built-in kind; empty if nothing is."""
    kind, version = nodes.text(reference, "kind"), nodes.text(reference, "apiVersion")
    served = [each.api_version for each in Kinds.builtin() if each.kind == kind]
    # CustomResourceDefinitions, whose groups have a dot, may have the same kinds.
    if not served or version in served or "." in version.partition("/")[0]:
        return ""
    return f"{kind} is in {served[0]}, not in {version or 'v1'}. Write apiVersion: {served[0]}"


def _integer(node: MappingNode, key: str) -> int | None:
    text = nodes.text(node, key)
    return int(text) if text.isdecimal() else None


def _tolerance(text: str) -> str:
    if not text:
        return ""
    try:
        value = quantity.milli_value(text)
    except QuantityError as error:
        return f"is not a quantity: {error}"
    return f"is {text}, and must not be negative" if value < 0 else ""


def unproduced(targets: Iterable[HpaTarget], ruleset: RuleSet) -> Iterator[Problem]:
    """Yield a warning for each metric that no rule produces, and for selectors without effect."""
    for target in targets:
        rules = ruleset.external if target.external else ruleset.rules
        makers = [each for each in rules if candidates.may_produce(each, target.metric)]
        if not makers:
            known = {name for each in rules if (name := candidates.fixed_name(each)) is not None}
            near = wording.did_you_mean(suggestions.similar_names(target.metric, known))
            kind = "external rule" if target.external else "rule"
            yield target.warning(
                f"no {kind} in these files produces {wording.printable(target.metric)}{near}"
            )
        elif target.selects and not any(each.selects for each in makers):
            yield target.warning(
                f"the selector of {wording.printable(target.metric)} has no effect, because "
                f"metricsQuery of {makers[0].config.where} does not use <<.LabelMatchers>>"
            )
