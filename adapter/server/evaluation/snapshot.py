"""Snapshot: the samples of one evaluation by object, and the answers that were made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from adapter import bounds
from adapter.cache import LRUCache
from adapter.server.evaluation.demand import ObjectNames
from rules.query.aggregate import NO_SAMPLES, SamplesByObject
from rules.query.plan import SelectedObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Objects whose samples a query returns."""

    namespaces: frozenset[str] | None
    """None for every namespace, and if the objects live in none."""
    names: frozenset[str] | None
    """None for every object."""

    @classmethod
    def of(cls, objects: SelectedObjects) -> Coverage:
        """Return what the query for `objects` covers."""
        return cls(
            namespaces=frozenset(objects.namespaces) if objects.namespaces else None,
            names=None if objects.names is None else frozenset(objects.names),
        )

    def covers(self, requested: ObjectNames) -> bool:
        """Return whether the query selects every object of `requested`."""
        namespace, names = requested
        return (self.namespaces is None or namespace in self.namespaces) and (
            self.names is None or self.names.issuperset(names)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Snapshot:
    """Result of one evaluation: immutable, except for the answers that it keeps.

    Times are of the event loop, in seconds, unless stated otherwise.
    """

    coverage: Coverage
    samples: tuple[Mapping[str, SamplesByObject], ...]
    """For each step: by namespace, or all below "" if the result does not tell namespaces apart."""
    by_namespace: bool
    began: float
    due: float
    """When the next evaluation should begin."""
    expires: float
    """When the next evaluation should have ended. While the next evaluation runs, this one is used
    for a while longer."""
    time: float
    """Unix seconds of the evaluation."""
    size: int
    """Samples that count against the size of a cache: more if they are long."""
    partial: str
    """What Prometheus says that the samples lack, for the log; empty if they are whole."""
    answers: LRUCache[ObjectNames, Any] = field(
        default_factory=lambda: LRUCache(bounds.ANSWERED_NAMES)
    )
    """What `Evaluation` made of the samples: values, or usages for steps of `resourceRules`."""

    def of(self, namespace: str) -> tuple[SamplesByObject, ...]:
        """Return the samples of the objects of one namespace, for each step."""
        key = namespace if self.by_namespace else ""
        return tuple(each.get(key, NO_SAMPLES) for each in self.samples)
