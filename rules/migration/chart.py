"""Values of the prometheus-adapter chart as values of our chart, with a note about each key.

Our chart takes them unchanged, so only keys without an effect are left out. The differences are
those that the README of our chart lists.
"""

from __future__ import annotations

import importlib.resources
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rules.document import nodes
from rules.document.found import HelmValues
from rules.document.yaml import MappingNode, Node, SequenceNode, join
from rules.findings import Finding
from rules.migration.notes import Notes, number

_TABLE: Mapping[str, Any] = json.loads(
    (importlib.resources.files(__package__) / "chart_keys.json").read_text(encoding="utf-8")
)
"""Made of values.yaml of our chart by tools/docs.py."""
_ONLY_OURS = frozenset(_TABLE["new"])
"""Values without which the original's chart renders the same."""
KEYS = _ONLY_OURS | frozenset(_TABLE["both"])
"""Paths of the values of our chart, without those below mappings with free keys."""
_REASONS: Mapping[str, str] = _TABLE["without_effect"]
"""Why frequent keys have no effect, as the chart says it."""

_FILE_FLAG = re.compile(r"--?(?P<name>[a-z0-9-]+(?:-file|kubeconfig|-auth-config))=(?P<path>.*)")
_READABLE = ("/etc/ssl", "/var/run/secrets", "/run/secrets")
"""Directories that the pod has without a volume."""

_PARENTS = frozenset(
    key.rsplit(".", depth)[0] for key in KEYS for depth in (1, 2) if key.count(".") >= depth
)
_ORIGINAL = re.compile(r"(^|/)(k8s-)?prometheus-adapter(-[a-z0-9]+)?$")
_DEFAULT_REPOSITORY = "prometheus-adapter/prometheus-adapter"
"""Of the original's chart."""
_HANDLERS = frozenset(("exec", "tcpSocket", "grpc"))
_DEFAULTS = ("replicas", "resources", "livenessProbe", "readinessProbe", "securityContext")
"""Keys with other defaults than in the original's chart."""


def convert(found: HelmValues, unusable: Mapping[str, str]) -> tuple[dict[str, Any], list[Finding]]:
    """Return the values of our chart, and notes about all keys.

    `unusable` has the flags that are left out and why.
    """
    notes = Notes(found.file)
    values = _copied(found.node, "", found.path, notes)
    _arguments(found, values, unusable, notes)
    image = values.get("image")
    if isinstance(image, dict) and _is_original(image.get("repository", _DEFAULT_REPOSITORY)):
        image.pop("repository", None)
        image.pop("tag", None)
    # Helm merges an empty mapping with the defaults of the chart.
    unset = [key for key in _DEFAULTS if not values.get(key)]
    if unset:
        message = "not set: other defaults, see manifests/chart/README.md"
        notes.either(", ".join(unset), found.node, message)
    if found.path:
        message = "other keys of the parent chart belong to its other parts and are not read"
        notes.same(found.path, found.node, message)
    return values, notes.notes


def unmounted(flag: str, mounts: Iterable[str]) -> str:
    """Return what to do if a flag (`--name=path`) names a file that no volume has, else ''."""
    match = _FILE_FLAG.fullmatch(flag)
    path = match["path"].rpartition("=")[2] if match else ""
    directories = (each.rstrip("/") for each in (*_READABLE, *mounts))
    if not path or any(path == each or path.startswith(f"{each}/") for each in directories):
        return ""
    return "nothing is mounted there: add extraVolumes and extraVolumeMounts, then the flag"


def _arguments(
    found: HelmValues, values: dict[str, Any], unusable: Mapping[str, str], notes: Notes
) -> None:
    """Leave out flags that the adapter does not have, or whose file is not mounted."""
    if "extraArguments" not in values:
        return
    mounted = nodes.mappings(nodes.items(found.node, "extraVolumeMounts"))
    mounts = [nodes.text(each, "mountPath") for each in mounted]
    kept = []
    for node in nodes.items(found.node, "extraArguments"):
        text = str(nodes.plain(node))
        reason = unusable.get(text.lstrip("-").partition("=")[0]) or unmounted(text, mounts)
        if reason:
            notes.left_out(text, node, reason)
        else:
            kept.append(text)
    values["extraArguments"] = kept


def _copied(node: MappingNode, path: str, prefix: str, notes: Notes) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, entry in node.entries.items():
        key, shown = join(path, name), join(prefix, join(path, name))
        if key in _PARENTS and isinstance(entry.value, MappingNode):
            if below := _copied(entry.value, key, prefix, notes):
                values[name] = below
        elif key in KEYS:
            values[name] = nodes.plain(entry.value)
            if key in {"rules.custom", "rules.external"}:
                about_rules(entry.value, shown, notes, external=key == "rules.external")
            else:
                check = DIFFERENCES.get(key, _only_ours(key))
                message = check(values[name], node) if check else ""
                notes.either(shown, entry.key, message)
        else:
            notes.left_out(shown, entry.key, _reason(key))
    return values


def about_rules(node: Node, path: str, notes: Notes, *, external: bool) -> None:
    """Add a note about each rule of a list."""
    listed = node.items if isinstance(node, SequenceNode) else ()
    for index, rule in enumerate(listed):
        messages = "; ".join(_about_rule(rule, external=external))
        notes.either(f"{path}[{index}]", rule, messages)
    if not listed:
        notes.same(path, node)


def _about_rule(rule: Node, *, external: bool) -> Iterator[str]:
    query = nodes.text(rule, "metricsQuery")
    name = nodes.text(nodes.mapping(rule, "name"), "as")
    if not external and query and ".GroupBy" not in query:
        yield f"several samples for one object are aggregated, {number(2)}"
    if "/" in query or "histogram_quantile" in query:
        yield f"NaN is no value, or 0 with onNaN: zero, {number(3)}"
    if external and name != name.lower():
        yield f"the name also matches in lower case, {number(7)}"


def _only_ours(key: str) -> Callable[[Any, MappingNode], str] | None:
    if key not in _ONLY_OURS:
        return None
    return _if(bool, "has an effect here, unlike in the original's chart, which has no such value")


def _reason(key: str) -> str:
    near = next((each for each in KEYS if each.lower() == key.lower()), "")
    if near:
        return f"has no effect: did you mean {near}?"
    return _REASONS.get(key, "has no effect: the chart has no such key")


def _is_original(repository: object) -> bool:
    return bool(_ORIGINAL.search(str(repository or "")))


def _tag(_: Any, image: MappingNode) -> str:
    repository = nodes.text(image, "repository") or _DEFAULT_REPOSITORY
    return "is of prometheus-adapter's image: left out" if _is_original(repository) else ""


def _probe(value: Any, _: MappingNode) -> str:
    given = isinstance(value, dict) and _HANDLERS & value.keys()
    return "this handler replaces httpGet" if given else ""


def _if(condition: Callable[[Any], object], message: str) -> Callable[[Any, MappingNode], str]:
    """Return a check that says `message` for values that meet the condition."""
    return lambda value, _: message if condition(value) else ""


DIFFERENCES: Mapping[str, Callable[[Any, MappingNode], str]] = {
    "image.repository": _if(
        _is_original, "is prometheus-adapter's: left out with its tag; set image.registry"
    ),
    "image.tag": _tag,
    "podDisruptionBudget.minAvailable": _if(
        lambda value: value is not None, "replaces maxUnavailable: the API refuses both"
    ),
    "livenessProbe": _probe,
    "readinessProbe": _probe,
    "startupProbe": _probe,
    "strategy": _if(
        lambda value: isinstance(value, dict) and value.get("type") == "Recreate",
        "rollingUpdate is left out: the API refuses it",
    ),
    "hostNetwork.enabled": _if(bool, "the default of dnsPolicy is ClusterFirstWithHostNet"),
    "prometheus.url": _if(
        lambda value: "://" not in str(value or ""), "has no scheme: http:// is added"
    ),
    "service.port": _if(lambda value: value != 443, "is in the APIServices, too"),
    "tls.enable": _if(
        bool, "needs PEM in tls.certificate and tls.key; without tls.ca, nothing is verified"
    ),
    "certManager.enabled": _if(bool, "tls.enable has no effect beside it"),
    "customAnnotations": _if(bool, "does not add the annotations of cert-manager's injector"),
    "rbac.useAuthReaderClusterRole": _if(bool, "creates the ClusterRole that it binds"),
    "rbac.customMetrics.resources": _if(bool, "get and list for the HPA controller, not all verbs"),
    "rules.existing": _if(bool, f"changes are read without a restart, {number(29)}"),
    "rules.default": _if(bool, "six rules that match nearly every series: --preset of that name"),
    "rules.resource": _if(
        bool, "pods that have not finished count: further differences in docs/migration.md"
    ),
}
"""Path -> check of the value; it returns what is different, or an empty text."""
