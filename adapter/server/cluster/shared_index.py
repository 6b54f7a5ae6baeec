"""Value index of limited size, which the namespaces share; without I/O.

No namespace can use up what belongs to the others. `rules.limits` divides it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from adapter.clients.value_index import Item, ValueIndex
from rules import limits
from rules.limits import Claim, Key

V = TypeVar("V")

_MAX_DROPPED = 50_000
"""Objects of which only the name is kept; beyond that, they are not counted."""


class SharedIndex(ValueIndex[V]):
    """The objects that have a value, of which those that fit into `total` are admitted.

    Twice as much is kept, so that objects follow when others disappear. Of what is beyond, only the
    names and sizes are kept, until the next list.
    """

    def __init__(self, total: int) -> None:
        super().__init__()
        self._total = total
        self._claims: dict[Key, Claim] = {}
        self._claimed = 0
        self._dropped: dict[Key, int] = {}
        self._admitted: frozenset[Key] | None = None
        """None if it is to be computed; if everything fits, it is not."""

    @property
    def outdated(self) -> bool:
        """Whether a new list would have objects that were dropped when there were more."""
        return bool(self._dropped) and self._claimed <= self._total // 2

    def put(self, item: Item[V]) -> None:
        """Add or replace an object; remove one without a value."""
        super().put(item)  # which calls `remove` if there is no value
        if item.value is None:
            return
        namespace, name, _, created, size = item
        key = namespace, name
        claim = Claim(namespace=namespace, name=name, created=created, size=size)
        if claim == self._claims.get(key):
            return
        self._forget(key)
        self._claims[key] = claim
        self._claimed += claim.size
        if self._claimed > 2 * self._total:
            self._drop()

    def remove(self, namespace: str, name: str) -> None:
        """Remove an object if it exists."""
        self._forget((namespace, name))
        super().remove(namespace, name)

    def values(self) -> Iterator[V]:
        """Yield the values of all admitted objects."""
        admitted = self._admit()
        for namespace, name in self._claims:
            if (namespace, name) in admitted:
                yield self.of(namespace)[name]

    def left_out(self) -> Mapping[Key, int]:
        """Return the objects that are not admitted, by namespace and name, each with its size."""
        admitted = self._admit()
        if len(admitted) == len(self._claims):
            return self._dropped
        beyond = {key: each.size for key, each in self._claims.items() if key not in admitted}
        return {**self._dropped, **beyond}

    def _admit(self) -> frozenset[Key] | dict[Key, Claim]:
        if self._claimed <= self._total:
            return self._claims
        if self._admitted is None:
            total = self._total
            self._admitted = limits.admit(self._claims.values(), own=total, total=total).keys
        return self._admitted

    def _drop(self) -> None:
        """Keep only what is admitted."""
        admitted = self._admit()
        for key in [each for each in self._claims if each not in admitted]:
            size = self._claims[key].size
            self.remove(*key)
            if len(self._dropped) < _MAX_DROPPED:
                self._dropped[key] = size

    def _forget(self, key: Key) -> None:
        self._admitted = None
        self._dropped.pop(key, None)
        if (claim := self._claims.pop(key, None)) is not None:
            self._claimed -= claim.size
