"""Index of the objects of one kind: names by namespace and label selector, without I/O.

An object is its namespace, its name and its labels, unless these are too large: then a selector is
matched by the API server, in that namespace alone. `watch_cache` keeps an index up to date.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from adapter import bounds
from adapter.cache import LRUCache
from rules.selectors.selectors import Selector

T = TypeVar("T")

Labels = tuple[str, ...]
"""Keys and values in turn, sorted by key. Half the size of a dict."""

_MAX_LABELS = 64 << 10
"""Bytes of the labels of one object; those of a node with 300 labels are 50 kB."""
_LABEL = 128
"""Bytes of a label without its characters."""
_ENTRY = 50
"""Bytes of an entry of a dict."""
_MAX_KEYS = 16
"""Label keys of a namespace with an index (LRU): each costs up to 60 bytes per object that has the
label."""
_COSTLY = 2000
"""Requirements and values that are compared with labels in 1 ms."""
_FEW = 64
"""Objects that are matched one by one rather than looked up in an index by one more label."""
_RESULT = 64
"""Machine words of a result without its names and the text of its selector."""
_OBJECT = 10
"""Machine words of an object in a result; its labels are those of the index."""

_NONE: frozenset[str] = frozenset()

_ByValue = dict[str, dict[str, Labels]]
"""Value of a label -> the labels of the objects that have it, by name."""
_Results = LRUCache[tuple[str | None, str], tuple[int, tuple[T, ...]]]
"""Namespace and selector -> version of the namespace, and what matches."""


class Object(NamedTuple):
    """What is kept of an object; the namespace of cluster-scoped objects is empty."""

    namespace: str
    name: str
    labels: Labels | None
    """None if they are too large."""
    deleted: bool = False
    """Whether it is being deleted."""

    @property
    def label_map(self) -> dict[str, str]:
        """The labels that are kept as a new dict, sorted by key."""
        labels = self.labels or ()
        return dict(zip(labels[::2], labels[1::2], strict=True))


def parse(item: Mapping[str, Any]) -> Object:
    """Return the object in a JSON document. Raises TypeError for labels that are not strings."""
    metadata = item["metadata"]
    name, namespace = str(metadata["name"]), str(metadata.get("namespace", ""))
    labels, deleted = metadata.get("labels") or {}, bool(metadata.get("deletionTimestamp"))
    size = _LABEL * len(labels) + len("".join(labels)) + len("".join(labels.values()))
    if size > _MAX_LABELS:
        return Object(namespace, name, None, deleted)
    # StatefulSets give each pod a label with its own name.
    pairs = ((key, name if value == name else value) for key, value in sorted(labels.items()))
    return Object(namespace, name, tuple(itertools.chain.from_iterable(pairs)), deleted)


class _LabelSets:
    """Label sets of the objects of one namespace; equal sets and equal texts are kept once.

    A set with the name of its object, as a StatefulSet gives to each of its pods, has no equal one.
    """

    def __init__(self) -> None:
        self.size = 0
        """Bytes."""
        self._shared: dict[Any, Any] = {}
        self._more: dict[Any, int] = {}
        """Number of uses beyond the first."""

    def add(self, name: str, labels: Labels) -> Labels:
        """Return the set to keep for one more object."""
        if name in labels:
            labels = tuple(each if each == name else self._use(each) for each in labels)
            self.size += sys.getsizeof(labels)
            return labels
        if labels not in self._shared:
            labels = tuple(map(self._use, labels))
        shared: Labels = self._use(labels)
        return shared

    def remove(self, name: str, labels: Labels) -> None:
        """Forget the set of one object."""
        if name in labels:
            self.size -= sys.getsizeof(labels)
        elif not self._release(labels):
            return
        for each in labels:
            if each != name:
                self._release(each)

    def _use(self, value: Any) -> Any:
        shared = self._shared.get(value)
        if shared is None:
            self._shared[value] = value
            self.size += sys.getsizeof(value) + _ENTRY
            return value
        self._more[shared] = self._more.get(shared, 0) + 1
        return shared

    def _release(self, value: Any) -> bool:
        """Return whether this was the last use."""
        if more := self._more.pop(value, 0):
            if more > 1:
                self._more[value] = more - 1
            return False
        del self._shared[value]
        self.size -= sys.getsizeof(value) + _ENTRY
        return True


class ObjectIndex:
    """Objects of one kind.

    The first selector that compares a label in a large namespace indexes its objects by that label.
    Results are remembered until an object of their namespace appears, disappears or gets other
    labels.
    """

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self._namespaces: dict[str, dict[str, Labels | None]] = {}
        self._labels: dict[str, _LabelSets] = {}
        """By namespace; a namespace without its entry keeps no labels."""
        self._labels_size = 0
        self._unlabelled: dict[str, int] = {}
        """Number of the objects without their labels, of namespaces that have some."""
        self._deleted: dict[str, set[str]] = {}
        """Names of those that are being deleted, by namespace."""
        self._by_label: dict[str, dict[str, _ByValue]] = {}
        """By namespace and key; the most recently used key last."""
        self._size = 0
        self._versions: dict[str | None, int] = {}
        """Number of the last change of each namespace that has objects; of all under None."""
        self._changes = itertools.count(1)
        self._names: _Results[str] = LRUCache(bounds.SELECTED)
        self._objects: _Results[Object] = LRUCache(bounds.SELECTED)
        """Apart from the names: a list of all objects would evict those of most autoscalers."""
        for each in objects:
            self.put(each)

    def __len__(self) -> int:
        return self._size

    def contains(self, namespace: str, name: str) -> bool:
        """Return whether the object exists."""
        return name in self._namespaces.get(namespace, ())

    def deleted(self, namespace: str) -> Collection[str]:
        """Return the names of the objects that are being deleted; it changes with the index."""
        return self._deleted.get(namespace, _NONE)

    def unlabelled(self, namespace: str | None) -> tuple[str, ...]:
        """Return the namespaces whose objects a selector does not reach, because of their labels.

        They are among `namespace`, or all with None.
        """
        if namespace is None:
            return tuple(self._unlabelled)
        return (namespace,) if namespace in self._unlabelled else ()

    @property
    def outdated(self) -> bool:
        """Whether a new list would probably have the labels of a namespace that has none here."""
        omitted = len(self._labels) < len(self._namespaces)
        return omitted and self._labels_size <= bounds.LABELS // 2

    def put(self, item: Object) -> None:
        """Add or replace an object."""
        namespace, name, labels, deleted = item
        if deleted:
            self._deleted.setdefault(namespace, set()).add(name)
        else:
            self._undelete(namespace, name)
        if namespace not in self._namespaces:
            self._namespaces[namespace], self._labels[namespace] = {}, _LabelSets()
        objects = self._namespaces[namespace]
        if namespace not in self._labels:
            labels = None
        if name not in objects:
            self._size += 1
        elif objects[name] == labels:
            return
        else:
            self._forget(namespace, name, objects[name])
        if labels is None:
            self._unlabelled[namespace] = self._unlabelled.get(namespace, 0) + 1
        else:
            sets = self._labels[namespace]
            self._labels_size -= sets.size
            labels = sets.add(name, labels)
            self._labels_size += sets.size
            for key, by_value in self._by_label.get(namespace, {}).items():
                _add_to_label(by_value, key, name, labels)
        objects[name] = labels
        self._changed(namespace)
        while self._labels_size > bounds.LABELS:
            self._omit_labels(self._largest_labels())

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object if it exists."""
        objects = self._namespaces.get(namespace, {})
        if name not in objects:
            return
        self._size -= 1
        self._undelete(namespace, name)
        self._forget(namespace, name, objects.pop(name))
        self._changed(namespace)
        if not objects:
            del self._namespaces[namespace], self._versions[namespace]
            self._labels.pop(namespace, None)
            self._by_label.pop(namespace, None)

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

    def is_costly(
        self, selector: Selector, *, namespace: str | None, labelled: bool = False
    ) -> bool:
        """Return whether `names`, or `objects` if `labelled`, would take more than 1 ms."""
        results: _Results[Any] = self._objects if labelled else self._names
        remembered = results.get((namespace, str(selector)))
        if remembered is not None and remembered[0] == self._versions.get(namespace, 0):
            return False
        places = self._namespaces if namespace is None else (namespace,)
        found = sum(len(self._candidates(each, selector)) for each in places)
        return found * selector.size > _COSTLY

    def get(self, namespace: str, name: str) -> Object | None:
        """Return an object, or None if it does not exist."""
        objects = self._namespaces.get(namespace, {})
        return Object(namespace, name, objects[name]) if name in objects else None

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
        def matches(labels: Labels | None) -> bool:
            return labels is not None and selector.matches(
                dict(zip(labels[::2], labels[1::2], strict=True))
            )

        return sorted(name for name, labels in candidates.items() if matches(labels))

    def _candidates(self, namespace: str, selector: Selector) -> Mapping[str, Labels | None]:
        """Return a superset of the matching objects, as small as the indexes by label allow."""
        candidates: Mapping[str, Labels | None] = self._namespaces.get(namespace, {})
        for requirement in selector.requirements:
            if len(candidates) <= _FEW:
                break
            if requirement.operator in ("=", "==", "in"):
                by_value = self._index_by(namespace, requirement.key)
                found = [by_value.get(value, {}) for value in requirement.values]
                if sum(map(len, found)) < len(candidates):
                    candidates = found[0] if len(found) == 1 else dict(_items(found))
        return candidates

    def _index_by(self, namespace: str, key: str) -> _ByValue:
        indexes = self._by_label.setdefault(namespace, {})
        by_value = indexes.pop(key, None)
        if by_value is None:
            by_value = {}
            for name, labels in self._namespaces[namespace].items():
                if labels is not None:
                    _add_to_label(by_value, key, name, labels)
            if len(indexes) >= _MAX_KEYS:
                del indexes[next(iter(indexes))]
        indexes[key] = by_value
        return by_value

    def _forget(self, namespace: str, name: str, labels: Labels | None) -> None:
        """Remove what is kept because an object has these labels."""
        if labels is None:
            self._unlabelled[namespace] -= 1
            if not self._unlabelled[namespace]:
                del self._unlabelled[namespace]
            return
        for key, by_value in self._by_label.get(namespace, {}).items():
            value = _value(labels, key)
            if value is not None:
                named = by_value[value]
                del named[name]
                if not named:
                    del by_value[value]
        sets = self._labels[namespace]
        self._labels_size -= sets.size
        sets.remove(name, labels)
        self._labels_size += sets.size

    def _undelete(self, namespace: str, name: str) -> None:
        if (names := self._deleted.get(namespace)) is not None:
            names.discard(name)
            if not names:
                del self._deleted[namespace]

    def _largest_labels(self) -> str:
        """Return the namespace with the most bytes of labels per object.

        Not the one with the most bytes: a few objects in other namespaces would take the labels of
        the one with the most objects. Namespaces below half the mean would free too little.
        """
        least = self._labels_size / len(self._labels) / 2
        large = (each for each, sets in self._labels.items() if sets.size >= least)
        return max(large, key=lambda each: self._labels[each].size / len(self._namespaces[each]))

    def _omit_labels(self, namespace: str) -> None:
        """Remove the labels of all objects of a namespace, present and future."""
        self._by_label.pop(namespace, None)
        self._labels_size -= self._labels.pop(namespace).size
        objects = self._namespaces[namespace]
        self._unlabelled[namespace] = len(objects)
        self._namespaces[namespace] = dict.fromkeys(objects)
        self._changed(namespace)

    def _changed(self, namespace: str) -> None:
        self._versions[namespace] = self._versions[None] = next(self._changes)


def _add_to_label(by_value: _ByValue, key: str, name: str, labels: Labels) -> None:
    value = _value(labels, key)
    if value is not None:
        by_value.setdefault(value, {})[name] = labels


def _value(labels: Labels, key: str) -> str | None:
    # A value may equal a key, so a plain search for the key is not enough.
    keys = labels[::2]
    return labels[2 * keys.index(key) + 1] if key in keys else None


def _items(found: Iterable[Mapping[str, Labels]]) -> Iterable[tuple[str, Labels]]:
    return itertools.chain.from_iterable(each.items() for each in found)
