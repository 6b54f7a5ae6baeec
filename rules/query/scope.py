"""Scope of sharing: which objects one rendering of a rule's query may cover.

`rules.query.plan` renders the queries; this module decides how much one of them may select.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rules.query.catalog import Source
from rules.query.label_binding import LabelBinding


class Scope(enum.StrEnum):
    """Objects that one query can cover with the same answer as a query for each set of them."""

    CLUSTER = "cluster"
    """Any objects of any namespaces; objects without a namespace: any."""
    NAMESPACE = "namespace"
    """Any objects of one namespace."""
    ALONE = "alone"
    """Only the objects of one request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Place in the source of a query template; both count from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Scope of a query, and what prevents a wider one."""

    scope: Scope
    obstacle: str = ""
    """The construct that prevents a wider scope, and why; empty for CLUSTER."""
    position: Position | None = None
    """Of the construct, if it is part of the template's source."""
    advice: str = ""
    """How to write the query instead, if there is a way."""


def sharing(source: Source, binding: LabelBinding) -> Sharing:
    """Return how far the query of one source by one binding can be shared."""
    where = source.rule.config.where
    return Sharing(scope=Scope.ALONE, obstacle=f"{where}: {binding.resource} is not analysed yet")
