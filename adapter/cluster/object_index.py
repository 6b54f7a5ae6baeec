"""Index of the objects of one kind: names by namespace and label selector, without I/O.

An object is its namespace, its name and its labels. `adapter.cluster.watch_cache` keeps an index up
to date.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from adapter.cache import LRUCache
from rules.selectors.selectors import Selector

T = TypeVar("T")

Labels = tuple[str, ...]
"""Keys and values in turn, sorted by key. Half the size of a dict."""

_MAX_SHARED = 8192
"""Values that an interner remembers; beyond that it starts again, and some values exist twice."""
_MAX_KEYS = 16
"""Label keys with an index (LRU): each costs up to 60 bytes per object that has the label."""
_FEW = 64
"""Objects that are matched one by one rather than looked up in an index by one more label."""
_MAX_WORDS = 1 << 20
"""Machine words (8 bytes) of the remembered names, and of the remembered objects (LRU)."""
_RESULT = 64
"""Machine words of a result without its names and the text of its selector."""
_OBJECT = 10
"""Machine words of an object in a result; its labels are those of the index."""


_Results = LRUCache[tuple[str | None, str], tuple[int, tuple[T, ...]]]
"""Namespace and selector -> version of the namespace, and what matches."""


class Object(NamedTuple):
    """What is kept of an object; the namespace of cluster-scoped objects is empty."""

    namespace: str
    name: str
    labels: Labels

    @property
    def label_map(self) -> dict[str, str]:
        """The labels as a new dict, sorted by key."""
        return dict(zip(self.labels[::2], self.labels[1::2], strict=True))


class Interner:
    """Parser of `metadata` that shares equal strings and label sets between objects."""

    def __init__(self) -> None:
        self._shared: dict[Any, Any] = {}

    def parse(self, item: Mapping[str, Any]) -> Object:
        """Return the object in a JSON document. Raises KeyError and TypeError."""
        metadata = item["metadata"]
        name = str(metadata["name"])
        labels: list[str] = []
        for key, value in sorted((metadata.get("labels") or {}).items()):
            # StatefulSets give each pod a label with its own name.
            labels += (self._share(key), name if value == name else self._share(value))
        namespace: str = self._share(metadata.get("namespace", ""))
        return Object(namespace, name, self._share(tuple(labels)))

    def _share(self, value: Any) -> Any:
        if len(self._shared) >= _MAX_SHARED:
            self._shared.clear()
        return self._shared.setdefault(value, value)


class ObjectIndex:
    """Objects of one kind.

    The first selector that compares a label in a large namespace creates an index by that label.
    Results are remembered until an object of their namespace appears, disappears or gets other
    labels.
    """

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._namespaces: dict[str, dict[str, Labels]] = {}
        self._by_label: dict[str, dict[tuple[str, str], dict[str, Labels]]] = {}
        """Key -> (namespace, value) -> the objects by name; the most recently used key last."""
        self._size = 0
        self._versions: dict[str | None, int] = {}
        """Number of the last change of each namespace that has objects; of all under None."""
        self._changes = itertools.count(1)
        self._names: _Results[str] = LRUCache(_MAX_WORDS)
        self._objects: _Results[Object] = LRUCache(_MAX_WORDS)
        """Apart from the names: a list of all objects would evict those of most autoscalers."""
        for each in objects:
            self.put(each)

    def __len__(self) -> int:
        return self._size

    def contains(self, namespace: str, name: str) -> bool:
        """Return whether the object exists."""
        return name in self._namespaces.get(namespace, ())

    def put(self, item: Object) -> None:
        """Add or replace an object."""
        namespace, name, labels = item
        objects = self._namespaces.setdefault(namespace, {})
        previous = objects.get(name)
        if previous == labels:
            return
        if previous is None:
            self._size += 1
        else:
            self._remove_from_labels(namespace, name, previous)
        objects[name] = labels
        for key, by_value in self._by_label.items():
            _add_to_label(by_value, key, namespace, name, labels)
        self._changed(namespace)

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object if it exists."""
        objects = self._namespaces.get(namespace, {})
        labels = objects.pop(name, None)
        if labels is None:
            return
        self._size -= 1
        self._remove_from_labels(namespace, name, labels)
        self._changed(namespace)
        if not objects:
            del self._namespaces[namespace], self._versions[namespace]

    def names(self, selector: Selector, *, namespace: str | None) -> tuple[str, ...]:
        """Return the names of the matching objects in the API's order; None means all namespaces.

        Names in different namespaces may be equal. The same tuple is returned until a change.
        """

        def find() -> Iterator[str]:
            for each in self._places(namespace):
                yield from self._matching(each, selector)

        return self._remembered(self._names, selector, namespace, find, words=1)

    def objects(self, selector: Selector, *, namespace: str | None) -> tuple[Object, ...]:
        """Return the matching objects; as `names` in all other respects."""

        def find() -> Iterator[Object]:
            for each in self._places(namespace):
                objects = self._namespaces.get(each, {})
                for name in self._matching(each, selector):
                    yield Object(each, name, objects[name])

        return self._remembered(self._objects, selector, namespace, find, words=_OBJECT)

    def get(self, namespace: str, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        labels = self._namespaces.get(namespace, {}).get(name)
        return None if labels is None else Object(namespace, name, labels)

    def _places(self, namespace: str | None) -> Iterable[str]:
        # The API server lists in the order of the keys in etcd, NAMESPACE/NAME.
        if namespace is None:
            return sorted(self._namespaces, key=lambda each: f"{each}/")
        return (namespace,)

    def _remembered(
        self,
        results: _Results[T],
        selector: Selector,
        namespace: str | None,
        find: Callable[[], Iterator[T]],
        *,
        words: int,
    ) -> tuple[T, ...]:
        """Return what `find` yields; each result takes this many machine words."""
        key = namespace, str(selector)
        version = self._versions.get(namespace, 0)
        remembered = results.get(key)
        if remembered is not None and remembered[0] == version:
            return remembered[1]
        result = tuple(find())
        size = len(key[1]) // 8 + words * len(result) + _RESULT
        results.set(key, (version, result), size=size)
        return result

    def _matching(self, namespace: str, selector: Selector) -> list[str]:
        candidates = self._candidates(namespace, selector)
        if selector.empty:
            return sorted(candidates)

        @functools.cache
        def matches(labels: Labels) -> bool:
            return selector.matches(dict(zip(labels[::2], labels[1::2], strict=True)))

        return sorted(name for name, labels in candidates.items() if matches(labels))

    def _candidates(self, namespace: str, selector: Selector) -> Mapping[str, Labels]:
        """Return a superset of the matching objects, as small as the indexes by label allow."""
        candidates: Mapping[str, Labels] = self._namespaces.get(namespace, {})
        for requirement in selector.requirements:
            if len(candidates) <= _FEW:
                break
            if requirement.operator in ("=", "==", "in"):
                by_value = self._index_by(requirement.key)
                found = [by_value.get((namespace, value), {}) for value in requirement.values]
                if sum(map(len, found)) < len(candidates):
                    candidates = found[0] if len(found) == 1 else dict(_items(found))
        return candidates

    def _index_by(self, key: str) -> Mapping[tuple[str, str], Mapping[str, Labels]]:
        by_value = self._by_label.pop(key, None)
        if by_value is None:
            by_value = {}
            for namespace, objects in self._namespaces.items():
                for name, labels in objects.items():
                    _add_to_label(by_value, key, namespace, name, labels)
            if len(self._by_label) >= _MAX_KEYS:
                del self._by_label[next(iter(self._by_label))]
        self._by_label[key] = by_value
        return by_value

    def _remove_from_labels(self, namespace: str, name: str, labels: Labels) -> None:
        for key, by_value in self._by_label.items():
            value = _value(labels, key)
            if value is not None:
                named = by_value[namespace, value]
                del named[name]
                if not named:
                    del by_value[namespace, value]

    def _changed(self, namespace: str) -> None:
        self._versions[namespace] = self._versions[None] = next(self._changes)


def _add_to_label(
    by_value: dict[tuple[str, str], dict[str, Labels]],
    key: str,
    namespace: str,
    name: str,
    labels: Labels,
) -> None:
    value = _value(labels, key)
    if value is not None:
        by_value.setdefault((namespace, value), {})[name] = labels


def _value(labels: Labels, key: str) -> str | None:
    # A value may equal a key, so a plain search for the key is not enough.
    keys = labels[::2]
    return labels[2 * keys.index(key) + 1] if key in keys else None


def _items(found: Iterable[Mapping[str, Labels]]) -> Iterable[tuple[str, Labels]]:
    return itertools.chain.from_iterable(each.items() for each in found)
