"""KEDA ScaledObjects as external rules and HorizontalPodAutoscalers, with a line for each key.

An HPA gives the replicas that KEDA gave from 1 on, or a line says where it does not. `keda` says
what KEDA reads and refuses, `triggers` what becomes of a trigger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rules.document import nodes
from rules.document.found import Manifest
from rules.document.yaml import MappingNode
from rules.errors import ConfigError
from rules.findings import Finding, State, in_file
from rules.migration import keda, lines, servers, triggers
from rules.migration.keda import ANNOTATIONS, BEHAVIOR, CONFIG, PrometheusTrigger, ScaledObject
from rules.migration.notes import Line, Path, differs, left_out, same
from rules.migration.servers import Servers

OTHER_KINDS = {
    "ScaledJob": "creates Jobs, which no HPA does",
    "TriggerAuthentication": triggers.AUTHENTICATION,
    "ClusterTriggerAuthentication": triggers.AUTHENTICATION,
}
"""Other kinds of KEDA -> why they are left out."""

_SPEC: Path = ("spec",)
_ADVANCED = CONFIG[:-1]
_DISABLED = {keda.PAUSED_SCALE_IN: "scaleDown", keda.PAUSED_SCALE_OUT: "scaleUp"}
"""Annotation -> direction in which KEDA's HPA does not scale."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What follows from all ScaledObjects."""

    hpas: list[dict[str, Any]] = field(default_factory=list)
    rules: list[dict[str, Any]] = field(default_factory=list)
    """External rules."""
    notes: list[Finding] = field(default_factory=list)


def convert(
    manifests: Sequence[Manifest], values: dict[str, Any], *, is_installed: bool
) -> Converted:
    """Return HPAs, rules and notes; add the servers of the triggers to `values`.

    `is_installed` says whether `values` name the default server. Raises ConfigError if two
    ScaledObjects have one name.
    """
    scaled = [each for each in manifests if each.kind == "ScaledObject"]
    _check_unique(scaled)
    read = [(each, *keda.read(each.node)) for each in scaled]
    others = _Others(manifests, [found for _, found, _ in read if found])
    known = Servers(values, is_installed=is_installed)
    result = Converted()
    objects = []
    for manifest, found, refusals in read:
        reasons = refusals
        if found is not None and not (reasons := _why_no_hpa(found) or others.claim(found)):
            objects.append((manifest, found))
            continue
        message = f"no HPA is written, and KEDA {keda.VERSION} has none" if refusals else ""
        last = left_out((), message or "no HPA is written")
        result.notes.extend(lines.findings(manifest, [*reasons, last]))
    known.add(
        each.server
        for _, found in objects
        for each in found.triggers
        if isinstance(each, PrometheusTrigger) and not servers.problem_of(each.server)
    )
    for manifest, found in objects:
        said, metrics = _converted(manifest.node, found, known)
        result.rules.extend(each.rule for each in metrics if each.rule)
        if specs := [each.spec for each in metrics if each.spec]:
            result.hpas.append(_hpa(found, others.new_name(found), specs))
        result.notes.extend(lines.findings(manifest, said))
    return result


def is_of_keda(manifest: Manifest) -> bool:
    """Return whether KEDA has created an HPA, and deletes it with its ScaledObject."""
    owners = nodes.items(nodes.mapping(manifest.node, "metadata"), "ownerReferences")
    return any(nodes.text(each, "kind") == "ScaledObject" for each in owners)


def _check_unique(manifests: Sequence[Manifest]) -> None:
    """Raise ConfigError if two objects have one namespace and name, and thus one metric."""
    first: dict[tuple[str, str], Manifest] = {}
    for each in manifests:
        namespace, name = keda.identity(each.node)
        other = first.setdefault((namespace, name), each)
        if other is not each:
            message = (
                f"ScaledObject {namespace}/{name} is also in {other.file}:{other.node.line}: set "
                "metadata.namespace, or remove one"
            )
            line = each.node.line
            raise ConfigError([in_file(State.FAILURE, message, file=each.file, line=line)])


class _Others:
    """Names and targets of the HPAs that exist or are written."""

    def __init__(self, manifests: Sequence[Manifest], objects: Sequence[ScaledObject]) -> None:
        self._targets: dict[tuple[str, ...], str] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._given = {(each.namespace, each.hpa_name) for each in objects}
        for each in manifests:
            if each.kind == "HorizontalPodAutoscaler" and not is_of_keda(each):
                identity = keda.identity(each.node)
                reference = nodes.mapping(nodes.mapping(each.node, "spec"), "scaleTargetRef")
                parts = {key: nodes.text(reference, key) for key in ("apiVersion", "kind", "name")}
                self._targets[_target(identity[0], parts)] = each.title
                self._names[identity] = each.title
                self._given.add(identity)

    def claim(self, found: ScaledObject) -> list[Line]:
        """Return why KEDA has no HPA beside the others; nothing for the first one."""
        title = f"ScaledObject {found.namespace}/{found.name}"
        target = _target(found.namespace, found.target)
        if (other := self._targets.setdefault(target, title)) != title:
            message = f"{other} already scales {found.target['kind']} {found.target['name']}"
            return [left_out((*_SPEC, "scaleTargetRef"), message)]
        name = (found.namespace, found.name_in_keda)
        if (other := self._names.setdefault(name, title)) != title:
            return [left_out((*CONFIG, "name"), f"{name[1]} is the name of the HPA of {other}")]
        return []

    def new_name(self, found: ScaledObject) -> str:
        """Return the name of the HPA: that of KEDA's if it is given, or else its own if free."""
        own_is_given = (found.namespace, found.name) in self._given
        return found.name_in_keda if found.hpa_name or own_is_given else found.name


def _target(namespace: str, target: Mapping[str, str]) -> tuple[str, ...]:
    group = target["apiVersion"].rpartition("/")[0]
    return (namespace, group, target["kind"], target["name"])


def _why_no_hpa(found: ScaledObject) -> list[Line]:
    """Return why an object that KEDA accepts has no HPA here."""
    reasons = []
    if found.is_annotated(keda.PAUSED):
        message = "KEDA is paused and has deleted its HPA; a new one would scale"
        reasons.append(left_out((*ANNOTATIONS, keda.PAUSED), message))
    if keda.PAUSED_REPLICAS in found.annotations:
        number = found.annotations[keda.PAUSED_REPLICAS]
        message = (
            f"KEDA is paused at {number} replicas and has deleted its HPA; a new one would scale"
        )
        reasons.append(left_out((*ANNOTATIONS, keda.PAUSED_REPLICAS), message))
    if found.has_formula:
        message = "KEDA scales on the formula alone: write a rule and an HPA with it"
        reasons.append(left_out((*_ADVANCED, "scalingModifiers"), message))
    return reasons


def _hpa(found: ScaledObject, name: str, metrics: Sequence[dict[str, Any]]) -> dict[str, Any]:
    behavior = {key: dict(rules) for key, rules in found.behavior.items()}
    for annotation, direction in _DISABLED.items():
        if found.is_annotated(annotation):
            behavior.setdefault(direction, {})["selectPolicy"] = "Disabled"
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {
            "name": name,
            "namespace": found.namespace,
            **({"labels": dict(found.labels)} if found.labels else {}),
        },
        "spec": {
            "scaleTargetRef": dict(found.target),
            "minReplicas": max(found.minimum, 1),
            "maxReplicas": found.maximum,
            "metrics": sorted(metrics, key=lambda each: str(each["type"])),
            **({"behavior": behavior} if behavior else {}),
        },
    }


def _converted(
    document: MappingNode, found: ScaledObject, known: Servers
) -> tuple[list[Line], list[triggers.MigratedMetric]]:
    """Return at least one line for each key, and the metric of each trigger."""
    stays_up = _why_never_zero(found)
    is_always_active = bool(stays_up) and found.idle is None
    metrics = [
        triggers.metric(
            trigger,
            (*_SPEC, "triggers", index),
            f"{found.namespace}_{found.name}_{index}",
            known,
            is_always_active=is_always_active,
        )
        for index, trigger in enumerate(found.triggers)
    ]
    said = [line for metric in metrics for line in metric.lines]
    if not any(metric.spec for metric in metrics):
        return [*said, left_out((), "no HPA is written: no trigger can be converted")], metrics
    said += [*_replica_lines(found, stays_up), *_annotation_lines(found), *_lines(document)]
    missing = [index for index, metric in enumerate(metrics) if metric.spec is None]
    if missing:
        message = "the HPA lacks the triggers that are left out, so it may give fewer replicas"
        said.append(differs(_SPEC, message))
    skipped = frozenset((*_SPEC, "triggers", index) for index in missing)
    return list(lines.complete(document, said, skipped)), metrics


def _why_never_zero(found: ScaledObject) -> str:
    """Return why KEDA never scales the target to zero; empty if it does."""
    if found.minimum:
        return f"minReplicas {found.minimum}"
    if found.is_annotated(keda.FORCE_ACTIVATION):
        return "minReplicas 1: force-activation keeps KEDA above zero"
    if all(isinstance(each, keda.ResourceTrigger) for each in found.triggers):
        return "minReplicas 1: cpu and memory alone keep KEDA above zero"
    activations = (
        each.activation for each in found.triggers if isinstance(each, PrometheusTrigger)
    )
    if (lowest := min(activations, default=0)) < 0:
        return f"minReplicas 1: KEDA is above zero while a value is above {lowest:g}"
    return ""


def _replica_lines(found: ScaledObject, stays_up: str) -> Iterator[Line]:
    least = max(found.minimum, 1)
    path: Path = (*_SPEC, "minReplicaCount")
    if stays_up:
        yield same(path, default=stays_up)
    else:
        message = "no HPA wakes a target that KEDA left at zero: scale it to 1 first"
        if not found.is_annotated(keda.PAUSED_SCALE_IN):
            message = f"KEDA goes to zero, the HPA to 1 (see docs/hpa-recipes.md); {message}"
        yield differs(path, message, is_default=True)
    yield same((*_SPEC, "maxReplicaCount"), default=f"maxReplicas {found.maximum}")
    message = (
        f"KEDA goes to {found.idle} without activity, the HPA to {least}. If KEDA left the target "
        f"at {found.idle}, scale it to {least} first"
    )
    yield left_out((*_SPEC, "idleReplicaCount"), message)
    for key in ("cooldownPeriod", "initialCooldownPeriod", "pollingInterval"):
        if stays_up and found.idle is None:
            message = "no effect: KEDA does not scale this target to zero"
            yield same((*_SPEC, key), message)
        else:
            message = "it is for the steps of KEDA to and from zero or idleReplicaCount"
            yield left_out((*_SPEC, key), message)


def _annotation_lines(found: ScaledObject) -> Iterator[Line]:
    for key in found.annotations:
        path: Path = (*ANNOTATIONS, key)
        effect = "no effect"
        if found.is_annotated(key):
            effect = f"behavior.{_DISABLED.get(key)}.selectPolicy: Disabled"
        if key in _DISABLED:
            yield same(path, effect)
        elif key == keda.PAUSED:
            yield same(path, "KEDA is not paused")
        elif key == keda.FORCE_ACTIVATION:
            yield same(path, "minReplicas is 1 or more")
        elif key == keda.EXCLUDED_LABELS:
            yield same(path, "the HPA does not have these labels")
        elif key != keda.APPLIED:
            yield left_out(path, "KEDA copies it to its HPA: annotate the HPA, if it is read there")


def _lines(document: MappingNode) -> Iterator[Line]:
    """Yield the lines that need only the text of the object."""
    if nodes.text(document, "apiVersion").startswith(keda.FIRST_GROUP):
        message = f"is of KEDA 1: read as by KEDA {keda.VERSION}"
        yield differs(("apiVersion",), message)
    spec = nodes.mapping(document, "spec")
    fallback, advanced = nodes.mapping(spec, "fallback"), nodes.mapping(spec, "advanced")
    number, replicas = (nodes.text(fallback, key) for key in ("failureThreshold", "replicas"))
    how = nodes.text(fallback, "behavior") or "static"
    message = (
        f"after more than {number} errors in a row KEDA proposes replicas ({replicas}, {how}); an "
        "HPA without a value keeps its replicas"
    )
    yield left_out((*_SPEC, "fallback"), message)
    restore = "restoreToOriginalReplicaCount"
    if nodes.text(advanced, restore) == "true":
        message = "deleting the ScaledObject sets the replicas from before KEDA: set false first"
        yield left_out((*_ADVANCED, restore), message)
    yield same((*_ADVANCED, restore))
    yield same((*_ADVANCED, "scalingModifiers"))
    yield same((*CONFIG, "name"), "as KEDA's HPA: wait until that is deleted")
    yield same(BEHAVIOR)
    yield same(("metadata", "labels"))
    if not nodes.text(nodes.mapping(document, "metadata"), "namespace"):
        message = "is not set: the HPA and its metrics are those of namespace default"
        yield differs(("metadata", "namespace"), message, is_default=True)
    message = "its owner may create the ScaledObject again after you delete it"
    yield left_out(("metadata", "ownerReferences"), message)
    target: Path = (*_SPEC, "scaleTargetRef")
    for key in ("apiVersion", "kind", "name", "deploymentName"):
        yield same((*target, key))
    message = "only triggers that read environment variables use it"
    yield left_out((*target, "envSourceContainerName"), message)
