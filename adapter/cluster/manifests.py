"""Objects from plain manifests instead of a cluster: for the demo, and for trying rules out.

Reads what `kubectl get -o yaml` prints and `kubectl apply` takes: several documents, lists,
CustomResourceDefinitions, which teach their kinds. Whatever is wrong is told with file and
document, all at once.
"""

from __future__ import annotations

import pathlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from adapter import errors
from rules.errors import UnknownResourceError
from rules.kinds import NAMESPACES, PODS, ApiGroup, ApiResource, GroupResource, Kinds
from rules.selectors.selectors import Selector

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_Taught = dict[str, dict[str, list[ApiResource]]]
"""Group -> version -> resources that the manifests add to those that every cluster has."""


class FileObjects:
    """Objects of manifests; make it with `load`.

    A kind that neither every cluster has nor a CustomResourceDefinition teaches gets a plural as
    Kubernetes guesses one, and is taken for namespaced.
    """

    def __init__(self, kinds: Kinds, objects: Mapping[GroupResource, Sequence[_Object]]) -> None:
        self._kinds = kinds
        self._objects = objects

    @classmethod
    def load(cls, paths: Iterable[str | pathlib.Path]) -> FileObjects:
        """The objects of all files; one that comes again replaces the one before.

        Raises Broken with every problem, one on each line.
        """
        reading = _Reading()
        for path in paths:
            reading.file(pathlib.Path(path))
        result = cls(*reading.result())
        if reading.problems:
            raise errors.Broken("\n".join(reading.problems))
        return result

    @property
    def kinds(self) -> Kinds:
        return self._kinds

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        try:
            kind = self._kinds.first(resource.resource, resource.group)
        except UnknownResourceError as error:
            raise errors.Refused(str(error), status=404) from error
        anywhere = not (kind.namespaced and namespace)
        return tuple(
            each.name
            for each in self._objects.get(kind.group_resource, ())
            if (anywhere or each.namespace == namespace) and selector.matches(each.labels)
        )

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        return resource != PODS or any(
            (each.namespace, each.name) == (namespace, name) for each in self._objects.get(PODS, ())
        )

    async def refresh(self) -> None:
        """Nothing: the manifests were read whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    namespace: str
    name: str
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    """One object as it stands in a file, with its identity checked."""

    group: str
    version: str
    kind: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    document: Mapping[str, Any]


class _Wrong(Exception):
    """What is wrong with one document."""


class _Reading:
    def __init__(self) -> None:
        self.problems: list[str] = []
        self.manifests: list[_Manifest] = []
        self.taught: _Taught = defaultdict(lambda: defaultdict(list))

    def file(self, path: pathlib.Path) -> None:
        number = 0
        try:
            for document in yaml.load_all(path.read_bytes(), Loader=_LOADER):
                number += 1
                if document is not None:
                    self.document(document, f"{path}: document {number}")
        except (yaml.YAMLError, ValueError) as error:
            text = " ".join(str(error).split())
            self.problems.append(f"{path}: document {number + 1}: not YAML: {text}")
        except OSError as error:
            self.problems.append(f"{path}: {error.strerror}")

    def document(self, document: Any, place: str) -> None:
        for item, where in _flat(document, place):
            try:
                manifest = _manifest(item)
                if manifest.kind == "CustomResourceDefinition":
                    self.learn(manifest.document)
            except _Wrong as error:
                self.problems.append(f"{where}: {error}")
            else:
                self.manifests.append(manifest)

    def learn(self, definition: Mapping[str, Any]) -> None:
        """Takes in the kinds that a CustomResourceDefinition (apiextensions.k8s.io/v1) defines."""
        spec = _mapping(definition, "spec")
        names = _mapping(spec, "names", "spec.")
        resource = ApiResource(
            name=_text(names, "plural", "spec.names."),
            singular=_text(names, "singular", "spec.names.", default=""),
            kind=_text(names, "kind", "spec.names."),
            namespaced=_text(spec, "scope", "spec.") == "Namespaced",
        )
        group = _text(spec, "group", "spec.")
        versions = spec.get("versions")
        if not isinstance(versions, list) or not all(isinstance(each, dict) for each in versions):
            raise _Wrong("spec.versions must be a list of mappings")
        for version in versions:
            if version.get("served", True):
                self.teach(group, _text(version, "name", "spec.versions[]."), resource)

    def result(self) -> tuple[Kinds, Mapping[GroupResource, Sequence[_Object]]]:
        kinds = _kinds(self.taught)
        known = {(kind.group, kind.kind): kind for kind in kinds}
        for manifest in self.manifests:
            if (manifest.group, manifest.kind) not in known:
                guess = ApiResource(
                    name=_plural(manifest.kind), kind=manifest.kind, namespaced=True
                )
                self.teach(manifest.group, manifest.version, guess)
        kinds = _kinds(self.taught)
        known = {(kind.group, kind.kind): kind for kind in kinds}
        found: dict[GroupResource, dict[tuple[str, str], _Object]] = defaultdict(dict)
        for manifest in self.manifests:
            kind = known[manifest.group, manifest.kind]
            namespace = (manifest.namespace or "default") if kind.namespaced else ""
            if namespace:
                implied = found[NAMESPACES]
                implied.setdefault(("", namespace), _namespace(namespace, {}))
            made = _Object(namespace=namespace, name=manifest.name, labels=manifest.labels)
            if kind.group_resource == NAMESPACES:
                made = _namespace(manifest.name, manifest.labels)
            found[kind.group_resource].pop((namespace, manifest.name), None)
            if not _finished(manifest):
                found[kind.group_resource][namespace, manifest.name] = made
        return kinds, {
            resource: [objects[key] for key in sorted(objects)]
            for resource, objects in found.items()
        }

    def teach(self, group: str, version: str, resource: ApiResource) -> None:
        resources = self.taught[group][version]
        if resource not in resources:
            resources.append(resource)


def _flat(document: Any, place: str) -> Iterator[tuple[Any, str]]:
    """The document, or its items where it is a list, each with the place where it stands.

    The items of a typed list (PodList) need not repeat its kind.
    """
    kind = document.get("kind") if isinstance(document, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in document):
        yield document, place
        return
    inherited = {}
    if kind != "List":
        inherited = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    for index, item in enumerate(document["items"] or ()):
        merged = {**inherited, **item} if isinstance(item, dict) else item
        yield from _flat(merged, f"{place}: items[{index}]")


def _manifest(document: Any) -> _Manifest:
    if not isinstance(document, dict):
        raise _Wrong("must be a mapping with apiVersion, kind and metadata")
    group, _, version = _text(document, "apiVersion").rpartition("/")
    metadata = _mapping(document, "metadata")
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict):
        raise _Wrong("metadata.labels must be a mapping")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _Wrong(f"metadata.labels: {key}: {value!r} must be a string: put it in quotes")
    return _Manifest(
        group=group,
        version=version,
        kind=_text(document, "kind"),
        name=_text(metadata, "name", "metadata."),
        namespace=_text(metadata, "namespace", "metadata.", default=""),
        labels=labels,
        document=document,
    )


def _mapping(parent: Mapping[str, Any], key: str, path: str = "") -> Mapping[str, Any]:
    value = parent.get(key)
    if not isinstance(value, dict):
        raise _Wrong(f"{path}{key} must be a mapping")
    return value


def _text(
    parent: Mapping[str, Any], key: str, path: str = "", *, default: str | None = None
) -> str:
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not value:
        raise _Wrong(f"{path}{key} must be a string that is not empty")
    return value


def _namespace(name: str, labels: Mapping[str, str]) -> _Object:
    """A namespace with the label that every cluster gives it."""
    return _Object(namespace="", name=name, labels={**labels, _NAMESPACE_LABEL: name})


def _finished(manifest: _Manifest) -> bool:
    if (manifest.group, manifest.kind) != ("", "Pod"):
        return False
    status = manifest.document.get("status")
    return isinstance(status, dict) and status.get("phase") in {"Succeeded", "Failed"}


def _plural(kind: str) -> str:
    """Kubernetes' own guess (k8s.io/apimachinery/pkg/api/meta, UnsafeGuessKindToResource)."""
    singular = kind.lower()
    if singular.endswith("s"):
        return f"{singular}es"
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}s"


def _kinds(taught: _Taught) -> Kinds:
    """The kinds that every cluster has, and those that the manifests teach."""
    groups = {group.name: group for group in Kinds.builtin().groups}
    for name in sorted(taught):
        resources = dict(groups[name].resources) if name in groups else {}
        for version, added in taught[name].items():
            resources[version] = (*resources.get(version, ()), *added)
        versions = tuple(sorted(resources, key=_priority))
        groups[name] = ApiGroup(
            name=name, versions=versions, preferred=versions[0], resources=resources
        )
    return Kinds.of(groups.values())


def _priority(version: str) -> tuple[int, int, int, str]:
    """Kubernetes' order of versions: v2, v1, v1beta1, v1alpha1, then all others by name.

    https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
    """
    match = re.fullmatch(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?", version)
    if match is None:
        return 3, 0, 0, version
    major, stage, minor = match.groups()
    return {None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), ""
