"""ConfigMaps with rules, as a watch cache keeps them; without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adapter.cluster.value_index import Item
from rules.teams import ConfigMap

STATUS = "gpu-metrics-adapter/status"
"""Annotation with what became of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is kept of a ConfigMap."""

    config_map: ConfigMap
    uid: str
    status: str
    """The annotation; empty if there is none yet."""


def parse(document: Mapping[str, Any]) -> Item[Watched]:
    """Return the ConfigMap in a JSON document. Raises KeyError, TypeError and AttributeError."""
    metadata = document["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    data = document.get("data") or {}
    watched = Watched(
        config_map=ConfigMap(
            namespace=namespace,
            name=name,
            data=tuple(sorted((str(key), str(text)) for key, text in data.items())),
        ),
        uid=str(metadata["uid"]),
        status=str((metadata.get("annotations") or {}).get(STATUS, "")),
    )
    return Item(namespace, name, watched)
