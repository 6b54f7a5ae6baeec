"""Divides a limit of all namespaces so that none of them can use up what belongs to others.

Pure: replicas with the same objects decide the same, in whatever order they saw them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one object takes of a limit."""

    namespace: str
    name: str
    created: str
    """`metadata.creationTimestamp`: in UTC with seconds, so that its text sorts by time."""
    size: int = 1

    @property
    def key(self) -> Key:
        """Its namespace and its name."""
        return self.namespace, self.name

    @property
    def order(self) -> tuple[str, str, str]:
        """Sorts the oldest first, then by namespace and name."""
        return self.created, self.namespace, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """Which objects a limit admits, and which it does not, and why."""

    keys: frozenset[Key]
    beyond_own: frozenset[Key]
    """Exceed the limit of their namespace."""
    beyond_all: frozenset[Key]
    """Exceed the limit of all namespaces."""


def admit(claims: Iterable[Claim], *, own: int, total: int) -> Admitted:
    """Return the objects that fit: at most `own` in each namespace and `total` in all.

    An object is admitted as a whole or not at all; within a namespace the oldest come first, and
    an object that does not fit leaves room for a smaller one. Each namespace is certain of an equal
    share of `total`; what the others leave of theirs goes to the oldest objects.
    """
    ordered = sorted(claims, key=lambda each: each.order)
    used: Counter[str] = Counter()
    fitting: list[Claim] = []
    for each in ordered:
        if used[each.namespace] + each.size <= own:
            used[each.namespace] += each.size
            fitting.append(each)
    within = frozenset(each.key for each in fitting)
    beyond_own = frozenset(each.key for each in ordered) - within
    if used.total() <= total:
        return Admitted(keys=within, beyond_own=beyond_own, beyond_all=frozenset())
    shares = equal_shares(used, total)
    taken: Counter[str] = Counter()
    admitted: set[Key] = set()
    for each in fitting:
        if taken[each.namespace] + each.size <= shares[each.namespace]:
            taken[each.namespace] += each.size
            admitted.add(each.key)
    left = total - taken.total()
    for each in fitting:
        if each.key not in admitted and each.size <= left:
            left -= each.size
            admitted.add(each.key)
    keys = frozenset(admitted)
    return Admitted(keys=keys, beyond_own=beyond_own, beyond_all=within - keys)


def equal_shares(wanted: Mapping[str, int], total: int) -> Mapping[str, int]:
    """Return the largest equal shares: those who want less leave the rest to the others."""
    shares: dict[str, int] = defaultdict(int)
    waiting = sorted(wanted.items(), key=lambda each: (each[1], each[0]))
    left = total
    for number, (namespace, size) in enumerate(waiting):
        shares[namespace] = min(size, left // (len(waiting) - number))
        left -= shares[namespace]
    return shares
