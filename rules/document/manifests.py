"""Finds rules, and the flags of adapters, in manifests and Helm values.

For `check` only: the server reads rules files. Positions are those in the file that people edit,
also for rules inside the text of a ConfigMap.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from rules.document import config, yaml
from rules.document.schema import Fields, Record
from rules.document.yaml import MappingNode, Node, Scalar, SequenceNode
from rules.errors import Problem

_SECTION = re.compile(rf"""^\s*["']?({"|".join(config.SECTIONS)})["']?\s*:""", re.MULTILINE)
_RULE_KEYS = frozenset(("seriesQuery", "metricsQuery"))
_VALUES = ("default", "custom", "existing", "external", "resource")
"""Keys of `rules` in the values of the prometheus-adapter chart."""
_CHART = "prometheus-adapter"
"""Name of the chart, below which a chart that depends on it has its values."""
_POD_OWNERS = frozenset(("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet"))
_PROGRAM = re.compile(r"(prometheus|gpu-metrics)-adapter")
_DEPLOYED = ("Application", "HelmRelease")
"""Kinds of Argo CD and Flux that hold Helm values."""
_FLAG = "--prometheus-url"
"""A container with this flag is an adapter, whatever its image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesPart:
    """Rules in a manifest, or in Helm values."""

    title: str
    file: str
    line: int
    parsed: config.Parsed
    config_map: str = ""
    """Name of the ConfigMap; empty for Helm values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """Arguments of an adapter in the manifest of a workload, or in Helm values."""

    title: str
    file: str
    line: int
    arguments: tuple[Scalar, ...]
    """Without the program's name; `$(NAME)` is replaced where the manifest has the value."""
    mounts: Mapping[str, tuple[str, Mapping[str, str]]]
    """Directory -> name of the ConfigMap that is mounted there, and its files and their keys."""

    def problem(self, message: str) -> Problem:
        """Return an error about the flag with which the message starts."""
        name = re.split(r"[=:, ]", message, maxsplit=1)[0]
        at = next((each for each in self.arguments if each.text.startswith(name)), None)
        line, column = (at.line, at.column) if at else (self.line, 0)
        return Problem(severity="error", message=message, file=self.file, line=line, column=column)

    def key_of(self, path: str) -> tuple[str, str] | None:
        """Return the ConfigMap and the key that are mounted as `path`; None if none is known."""
        directory, name = posixpath.split(posixpath.normpath(path))
        if directory not in self.mounts:
            return None
        config_map, keys = self.mounts[directory]
        return config_map, keys.get(name, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the documents of one file contain."""

    rules: tuple[RulesPart, ...] = ()
    arguments: tuple[Arguments, ...] = ()
    config_maps: tuple[tuple[str, frozenset[str]], ...] = ()
    """Each ConfigMap with its keys."""
    problems: tuple[Problem, ...] = ()


_EMPTY = MappingNode(entries={}, line=1, column=1)


def find(content: bytes, *, file: str) -> Found | None:
    """Return what a file of manifests or of Helm values contains; None for a rules file."""
    nodes, problems = yaml.load_all(content, file=file)
    documents = [each for node in nodes for each in _flat(node)]
    if any(_text(each, "kind") and _text(each, "apiVersion") for each in documents):
        found = _merged(_manifest(each, file) for each in documents)
    elif documents and (values := _chart_values(documents[0])):
        found = _values(*values, file)
    else:
        return None
    return replace(found, problems=(*problems, *found.problems))


def _merged(parts: Iterable[Found]) -> Found:
    every = tuple(parts)
    return Found(
        rules=tuple(each for part in every for each in part.rules),
        arguments=tuple(each for part in every for each in part.arguments),
        config_maps=tuple(each for part in every for each in part.config_maps),
        problems=tuple(each for part in every for each in part.problems),
    )


def _flat(document: Node) -> Iterator[MappingNode]:
    """Yield the document, or the items of a list, which `kubectl get` prints."""
    if not isinstance(document, MappingNode):
        return
    if _text(document, "kind").endswith("List"):
        for item in _items(document, "items"):
            yield from _flat(item)
    else:
        yield document


def _manifest(document: MappingNode, file: str) -> Found:
    kind = _text(document, "kind")
    if kind == "ConfigMap":
        return _config_map(document, file)
    if kind == "Pod" or kind in _POD_OWNERS:
        spec = _mapping(document, "spec")
        pod = spec if kind == "Pod" else _mapping(_mapping(spec, "template"), "spec")
        return _workload(document, pod, file)
    if kind in _DEPLOYED:
        return _merged(_deployed(document, file))
    return Found()


def _config_map(document: MappingNode, file: str) -> Found:
    title = _title(document)
    name = _text(_mapping(document, "metadata"), "name")
    parts = []
    data = _mapping(document, "data")
    for key, entry in data.entries.items():
        if isinstance(entry.value, Scalar) and (parsed := _embedded_rules(entry.value, file, key)):
            where, result = parsed
            parts.append(
                RulesPart(
                    title=f"{title}, key {key}",
                    file=where,
                    line=entry.key.line,
                    parsed=result,
                    config_map=name,
                )
            )
    return Found(rules=tuple(parts), config_maps=((name, frozenset(data.entries)),))


def _embedded_rules(scalar: Scalar, file: str, key: str) -> tuple[str, config.Parsed] | None:
    """Parse the text of a ConfigMap's key; None if it holds no rules."""
    text, file = _embedded(scalar, file, key)
    node, problems = yaml.load(text, file=file)
    if isinstance(node, MappingNode) and _holds_rules(node):
        return file, config.parse_node(node, file=file, problems=problems)
    if node is None and problems and _SECTION.search(text):
        return file, (None, problems)
    return None


def _embedded(scalar: Scalar, file: str, key: str) -> tuple[str, str]:
    """Return the text of a string that is YAML itself, and the name of its file.

    A literal block keeps its lines and columns, because everything around it is replaced by line
    breaks. Positions in any other text count from its beginning, which the file's name shows.
    """
    if scalar.style == "|":
        _, _, body = scalar.source.partition("\n")
        return "\n" * scalar.line + body, file
    return scalar.text, f"{file} ({key})"


def _deployed(document: MappingNode, file: str) -> Iterator[Found]:
    """Yield what the Helm values in an Application of Argo CD or a HelmRelease of Flux contain."""
    spec = _mapping(document, "spec")
    for source in (_mapping(spec, "source"), *_mappings(_items(spec, "sources"))):
        helm = _mapping(source, "helm")
        if (values := _chart_values(_mapping(helm, "valuesObject"))) is not None:
            yield _values(*values, file)
        text = helm.entries["values"].value if "values" in helm.entries else None
        if isinstance(text, Scalar):
            content, where = _embedded(text, file, "values")
            node, problems = yaml.load(content, file=where)
            if isinstance(node, MappingNode) and (values := _chart_values(node)) is not None:
                found = _values(*values, where)
                yield replace(found, problems=(*problems, *found.problems))
    if (values := _chart_values(_mapping(spec, "values"))) is not None:
        yield _values(*values, file)


def _holds_rules(node: MappingNode) -> bool:
    """Return whether this is a rules file; other programs have lists called `rules`, too."""
    if not set(config.SECTIONS) & node.entries.keys():
        return False
    items = _items(node, "rules")
    return not items or any(_RULE_KEYS & each.entries.keys() for each in _mappings(items))


def _workload(document: MappingNode, pod: MappingNode, file: str) -> Found:
    volumes = {
        _text(volume, "name"): _mapping(volume, "configMap") for volume in _items(pod, "volumes")
    }
    found = []
    for container in _items(pod, "containers"):
        arguments = [
            each
            for key in ("command", "args")
            for each in _items(container, key)
            if isinstance(each, Scalar)
        ]
        flags = any(each.text.startswith(_FLAG) for each in arguments)
        if not flags and not _PROGRAM.search(_text(container, "image")):
            continue
        environment = {
            _text(each, "name"): _text(each, "value")
            for each in _items(container, "env")
            if _text(each, "value")
        }
        mounts = {}
        for mount in _items(container, "volumeMounts"):
            volume = volumes.get(_text(mount, "name"))
            if volume is not None and (name := _text(volume, "name")):
                keys = {_text(e, "path"): _text(e, "key") for e in _items(volume, "items")}
                path = posixpath.normpath(_text(mount, "mountPath"))
                if sub_path := _text(mount, "subPath"):
                    path, base = posixpath.split(path)
                    keys = {base: keys.get(sub_path, sub_path)}
                mounts[path] = (name, keys)
        found.append(
            Arguments(
                title=f"{_title(document)}, container {_text(container, 'name')}",
                file=file,
                line=container.line,
                arguments=tuple(_expanded(each, environment) for each in arguments),
                mounts=mounts,
            )
        )
    return Found(arguments=tuple(found))


def _expanded(argument: Scalar, environment: Mapping[str, str]) -> Scalar:
    text = re.sub(r"\$\((\w+)\)", lambda match: environment.get(match[1], match[0]), argument.text)
    return Scalar(
        value=text,
        tag="str",
        style=argument.style,
        source=argument.source,
        line=argument.line,
        column=argument.column,
    )


def _chart_values(document: MappingNode) -> tuple[MappingNode, str] | None:
    """Return the values of the chart and their path; None if the document has none."""
    for values, path in ((document, ""), (_mapping(document, _CHART), _CHART)):
        has_rules = set(_VALUES) & _mapping(values, "rules").entries.keys()
        if has_rules or "url" in _mapping(values, "prometheus").entries:
            return values, path
    return None


def _values(values: MappingNode, path: str, file: str) -> Found:
    problems: list[Problem] = []
    rules = _effective(values)
    record = Record(file, path, problems)
    if misplaced := _mapping(values, "prometheus").entries.get("rules"):
        message = "is not a value of the chart and has no effect. Move rules out of prometheus"
        record.report("warning", "prometheus.rules", misplaced.key, message)
    top = Fields(record, rules, "rules", known=_VALUES)
    if top.get("existing") is None:
        _warn_of_default(record, rules)
    parsed = config.parse_sections(top, "custom", "external", "resource")
    if top.get("existing") is not None:
        message = "replaces the rules of these values, which have no effect: check the ConfigMap"
        node = rules.entries["existing"].value
        problems.append(_warning(file, node, yaml.join(path, "rules.existing"), message))
    title = "Helm values"
    part = RulesPart(title=title, file=file, line=rules.line, parsed=(parsed[0], tuple(problems)))
    arguments = tuple(e for e in _items(values, "extraArguments") if isinstance(e, Scalar))
    flags = Arguments(
        title=f"{title}, extraArguments",
        file=file,
        line=values.line,
        arguments=arguments,
        mounts={},
    )
    return Found(rules=(part,), arguments=(flags,) if arguments else ())


def _effective(values: MappingNode) -> MappingNode:
    """Return the rules without empty mappings, which the chart ignores (`resource: {}`)."""
    if "rules" not in values.entries:
        return replace(_EMPTY, line=values.line, column=values.column)
    rules = _mapping(values, "rules")
    entries = {
        key: entry
        for key, entry in rules.entries.items()
        if not isinstance(entry.value, MappingNode) or entry.value.entries
    }
    return replace(rules, entries=entries)


def _warn_of_default(record: Record, rules: MappingNode) -> None:
    default = rules.entries.get("default")
    if default is not None and getattr(default.value, "value", "") == "false":
        return
    message = (
        "is true unless it is set: the chart adds six rules that match nearly every series, and "
        "discovery lists thousands of metrics. Set it to false if the other rules suffice"
    )
    node = default.value if default else rules
    record.report("warning", "rules.default", node, message)


def _warning(file: str, node: Node, path: str, message: str) -> Problem:
    return Problem(
        severity="warning",
        message=message,
        path=path,
        file=file,
        line=node.line,
        column=node.column,
    )


def _title(document: MappingNode) -> str:
    metadata = _mapping(document, "metadata")
    names = (_text(metadata, "namespace"), _text(metadata, "name"))
    return f"{_text(document, 'kind')} {'/'.join(filter(None, names))}"


def _mapping(node: Node, key: str) -> MappingNode:
    """Return the mapping at `key`; an empty one if there is none."""
    entry = node.entries.get(key) if isinstance(node, MappingNode) else None
    return entry.value if entry and isinstance(entry.value, MappingNode) else _EMPTY


def _mappings(nodes: Iterable[Node]) -> Iterator[MappingNode]:
    return (each for each in nodes if isinstance(each, MappingNode))


def _items(node: Node, key: str) -> tuple[Node, ...]:
    entry = node.entries.get(key) if isinstance(node, MappingNode) else None
    return entry.value.items if entry and isinstance(entry.value, SequenceNode) else ()


def _text(node: Node, key: str) -> str:
    entry = node.entries.get(key) if isinstance(node, MappingNode) else None
    return entry.value.text if entry and isinstance(entry.value, Scalar) else ""
