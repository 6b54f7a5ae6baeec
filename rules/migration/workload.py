"""A Deployment of prometheus-adapter with its ConfigMap, as values of our chart.

`PLACES`, `FLAGS` and `SECTIONS` say which value is which field, flag and key of a rules file;
`overlay` reads them in the other direction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rules.document import nodes
from rules.document.found import Arguments, Found, RulesPart
from rules.document.yaml import MappingNode, Node, Scalar
from rules.errors import ConfigError
from rules.findings import Finding
from rules.migration import chart
from rules.migration.notes import Notes

_POD = ("spec", "template", "spec")
_LEVELS = (("spec",), ("spec", "template"), _POD, ("spec", "template", "metadata"))
CONTAINER = (*_POD, "containers")
PLACES = {
    "replicas": ("spec", "replicas"),
    "strategy": ("spec", "strategy"),
    "revisionHistoryLimit": ("spec", "revisionHistoryLimit"),
    "podAnnotations": ("spec", "template", "metadata", "annotations"),
    "podLabels": ("spec", "template", "metadata", "labels"),
    "podSecurityContext": (*_POD, "securityContext"),
    **{
        name: (*_POD, name)
        for name in (
            "affinity",
            "topologySpreadConstraints",
            "nodeSelector",
            "tolerations",
            "priorityClassName",
            "dnsConfig",
            "dnsPolicy",
        )
    },
    **{name: (*CONTAINER, name) for name in ("env", "resources", "securityContext")},
}
"""Value -> path of the same field in a Deployment; `containers` stands for the adapter's."""

_OURS = {
    ("spec",): {"selector", "template"},
    ("spec", "template"): {"metadata", "spec"},
    _POD: {"containers", "volumes", "serviceAccountName", "serviceAccount"},
    CONTAINER: {
        *("name", "image", "imagePullPolicy", "args", "command", "ports", "volumeMounts"),
        *("livenessProbe", "readinessProbe", "startupProbe"),
    },
}
"""Path -> fields that the chart sets itself."""
FLAGS = {"metrics-relist-interval": "metricsRelistInterval", "v": "logLevel"}
"""Flag -> value that the overlay has as this flag, too."""
_FLAGS = {**FLAGS, "secure-port": "listenPort"}
SECTIONS = {
    "sources": "sources",
    "rules": "custom",
    "externalRules": "external",
    "resourceRules": "resource",
}
"""Key of a rules file -> key below `rules` in the values."""
_VOLUMES = frozenset(("config", "tmp", "volume-serving-cert", "external-fallback"))
"""Names of the volumes of the chart."""
_DIRECTORIES = frozenset(
    ("/tmp", "/etc/adapter", "/var/run/serving-cert", "/etc/external-fallback")  # noqa: S108
)
"""Where the chart mounts them."""
_SERVING = frozenset(("tls-cert-file", "tls-private-key-file"))


def convert(
    found: Arguments, files: Found, unusable: Mapping[str, str]
) -> tuple[dict[str, Any], list[Finding]]:
    """Return the values for a Deployment, and notes about its fields and flags.

    `files` has all ConfigMaps, `unusable` the flags that are left out and why. Raises ConfigError
    if the ConfigMap of --config is among the files, and has no rules.
    """
    notes = Notes(found.file)
    values: dict[str, Any] = {"rules": {"default": False}}
    for path in _LEVELS:
        _fields(path, _below(found.workload, path), values, notes)
    _fields(CONTAINER, found.container, values, notes)
    _parts_of_pod(found, values, notes)
    extra: list[str] = []
    for name, value, node in _flags(found.arguments):
        text = f"--{name}={value}" if value is not None else f"--{name}"
        if name in _FLAGS:
            number = value or ""
            values[_FLAGS[name]] = int(number) if number.isdecimal() else number
            notes.same(text, node, _FLAGS[name])
        elif name == "prometheus-url":
            values["prometheus"] = {"url": value, "port": "", "path": ""}
            notes.same(text, node, "prometheus.url")
        elif name == "config":
            _rules(text, value or "", node, found, files, values, notes)
        elif name in unusable:
            notes.left_out(text, node, unusable[name])
        elif name in _SERVING:
            notes.left_out(text, node, "set tls.existingSecret to the Secret with these files")
        elif name == "cert-dir":
            notes.left_out(text, node, "the adapter keeps its certificate in memory")
        else:
            mounts = [str(each["mountPath"]) for each in values.get("extraVolumeMounts", ())]
            if problem := chart.unmounted(text, mounts):
                notes.left_out(text, node, problem)
                continue
            extra.append(text)
            notes.same(text, node, "extraArguments")
    if extra:
        values["extraArguments"] = extra
    return values, notes.notes


def of_config_map(part: RulesPart) -> tuple[dict[str, Any], list[Finding]]:
    """Return the values for the rules in a ConfigMap that no known Deployment mounts."""
    notes = Notes(part.file)
    values: dict[str, Any] = {"rules": {"default": False}}
    _sections(part, values, notes)
    notes.left_out(part.title, part.node, "has no URL: set prometheus.url")
    return values, notes.notes


def _below(node: MappingNode, path: Sequence[str]) -> MappingNode:
    for name in path:
        node = nodes.mapping(node, name)
    return node


def _fields(path: tuple[str, ...], node: MappingNode, values: dict[str, Any], notes: Notes) -> None:
    known = {place: value for value, place in PLACES.items()}
    for name, entry in node.entries.items():
        shown = ".".join((*path, name))
        value = known.get((*path, name))
        if value:
            content = nodes.plain(entry.value)
            if content in ({}, []):
                continue  # as if it were absent; the API server adds such fields
            values[value] = content
            notes.same(shown, entry.key, value)
        elif name in _OURS.get(path, ()):
            continue
        else:
            notes.left_out(shown, entry.key, "is not a value of the chart")


def _parts_of_pod(found: Arguments, values: dict[str, Any], notes: Notes) -> None:
    """Copy volumes with their mounts, and add notes about them and about further containers."""
    pod = _below(found.workload, _POD)
    with_rules = {name for name, _ in found.mounts.values()}
    mounted = nodes.mappings(nodes.items(found.container, "volumeMounts"))
    mounts = [nodes.plain(each) for each in mounted]
    for volume in nodes.mappings(nodes.items(pod, "volumes")):
        if nodes.text(nodes.mapping(volume, "configMap"), "name") in with_rules:
            continue
        name = nodes.text(volume, "name")
        own = [each for each in mounts if each.get("name") == name]
        paths = {str(each.get("mountPath")).rstrip("/") for each in own}
        if name in _VOLUMES or paths & _DIRECTORIES or not own:
            message = "the chart has a volume of this name, or at this path, or nothing mounts it"
            notes.left_out(f"volume {name}", volume, message)
            continue
        values.setdefault("extraVolumes", []).append(nodes.plain(volume))
        values.setdefault("extraVolumeMounts", []).extend(own)
        notes.same(f"volume {name}", volume, "extraVolumes and extraVolumeMounts")
    for other in nodes.mappings(nodes.items(pod, "containers")):
        if other is not found.container:
            name = nodes.text(other, "name")
            notes.left_out(f"container {name}", other, "add it to extraContainers")


def _flags(arguments: Sequence[Scalar]) -> Iterator[tuple[str, str | None, Scalar]]:
    """Yield name, value and node of each flag; the value may be the next argument."""
    rest = list(arguments)
    while rest:
        first = rest.pop(0)
        if not first.text.startswith("-"):
            continue  # the program
        name, equals, value = first.text.lstrip("-").partition("=")
        if not equals and rest and not rest[0].text.startswith("-"):
            value, equals = rest.pop(0).text, "="
        yield name.replace("_", "-") if name != "v" else name, value if equals else None, first


def _rules(
    text: str,
    path: str,
    node: Node,
    found: Arguments,
    files: Found,
    values: dict[str, Any],
    notes: Notes,
) -> None:
    mounted = found.key_of(path)
    part = next((each for each in files.rules if mounted == (each.config_map, each.key)), None)
    if part is not None:
        notes.same(text, node, f"the rules of {part.title}")
        _sections(part, values, notes)
    elif mounted and mounted[0] in dict(files.config_maps):
        message = f"ConfigMap {mounted[0]} has no rules in its key {mounted[1]}"
        raise ConfigError([found.problem(text, message)])
    elif mounted and mounted[1] == "config.yaml":
        values["rules"]["existing"] = mounted[0]
        notes.same(text, node, f"rules.existing: {mounted[0]}, which is not among the files")
    else:
        notes.left_out(text, node, "its ConfigMap is not among the files: add it")


def _sections(part: RulesPart, values: dict[str, Any], notes: Notes) -> None:
    for section, entry in part.node.entries.items():
        values["rules"][SECTIONS[section]] = nodes.plain(entry.value)
        if section in ("resourceRules", "sources"):
            notes.same(section, entry.key, f"rules.{SECTIONS[section]}")
        else:
            external = section == "externalRules"
            chart.about_rules(entry.value, section, notes, external=external)
