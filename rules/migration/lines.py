"""The lines of the report about all keys of a ScaledObject, also about keys that KEDA ignores."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rules.document.found import Manifest
from rules.document.yaml import MappingNode, Node, Scalar, SequenceNode
from rules.findings import Finding
from rules.migration import keda
from rules.migration.keda import ANNOTATIONS, BEHAVIOR, CONFIG
from rules.migration.notes import Line, Path, differs, left_out, note

_DIRECTIONS = ("scaleUp", "scaleDown")
_TRIGGER: Path = ("spec", "triggers", 0)
_METADATA = (
    "serverAddress query threshold activationThreshold ignoreNullValues namespace queryParameters "
    "customHeaders unsafeSsl timeout authModes authMode apiKey method keyParamName awsRegion "
    "identityOwner azureManagedPrometheusResourceURL cortexOrgID metricName value containerName"
)
METADATA = frozenset(_METADATA.split())
"""Keys of prometheus, cpu and memory triggers."""
LEVELS: Mapping[Path, str] = {
    (): "apiVersion kind metadata spec status",
    ("metadata",): "name namespace labels annotations ownerReferences creationTimestamp "
    "deletionGracePeriodSeconds deletionTimestamp finalizers generation managedFields "
    "resourceVersion selfLink uid",
    ANNOTATIONS: keda.APPLIED,
    ("spec",): f"scaleTargetRef triggers advanced fallback {' '.join(keda.INTEGERS)}",
    ("spec", "scaleTargetRef"): "apiVersion kind name deploymentName envSourceContainerName",
    CONFIG[:-1]: f"{CONFIG[-1]} restoreToOriginalReplicaCount scalingModifiers",
    CONFIG: "name behavior",
    BEHAVIOR: " ".join(_DIRECTIONS),
    **{
        (*BEHAVIOR, each): "stabilizationWindowSeconds selectPolicy policies tolerance"
        for each in _DIRECTIONS
    },
    **{(*BEHAVIOR, each, "policies", 0): "type value periodSeconds" for each in _DIRECTIONS},
    _TRIGGER: "type name metricType metadata authenticationRef useCachedMetrics",
    (*_TRIGGER, "metadata"): _METADATA,
}
"""Mappings of a ScaledObject, with 0 for each index -> the keys that have a meaning."""


def complete(
    document: MappingNode, lines: Sequence[Line], skipped: frozenset[Path]
) -> Iterator[Line]:
    """Yield the lines about keys that exist, then one for each key without a meaning.

    `same` is dropped if something else is said of the key. Below the paths in `skipped`, no key is
    looked up.
    """
    others = {each.path for each in lines if each.verdict != "same"}
    for each in lines:
        if each.verdict == "same" and each.path in others:
            continue
        if each.is_default or _reached(document, each.path) is not None:
            yield each
    yield from _unread(document, (), {each.path for each in lines}, skipped)


def findings(manifest: Manifest, lines: Iterable[Line]) -> Iterator[Finding]:
    """Yield a finding for each line, at its key or the nearest one above."""
    for line in lines:
        parts = (f"[{each}]" if isinstance(each, int) else f".{each}" for each in line.path)
        subject = "".join(parts).removeprefix(".") or manifest.title
        if line.is_default and _reached(manifest.node, line.path) is None:
            subject += " (default)"
        position = _position(manifest.node, line.path).line
        yield note(line.verdict, subject, line.message, file=manifest.file, line=position)


def _unread(node: Node, path: Path, said: set[Path], skipped: frozenset[Path]) -> Iterator[Line]:
    """Yield a line for each key below `path` that KEDA ignores, or whose quotes are wrong."""
    if path in skipped:
        return
    if isinstance(node, SequenceNode):
        for index, item in enumerate(node.items):
            yield from _unread(item, (*path, index), said, skipped)
    pattern = tuple(0 if isinstance(each, int) else each for each in path)
    if not isinstance(node, MappingNode) or pattern not in LEVELS:
        return
    known = LEVELS[pattern].split()
    for key, entry in node.entries.items():
        below = (*path, key)
        if key not in known and below not in said:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
            hint = f": did you mean {near[0]}?" if near else ""
            yield left_out(below, f"no such key, so KEDA ignores it{hint}")
        if isinstance(entry.value, Scalar) and (message := _mistyped(pattern, key, entry.value)):
            yield differs(below, message)
        yield from _unread(entry.value, below, said, skipped)


def _mistyped(pattern: Path, key: str, value: Scalar) -> str:
    if pattern == (*_TRIGGER, "metadata") and value.tag not in ("str", "null"):
        return f"the API server refuses it without quotes; read as {value.text!r}"
    if pattern == ("spec",) and key in keda.INTEGERS and value.tag == "str":
        return f"the API server refuses it in quotes; read as {value.text}"
    return ""


def _reached(document: MappingNode, path: Path) -> Node | None:
    """Return the value at a path; None if there is none."""
    node: Node = document
    for each in path:
        match node, each:
            case MappingNode(entries=entries), str() if each in entries:
                node = entries[each].value
            case SequenceNode(items=items), int() if each < len(items):
                node = items[each]
            case _:
                return None
    return node


def _position(document: MappingNode, path: Path) -> Node:
    """Return the key at a path, or the nearest one above."""
    for length in range(len(path), 0, -1):
        *above, last = path[:length]
        match _reached(document, tuple(above)), last:
            case MappingNode(entries=entries), str() if last in entries:
                return entries[last].key
            case SequenceNode(items=items), int() if last < len(items):
                return items[last]
    return document
