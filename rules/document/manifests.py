"""Finds rules, and the flags of adapters, in manifests and Helm values.

For `check` and `migrate` only: the server reads rules files. Positions are those in the file that
people edit, also for rules inside the text of a ConfigMap.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rules.document import config, helm_values, nodes, yaml
from rules.document.found import Arguments, Found, HpaTarget, Manifest, RulesPart, merged
from rules.document.yaml import MappingNode, Node, Scalar

_SECTION = re.compile(rf"""^\s*["']?({"|".join(config.SECTIONS)})["']?\s*:""", re.MULTILINE)
_RULE_KEYS = frozenset(("seriesQuery", "metricsQuery"))
_POD_OWNERS = frozenset(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"))
_PROGRAM = re.compile(r"(prometheus|gpu-metrics)-adapter")
_FLAG = "--prometheus-url"
"""A container with this flag is an adapter, whatever its image."""


def find(content: bytes, *, file: str) -> Found | None:
    """Return what a file of manifests or of Helm values contains; None for a rules file."""
    loaded, problems = yaml.load_all(content, file=file)
    documents = [each for node in loaded for each in _flat(node)]
    if any(nodes.text(each, "kind") and nodes.text(each, "apiVersion") for each in documents):
        found = merged(_manifest(each, file) for each in documents)
        every = tuple(Manifest(file=file, node=each) for each in documents)
        found = replace(found, manifests=every)
    elif documents and (values := helm_values.chart_values(documents[0])):
        found = helm_values.parse(*values, file)
    else:
        return None
    return replace(found, problems=(*problems, *found.problems))


def has_section(content: bytes) -> bool:
    """Return whether a text may have one of the sections of a rules file."""
    return _SECTION.search(content.decode(errors="replace")) is not None


def _flat(document: Node) -> Iterator[MappingNode]:
    """Yield the document, or the items of a list, which `kubectl get` prints."""
    if not isinstance(document, MappingNode):
        return
    if nodes.text(document, "kind").endswith("List"):
        for item in nodes.items(document, "items"):
            yield from _flat(item)
    else:
        yield document


def _manifest(document: MappingNode, file: str) -> Found:
    kind = nodes.text(document, "kind")
    if kind == "ConfigMap":
        return _config_map(document, file)
    if kind == "Pod" or kind in _POD_OWNERS:
        spec = nodes.mapping(document, "spec")
        pod = spec if kind == "Pod" else nodes.mapping(nodes.mapping(spec, "template"), "spec")
        return _workload(document, pod, file)
    if kind == "HorizontalPodAutoscaler":
        return Found(targets=tuple(_targets(document, file)))
    if kind in helm_values.KINDS:
        return merged(helm_values.deployed(document, file))
    return Found()


def _targets(document: MappingNode, file: str) -> Iterator[HpaTarget]:
    """Yield the targets of custom and external metrics of an HPA of autoscaling/v2."""
    for metric in nodes.items(nodes.mapping(document, "spec"), "metrics"):
        kind = nodes.text(metric, "type")
        source = nodes.mapping(metric, kind.lower())
        target = nodes.mapping(source, "target")
        average = nodes.text(target, "averageValue")
        if name := nodes.text(nodes.mapping(source, "metric"), "name"):
            yield HpaTarget(
                title=nodes.title(document),
                metric=name,
                external=kind == "External",
                type=nodes.text(target, "type"),
                averaged=bool(average),
                value=average or nodes.text(target, "value"),
                selects="selector" in nodes.mapping(source, "metric").entries,
                file=file,
                line=target.line,
            )


def _config_map(document: MappingNode, file: str) -> Found:
    title = nodes.title(document)
    name = nodes.text(nodes.mapping(document, "metadata"), "name")
    parts = []
    data = nodes.mapping(document, "data")
    for key, entry in data.entries.items():
        if isinstance(entry.value, Scalar) and (parsed := _embedded_rules(entry.value, file, key)):
            where, result, node = parsed
            parts.append(
                RulesPart(
                    title=f"{title}, key {key}",
                    file=where,
                    line=entry.key.line,
                    parsed=result,
                    config_map=name,
                    key=key,
                    node=node,
                )
            )
    return Found(rules=tuple(parts), config_maps=((name, frozenset(data.entries)),))


def _embedded_rules(
    scalar: Scalar, file: str, key: str
) -> tuple[str, config.Parsed, MappingNode] | None:
    """Parse the text of a ConfigMap's key; None if it holds no rules."""
    text, file = nodes.embedded(scalar, file, key)
    node, problems = yaml.load(text, file=file)
    if isinstance(node, MappingNode) and _holds_rules(node):
        return file, config.parse_node(node, file=file, problems=problems), node
    if node is None and problems and _SECTION.search(text):
        return file, (None, problems), nodes.EMPTY
    return None


def _holds_rules(node: MappingNode) -> bool:
    """Return whether this is a rules file; other programs have lists called `rules`, too."""
    if not set(config.SECTIONS) & node.entries.keys():
        return False
    items = nodes.items(node, "rules")
    return not items or any(_RULE_KEYS & each.entries.keys() for each in nodes.mappings(items))


def _workload(document: MappingNode, pod: MappingNode, file: str) -> Found:
    volumes = {
        nodes.text(volume, "name"): nodes.mapping(volume, "configMap")
        for volume in nodes.items(pod, "volumes")
    }
    found = []
    for container in nodes.mappings(nodes.items(pod, "containers")):
        arguments = [
            each
            for key in ("command", "args")
            for each in nodes.items(container, key)
            if isinstance(each, Scalar)
        ]
        flags = any(each.text.startswith(_FLAG) for each in arguments)
        if not flags and not _PROGRAM.search(nodes.text(container, "image")):
            continue
        environment = {
            nodes.text(each, "name"): nodes.text(each, "value")
            for each in nodes.items(container, "env")
            if nodes.text(each, "value")
        }
        mounts = {}
        for mount in nodes.items(container, "volumeMounts"):
            volume = volumes.get(nodes.text(mount, "name"))
            if volume is not None and (name := nodes.text(volume, "name")):
                keys = {
                    nodes.text(e, "path"): nodes.text(e, "key")
                    for e in nodes.items(volume, "items")
                }
                path = posixpath.normpath(nodes.text(mount, "mountPath"))
                if sub_path := nodes.text(mount, "subPath"):
                    path, base = posixpath.split(path)
                    keys = {base: keys.get(sub_path, sub_path)}
                mounts[path] = (name, keys)
        found.append(
            Arguments(
                title=f"{nodes.title(document)}, container {nodes.text(container, 'name')}",
                file=file,
                line=container.line,
                arguments=tuple(_expanded(each, environment) for each in arguments),
                mounts=mounts,
                workload=document,
                container=container,
            )
        )
    return Found(arguments=tuple(found))


def _expanded(argument: Scalar, environment: Mapping[str, str]) -> Scalar:
    text = re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), argument.text)
    return replace(argument, value=text, tag="str")
