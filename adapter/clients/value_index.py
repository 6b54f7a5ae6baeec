"""Index of one value for each object of a kind, by namespace and name, without I/O.

`watch_cache` keeps it up to date. It needs complete objects, but keeps their names and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

V = TypeVar("V")


class Item(NamedTuple, Generic[V]):
    """What is kept of an object."""

    namespace: str
    name: str
    value: V | None
    """None if the object is not to be kept."""
    created: str = ""
    """`metadata.creationTimestamp`, and what it takes of a limit; only for a `SharedIndex`."""
    size: int = 1


class ValueIndex(Generic[V]):
    """The objects that have a value."""

    def __init__(self) -> None:
        self._namespaces: dict[str, dict[str, V]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def outdated(self) -> bool:
        """Whether a new list would hold more than events can bring."""
        return False

    def put(self, item: Item[V]) -> None:
        """Add or replace an object; remove one without a value."""
        if item.value is None:
            self.remove(item.namespace, item.name)
            return
        objects = self._namespaces.setdefault(item.namespace, {})
        self._size += item.name not in objects
        objects[item.name] = item.value

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object if it exists."""
        objects = self._namespaces.get(namespace, {})
        if objects.pop(name, None) is not None:
            self._size -= 1
            if not objects:
                del self._namespaces[namespace]

    def of(self, namespace: str) -> Mapping[str, V]:
        """Return the values of a namespace by the names of the objects."""
        return self._namespaces.get(namespace, {})

    def values(self) -> Iterator[V]:
        """Yield the values of all objects."""
        for objects in self._namespaces.values():
            yield from objects.values()
