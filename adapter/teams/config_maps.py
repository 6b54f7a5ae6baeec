"""What is kept of ConfigMaps with rules: little of each, and of some the text, until it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from adapter.cluster.value_index import Item
from rules.admission import Candidate, Key
from rules.limits import Limits
from rules.teams import ConfigMap, is_rules_file

STATUS = "gpu-metrics-adapter/status"
"""Annotation with what became of the rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What is kept of a ConfigMap."""

    candidate: Candidate
    digest: bytes
    """Of its rules files, by which another version is known."""
    uid: str
    status: bytes
    """Digest of the annotation; empty if there is none."""

    @property
    def key(self) -> Key:
        """Its namespace and its name."""
        return self.candidate.key

    @property
    def path(self) -> str:
        """Its path in the API."""
        namespace, name = self.key
        return f"{collection(namespace)}/{name}"


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


class Texts:
    """Texts of the ConfigMaps that are not read yet, as many as the limits admit.

    Others are read from the API server when they are needed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._kept: dict[Key, _Kept] = {}
        self._characters = 0
        self.parsed = 0
        """Number of ConfigMaps that the watch has brought: if it is the same, nothing changed."""

    def parse(self, document: Mapping[str, Any]) -> Item[Watched]:
        """Return what is kept of the ConfigMap in a JSON document, and keep its text for a while.

        Raises KeyError, TypeError and AttributeError.
        """
        watched, config_map = read(document)
        self.parsed += 1
        self._drop(watched.key)
        characters = watched.candidate.characters
        if (
            characters <= self._limits.team_text
            and self._characters + characters <= self._limits.team_text_all
        ):
            self._kept[watched.key] = _Kept(self.parsed, watched.digest, config_map)
            self._characters += characters
        return Item(*watched.key, watched)

    def take(self, watched: Watched) -> ConfigMap | None:
        """Return the ConfigMap with its text, which is not kept any longer; None if it is not."""
        kept = self._kept.get(watched.key)
        if kept is None or kept.digest != watched.digest:
            return None
        self._drop(watched.key)
        return kept.config_map

    def retain(self, keys: Collection[Key], parsed: int) -> None:
        """Drop the texts of all other ConfigMaps, of the first `parsed` that the watch brought."""
        for key, kept in tuple(self._kept.items()):
            if key not in keys and kept.parsed <= parsed:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        if (kept := self._kept.pop(key, None)) is not None:
            self._characters -= _characters(kept.config_map.data)


class _Kept(NamedTuple):
    parsed: int
    digest: bytes
    config_map: ConfigMap


def read(document: Mapping[str, Any]) -> tuple[Watched, ConfigMap]:
    """Return what is kept of the ConfigMap in a JSON document, and its rules files.

    Raises KeyError, TypeError and AttributeError.
    """
    metadata = document["metadata"]
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    data = document.get("data") or {}
    files = tuple(sorted((str(key), str(data[key])) for key in data if is_rules_file(str(key))))
    status = (metadata.get("annotations") or {}).get(STATUS)
    watched = Watched(
        candidate=Candidate(
            namespace=namespace,
            name=name,
            created=str(metadata.get("creationTimestamp") or ""),
            characters=_characters(files),
        ),
        digest=digest(*(text for file in files for text in file)),
        uid=str(metadata["uid"]),
        status=digest(str(status)) if status else b"",
    )
    return watched, ConfigMap(namespace=namespace, name=name, data=files)


def _characters(files: Iterable[tuple[str, str]]) -> int:
    return sum(len(text) for _, text in files)
