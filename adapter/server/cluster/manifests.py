"""Objects from manifest files instead of a cluster (--objects): for the demo and for trying rules.

Reads the output of `kubectl get -o yaml` and what `kubectl apply` accepts: several documents and
lists. Problems are collected and reported together, each with its file and document.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from adapter import errors
from adapter.clients.value_index import Item, ValueIndex
from adapter.files import MANIFESTS, read_file
from adapter.server.cluster import contents
from adapter.server.cluster.object_index import Object, ObjectIndex
from adapter.server.cluster.objects import FINISHED, place_of
from rules.errors import UnknownResourceError
from rules.kinds import (
    NAMESPACES,
    PODS,
    WORKLOADS,
    ApiGroup,
    ApiResource,
    GroupResource,
    Kind,
    Kinds,
)
from rules.query.pod_age import too_young
from rules.selectors.selectors import Selector

_NAMESPACE_LABEL = "kubernetes.io/metadata.name"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FileObjects:
    """Objects in manifest files.

    A kind that is not built into Kubernetes counts as namespaced, and its plural is guessed.
    """

    def __init__(self, paths: Iterable[str | Path]) -> None:
        """Read all files; of an object the last manifest counts. Raises Broken with a line each."""
        manifests: list[_Object] = []
        problems: list[str] = []
        for path in paths:
            for document, place in _documents(Path(path), problems):
                try:
                    manifests.append(_parse(document))
                except _InvalidManifest as error:
                    problems.append(f"{place}: {error}")
        if problems:
            raise errors.Broken("\n".join(problems))
        self.kinds = _kinds(manifests)
        self._indexes: defaultdict[GroupResource, ObjectIndex] = defaultdict(ObjectIndex)
        self._ready = ValueIndex[float]()
        self._selectors: defaultdict[GroupResource, ValueIndex[Selector]] = defaultdict(ValueIndex)
        """Of the pods of workloads."""
        self._finished: set[tuple[str, str]] = set()
        """Namespaces and names of pods."""
        kind_of = {(kind.group, kind.kind): kind for kind in self.kinds}
        for manifest in manifests:
            self._put(kind_of[manifest.group, manifest.kind], manifest)

    def _put(self, kind: Kind, manifest: _Object) -> None:
        name, labels = manifest.name, manifest.labels
        namespace = (manifest.namespace or "default") if kind.namespaced else ""
        namespaces = self._indexes[NAMESPACES]
        if namespace and not namespaces.contains("", namespace):
            namespaces.put(_indexed("", namespace, {_NAMESPACE_LABEL: namespace}))
        if kind.group_resource == NAMESPACES:  # every API server adds the label
            labels = {**labels, _NAMESPACE_LABEL: name}
        if manifest.finished:
            self._finished.add((namespace, name))
            self._indexes[PODS].remove(namespace, name)
        else:
            self._indexes[kind.group_resource].put(_indexed(namespace, name, labels))
        if kind.group_resource in WORKLOADS:
            self._selectors[kind.group_resource].put(
                Item(namespace, name, contents.pod_selector(manifest.spec))
            )
        if kind.group_resource == PODS:
            self._ready.put(Item(namespace, name, manifest.ready_since))
            if not manifest.finished:
                self._finished.discard((namespace, name))

    async def names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match the selector; see `ClusterObjects`."""
        return self.present_names(resource, namespace=namespace, selector=selector)

    def present_names(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match the selector."""
        index, place = self._index(resource, namespace)
        return index.names(selector, namespace=place)

    async def objects(
        self, resource: GroupResource, *, namespace: str, selector: Selector
    ) -> tuple[Object, ...]:
        """Return the objects that match the selector; see `ClusterObjects`."""
        index, place = self._index(resource, namespace)
        return index.objects(selector, namespace=place)

    async def object(self, resource: GroupResource, *, namespace: str, name: str) -> Object | None:
        """Return an object by its name; None if it does not exist or is a finished pod."""
        return self._index(resource, namespace)[0].get(namespace, name)

    def _index(self, resource: GroupResource, namespace: str) -> tuple[ObjectIndex, str | None]:
        """Return the objects of a resource, and the namespace in them. Raises Refused with 404."""
        try:
            kind = self.kinds.first(resource.resource, resource.group)
        except UnknownResourceError as error:
            raise errors.Refused(str(error), status=404) from error
        return self._indexes[kind.group_resource], place_of(kind, namespace)

    async def live(self, resource: GroupResource, *, namespace: str, name: str) -> bool:
        """Return False for a pod that has finished, else True."""
        return resource != PODS or (namespace, name) not in self._finished

    async def younger(
        self, names: Iterable[str], *, namespace: str, seconds: float
    ) -> Mapping[str, float]:
        """Return the pods that have been Ready for less than `seconds`; see `ClusterObjects`.

        Pods without conditions have been Ready forever.
        """
        ready = self._ready.of(namespace)
        return too_young(ready, names, now=time.time(), seconds=seconds)

    async def pod_selectors(
        self, resource: GroupResource, *, namespace: str
    ) -> Mapping[str, Selector]:
        """Return the workloads of a namespace by name, each with the selector of its pods."""
        return self._selectors[resource].of(namespace)

    async def refresh(self) -> Kinds:
        """Return the kinds: the files are read only once."""
        return self.kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Object:
    group: str
    version: str
    kind: str
    name: str
    namespace: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    finished: bool = False
    ready_since: float | None = 0.0
    """Unix seconds; None for a pod that is not Ready."""


def _indexed(namespace: str, name: str, labels: Mapping[str, str]) -> Object:
    return Object(namespace, name, tuple(itertools.chain.from_iterable(sorted(labels.items()))))


class _InvalidManifest(Exception):
    pass


def _documents(path: Path, problems: list[str]) -> Iterator[tuple[Any, str]]:
    """Yield each object in a file with its place; add what cannot be read to `problems`."""
    number = 0
    try:
        for document in yaml.load_all(read_file(path, MANIFESTS, pipes=True), Loader=_LOADER):
            number += 1
            if document is not None:
                yield from _flatten(document, f"{path}: document {number}")
    except _InvalidManifest as error:
        problems.append(f"{path}: document {number}: {error}")
    except (yaml.YAMLError, ValueError) as error:
        text = " ".join(str(error).split())
        problems.append(f"{path}: document {number + 1}: not YAML: {text}")
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")


def _flatten(document: Any, place: str) -> Iterator[tuple[Any, str]]:
    """Yield a document, or the items of a list, each with its place.

    The items of a typed list (PodList) need no apiVersion and kind of their own. Raises
    _InvalidManifest.
    """
    kind = document.get("kind") if isinstance(document, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in document):
        yield document, place
        return
    inherited = {}
    if kind != "List":
        inherited = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List")}
    items = document["items"] or []
    if not isinstance(items, list):
        raise _InvalidManifest("items must be a list")
    for index, item in enumerate(items):
        merged = {**inherited, **item} if isinstance(item, dict) else item
        yield merged, f"{place}: items[{index}]"


def _parse(document: Any) -> _Object:
    """Parse a manifest. Raises _InvalidManifest."""
    if not isinstance(document, dict):
        raise _InvalidManifest("must be a mapping with apiVersion, kind and metadata")
    group, _, version = _text(document, "apiVersion").rpartition("/")
    kind = _text(document, "kind")
    if "/" in kind:
        raise _InvalidManifest("kind must not contain a slash")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise _InvalidManifest("metadata must be a mapping")
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict):
        raise _InvalidManifest("metadata.labels must be a mapping")
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise _InvalidManifest(
                f"metadata.labels: {key}: {value!r} must be a string: put it in quotes"
            )
    status = document.get("status")
    if not isinstance(status, dict):
        status = {}
    is_pod = (group, kind) == ("", "Pod")
    return _Object(
        group=group,
        version=version,
        kind=kind,
        name=_text(metadata, "name", "metadata."),
        namespace=_text(metadata, "namespace", "metadata.", default=""),
        labels=labels,
        spec=spec if isinstance(spec := document.get("spec"), dict) else {},
        finished=is_pod and str(status.get("phase")) in FINISHED,
        ready_since=_ready_since(status) if is_pod and status.get("conditions") else 0.0,
    )


def _ready_since(status: Mapping[str, Any]) -> float | None:
    try:
        return contents.ready_since(status)
    except (AttributeError, KeyError, TypeError) as error:
        raise _InvalidManifest("status.conditions must be those of a pod") from error


def _text(
    parent: Mapping[str, Any], key: str, path: str = "", *, default: str | None = None
) -> str:
    value = parent.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, str) or not value:
        raise _InvalidManifest(f"{path}{key} must be a string that is not empty")
    return value


def _kinds(manifests: Iterable[_Object]) -> Kinds:
    """Return the built-in kinds, and a guess for each other kind in the manifests."""
    builtin = Kinds.builtin()
    groups = {group.name: group for group in builtin.groups}
    known = {(kind.group, kind.kind) for kind in builtin}
    for manifest in manifests:
        if (manifest.group, manifest.kind) in known:
            continue
        known.add((manifest.group, manifest.kind))
        resources = dict(groups[manifest.group].resources) if manifest.group in groups else {}
        guess = ApiResource(name=_plural(manifest.kind), kind=manifest.kind, namespaced=True)
        resources[manifest.version] = (*resources.get(manifest.version, ()), guess)
        versions = tuple(resources)
        groups[manifest.group] = ApiGroup(
            name=manifest.group, versions=versions, preferred=versions[0], resources=resources
        )
    return Kinds.of(groups.values())


def _plural(kind: str) -> str:
    """Guess a plural like k8s.io/apimachinery/pkg/api/meta, UnsafeGuessKindToResource."""
    singular = kind.lower()
    if singular.endswith("s"):
        return f"{singular}es"
    if singular.endswith("y"):
        return f"{singular[:-1]}ies"
    return f"{singular}s"
