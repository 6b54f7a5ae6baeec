"""Which metrics exist, for which resources, and which rule and series answer each.

A `Catalog` is built whole from what a relist found and swapped whole; two rules that produce the
same metric are data (`conflicts`), not a surprise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rules.kinds import GroupResource
from rules.ruleset import CompiledRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """One way in which series name their object.

    Where several labels may stand for one resource (`exported_pod`, then `pod`), a series belongs to
    the object named by the *first* of them that it carries. So to ask by a later label is to ask, too,
    that the earlier ones are absent: those are `absent`.
    """

    resource: str
    """The label that holds the object's name."""
    namespace: str = ""
    """The label that holds the object's namespace; empty for root-scoped resources."""
    absent: tuple[str, ...] = ()
    """Labels that must be empty for this labelling to hold, in the order of the overrides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One rule and series that answers a metric."""

    rule: CompiledRule
    series: str
    labellings: tuple[Labelling, ...]
    """In order of preference; more than one only while live series carry several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A metric of a resource."""

    metric: str
    resource: GroupResource
    namespaced: bool
    sources: tuple[Source, ...]
    """More than one only where rules say `merge: true`; the earlier rule first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What a relist knows of one series name: the label names that its series carry."""

    name: str
    labels: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a relist found for one rule."""

    series: tuple[Series, ...]
    """In the order in which Prometheus lists them."""
    live: Mapping[str, tuple[Labelling, ...]]
    """Series name -> the labellings that live series show; only names where labels compete."""
