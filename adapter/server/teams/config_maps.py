"""What is kept of ConfigMaps with rules: their metadata, never a text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.clients.value_index import Item
from adapter.server.cluster.shared_index import SharedIndex
from rules.limits import Key

STATUS = "gpu-metrics-adapter/status"
"""Annotation with what became of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedConfigMap:
    """What is kept of a ConfigMap."""

    namespace: str
    name: str
    created: str
    """`metadata.creationTimestamp`."""
    uid: str
    version: str
    """`metadata.resourceVersion`."""
    status: bytes
    """Digest of the annotation; empty if there is none."""

    @property
    def key(self) -> Key:
        """Its namespace and its name."""
        return self.namespace, self.name

    @property
    def path(self) -> str:
        """Its path in the API."""
        return f"{collection(self.namespace)}/{self.name}"


class ConfigMapIndex(SharedIndex[WatchedConfigMap]):
    """The ConfigMaps, and how often they have changed."""

    def __init__(self, total: int) -> None:
        super().__init__(total)
        self.changes = 0

    def put(self, item: Item[WatchedConfigMap]) -> None:
        """Add or replace a ConfigMap."""
        self.changes += 1
        super().put(item)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a ConfigMap if it exists."""
        self.changes += 1
        super().remove(namespace, name)


def parse(document: Mapping[str, Any]) -> Item[WatchedConfigMap]:
    """Return what is kept of the ConfigMap in a JSON document; its metadata is enough."""
    metadata = document["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    status = (metadata.get("annotations") or {}).get(STATUS)
    watched = WatchedConfigMap(
        namespace=namespace,
        name=name,
        created=str(metadata.get("creationTimestamp") or ""),
        uid=str(metadata["uid"]),
        version=str(metadata["resourceVersion"]),
        status=digest(str(status)) if status else b"",
    )
    return Item(namespace, name, watched, watched.created)


def collection(namespace: str) -> str:
    """Return the path of the ConfigMaps of a namespace."""
    return f"/api/v1/namespaces/{namespace}/configmaps"


def digest(*texts: str) -> bytes:
    """Return a digest of texts."""
    hashed = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        hashed.update(b"%d:" % len(encoded) + encoded)
    return hashed.digest()
