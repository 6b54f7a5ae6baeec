"""Problems of HPAs: shapes that the API server refuses, and metrics that no rule produces.

`rules.hpa.judgement` judges the units of targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules import quantity
from rules.causes import candidates, suggestions, wording
from rules.document import behavior, nodes
from rules.document.found import HpaTarget, Manifest
from rules.document.yaml import MappingNode, Node, Scalar
from rules.errors import QuantityError
from rules.findings import Finding, State, in_file
from rules.kinds import Kinds
from rules.ruleset import CompiledRule, RuleSet

KIND = "HorizontalPodAutoscaler"
_ENDED: Mapping[str, tuple[str, str]] = {
    "autoscaling/v2beta1": ("1.25", ", where a metric has the keys metric.name and target"),
    "autoscaling/v2beta2": ("1.26", ", which has the same keys"),
}
"""Version of the API -> the release of Kubernetes that serves it no longer; what v2 changes."""
_SERVED = ("autoscaling/v1", "autoscaling/v2")
_METRICS: Mapping[str, tuple[str, Sequence[str]]] = {
    "Pods": ("pods", ("averageValue",)),
    "Object": ("object", ("value", "averageValue")),
    "External": ("external", ("value", "averageValue")),
    "Resource": ("resource", ("averageUtilization", "averageValue")),
    "ContainerResource": ("containerResource", ("averageUtilization", "averageValue")),
}
"""Type of a metric -> its key, and the keys of its target of which it needs one."""
_OF_GOOGLE = re.compile(r"prometheus\.googleapis\.com[|/]([\w:]+)[|/]\w+")
"""Name of a series in the Custom Metrics Stackdriver Adapter: with its type, `gauge` or others."""


def shape(manifest: Manifest) -> Iterator[Finding]:
    """Yield an error for each part of an HPA that the API server refuses.

    It accepts a wrong API version of a scaled or described object, which the controller does not
    find; that is a warning.
    """

    def error(node: Node, message: str, state: State = State.FAILURE) -> Finding:
        text = f"{manifest.title}: {message}"
        return in_file(state, text, file=manifest.file, line=node.line)

    document, version = manifest.node, nodes.text(manifest.node, "apiVersion")
    if version in _ENDED:
        release, change = _ENDED[version]
        yield error(
            document,
            f"{version} is not served since Kubernetes {release}, so the API server refuses it. "
            f"Write autoscaling/v2{change}",
        )
        return
    if version not in _SERVED:
        yield error(document, f"no API server serves {version}. Write autoscaling/v2")
        return
    spec = nodes.mapping(document, "spec")
    target = nodes.mapping(spec, "scaleTargetRef")
    if message := _wrong_group(target):
        yield error(target, f"scaleTargetRef: {message}", State.WARNING)
    metrics = [*nodes.mappings(nodes.items(spec, "metrics"))]
    for message in _bounds(spec, metrics):
        yield error(spec, message)
    for index, metric in enumerate(metrics):
        for message in _metric(metric):
            yield error(metric, f"metrics[{index}]: {message}")
        if message := _wrong_group(_described(metric)):
            yield error(metric, f"metrics[{index}]: describedObject: {message}", State.WARNING)
    for problem in behavior.problems(nodes.mapping(spec, "behavior")):
        yield error(problem.node, str(problem))


def _metric(metric: MappingNode) -> Iterator[str]:
    type_ = nodes.text(metric, "type")
    if type_ not in _METRICS:
        yield f"type {type_ or '(missing)'} is not one of {', '.join(_METRICS)}"
        return
    key, targets = _METRICS[type_]
    source = nodes.mapping(metric, key)
    if not source.entries:
        yield f"type {type_} needs the key {key}"
        return
    target = nodes.mapping(source, "target")
    given = [each for each in targets if nodes.text(target, each)]
    for each in given:
        if not _is_positive(nodes.text(target, each)):
            yield f"{each} {nodes.text(target, each)} must be above 0"
    if not given:
        found = nodes.text(target, "type")
        shown = f", and the target has type {found}" if found else ""
        yield f"type {type_} needs {' or '.join(targets)} in its target{shown}"
    selector = nodes.mapping(source, "metric").entries.get("selector")
    if selector is not None and isinstance(selector.value, Scalar) and selector.value.text:
        yield (
            f"selector is the text {wording.printable(selector.value.text)}, and must be a mapping:"
            " {matchLabels: {KEY: VALUE}}"
        )


def _described(metric: MappingNode) -> MappingNode:
    return nodes.mapping(nodes.mapping(metric, "object"), "describedObject")


def _wrong_group(reference: MappingNode) -> str:
    """Return what is wrong with the API version of a built-in kind; empty if nothing is."""
    kind, version = nodes.text(reference, "kind"), nodes.text(reference, "apiVersion")
    served = [each.api_version for each in Kinds.builtin() if each.kind == kind]
    # CustomResourceDefinitions, whose groups have a dot, may have the same kinds.
    if not served or version in served or "." in version.partition("/")[0]:
        return ""
    return f"{kind} is in {served[0]}, not in {version or 'v1'}. Write apiVersion: {served[0]}"


def _bounds(spec: MappingNode, metrics: Iterable[MappingNode]) -> Iterator[str]:
    """Yield what is wrong with minReplicas and maxReplicas."""
    low, high = _integer(spec, "minReplicas"), _integer(spec, "maxReplicas")
    is_whole = "scaleTargetRef" in spec.entries  # a patch of kustomize has it rarely
    if is_whole and "maxReplicas" not in spec.entries:
        yield "maxReplicas is missing"
    elif high is not None and high < 1:
        yield f"maxReplicas {high} is less than 1"
    elif low is not None and high is not None and low > high:
        yield f"minReplicas {low} is above maxReplicas {high}"
    types = {nodes.text(each, "type") for each in metrics}
    if low is not None and low < 0:
        yield f"minReplicas {low} is less than 0"
    elif low == 0 and is_whole and not types & {"Object", "External"}:
        yield "minReplicas 0 needs a metric of type Object or External"


def _integer(node: MappingNode, key: str) -> int | None:
    text = nodes.text(node, key)
    return int(text) if re.fullmatch(r"-?[0-9]{1,10}", text) else None


def _is_positive(text: str) -> bool:
    """Return whether a target is above 0; also for other text than a quantity."""
    try:
        return quantity.milli_value(text) > 0
    except QuantityError:
        return True


def requests(target: HpaTarget, rule: CompiledRule) -> bool:
    """Return whether an HPA may request a metric of the rule."""
    same_api = target.external == (rule.section == "externalRules")
    return same_api and candidates.may_produce(rule, target.metric)


def unproduced(targets: Iterable[HpaTarget], ruleset: RuleSet) -> Iterator[Finding]:
    """Yield a warning for each metric that no rule produces, and for selectors without effect."""
    for target in targets:
        rules = ruleset.external if target.external else ruleset.rules
        makers = [each for each in rules if requests(target, each)]
        if not makers:
            kind = "external rule" if target.external else "rule"
            yield target.warning(
                f"no {kind} in these files and presets produces "
                f"{wording.printable(target.metric)}{_instead(target, ruleset)}"
            )
        elif target.selects and not any(each.selects for each in makers):
            yield target.warning(
                f"the selector of {wording.printable(target.metric)} has no effect, because "
                f"metricsQuery of {makers[0].config.where} does not use <<.LabelMatchers>>. "
                f"{wording.MATCHED}"
            )


def _instead(target: HpaTarget, ruleset: RuleSet) -> str:
    """Return what to request instead, as the end of a sentence; empty without a suggestion."""
    rules, others = ruleset.rules, ruleset.external
    advice = "makes an external metric of this name. Use type External"
    if target.external:
        rules, others = others, rules
        advice = "makes a metric of objects of this name. Use type Pods or Object"
    other = next((each for each in others if candidates.must_produce(each, target.metric)), None)
    if other is not None:
        return f", but {other.config.where} {advice}"
    known = {name for each in rules if (name := candidates.fixed_name(each)) is not None}
    google = _OF_GOOGLE.fullmatch(target.metric)
    if google is not None and (of_series := suggestions.of_preset_series(google[1])):
        return f"; Google's adapter has this name for {wording.printable(google[1])}{of_series}"
    return (
        suggestions.of_series(rules, target.metric)
        or suggestions.of_preset_series(target.metric)
        or wording.did_you_mean(suggestions.similar_names(target.metric, known))
    )
