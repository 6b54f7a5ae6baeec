"""Which ConfigMaps of teams the limits admit: to be read, and then to be used.

Pure. What is admitted follows from the present objects alone, so that all replicas agree. How a
limit is divided is in `limits`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from rules import limits
from rules.limits import Claim, Key, Limits, name_of

_ORDER = attrgetter("order")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What the rules of a ConfigMap take of the limits."""

    characters: int
    rules: int
    pattern_memory: int
    """Bytes of its compiled regular expressions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Which ConfigMaps are admitted, the oldest first, and why others are not."""

    admitted: tuple[Key, ...]
    refused: Mapping[Key, str]


def to_read(present: Iterable[Claim], limits: Limits) -> Admission:
    """Return which ConfigMaps are read. Takes linear time in the number of ConfigMaps."""
    admission = _Admission(limits)
    by_namespace: dict[str, list[Claim]] = defaultdict(list)
    for each in present:
        by_namespace[each.namespace].append(each)
    within: list[Claim] = []
    for own in by_namespace.values():
        # Not sorted: this would block all threads while somebody has 100 000 ConfigMaps.
        within += heapq.nsmallest(limits.team_config_maps, own, key=_ORDER)
        if len(own) > limits.team_config_maps:
            kept = {each.key for each in within[-limits.team_config_maps :]}
            admission.refuse_own(
                (each.key for each in own if each.key not in kept),
                "team_config_maps",
                "ConfigMaps with rules",
            )
    admission.left = within
    admission.divide({each.key: 1 for each in within}, "team_config_maps", "ConfigMaps with rules")
    return admission.result()


def to_use(read: Iterable[Claim], sizes: Mapping[Key, Size], limits: Limits) -> Admission:
    """Return which of the ConfigMaps that were read are in use; `sizes` has those that load."""
    admission = _Admission(limits)
    admission.left = [each for each in read if each.key in sizes]
    characters = {key: size.characters for key, size in sizes.items()}
    admission.divide(characters, "team_text", "characters of rules", own=limits.team_text_all)
    memory = {key: size.pattern_memory for key, size in sizes.items()}
    admission.divide(memory, "team_pattern_memory", "bytes of compiled regular expressions")
    rules = {key: size.rules for key, size in sizes.items()}
    admission.divide(rules, "team_rules", "rules")
    return admission.result()


class _Admission:
    """ConfigMaps of which each limit leaves fewer."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.left: Sequence[Claim] = ()
        self.refused: dict[Key, str] = {}

    def divide(self, sizes: Mapping[Key, int], limit: str, what: str, *, own: int = 0) -> None:
        """Leave those that fit into a limit and into the limit `_all`, with these sizes.

        `own` is the limit of a namespace, if that is not `limit`.
        """
        claims = (replace(each, size=sizes[each.key]) for each in self.left)
        total = getattr(self._limits, f"{limit}_all")
        found = limits.admit(claims, own=own or getattr(self._limits, limit), total=total)
        self.refuse_own(found.beyond_own, limit, what)
        message = (
            f"all namespaces together have more than {total} {what}, and this one uses its share: "
            f"remove some, or start the adapter with --limit={name_of(limit)}-all=NUMBER"
        )
        self.refused.update(dict.fromkeys(found.beyond_all, message))
        self.left = [each for each in self.left if each.key not in self.refused]

    def refuse_own(self, keys: Iterable[Key], limit: str, what: str) -> None:
        """Refuse what exceeds the limit of its namespace."""
        number = getattr(self._limits, limit)
        message = (
            f"the namespace has more than {number} {what}, and older ConfigMaps use them: "
            f"remove some, or start the adapter with --limit={name_of(limit)}=NUMBER"
        )
        self.refused.update(dict.fromkeys(keys, message))

    def result(self) -> Admission:
        """Return what is left, and the others."""
        ordered = sorted(self.left, key=_ORDER)
        return Admission(admitted=tuple(each.key for each in ordered), refused=self.refused)
