"""Which rows of autoscalers a page shows: search, filters, order and pages. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from adapter.cli.console.rows import STATES, Row, label
from rules.errors import UnreadableError
from rules.findings import State
from rules.quoting import counted

SIZE = 100
"""Rows of one page."""

_SORTS: Mapping[str, Callable[[Row], Any]] = {
    "state": lambda row: row.order,
    "name": lambda row: (row.namespace, row.name),
    "value": lambda row: (-row.ratio, *row.order),
    "replicas": lambda row: (-(row.wanted or 0), *row.order),
}
"""Name of an order -> its key: errors first, by name, highest value by target, most replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowQuery:
    """What is asked of the list, as in the query string of its address."""

    search: str = ""
    namespace: str = ""
    state: str = ""
    sort: str = ""
    page: str = ""
    """Empty for all rows."""

    @property
    def words(self) -> list[str]:
        """Words of the search, in lower case."""
        return self.search.lower().split()

    def link(self, **changes: str) -> str:
        """Return the query string with these changes; another list begins with its first page."""
        names = [each.name for each in dataclasses.fields(RowQuery)]
        every = {**{each: getattr(self, each) for each in names}, "page": "", **changes}
        return f"?{urlencode({name: text for name, text in every.items() if text})}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPage:
    """The rows of one page, and what else there is."""

    rows: Sequence[Row]
    matching: int
    """Rows on all pages."""
    number: int
    """Number of the page, from 1; 0 if it has all rows."""
    pages: int
    counts: Mapping[str, int]
    """State -> rows that match, whatever state is chosen."""
    namespaces: Sequence[str]
    summary: str


def page(every: Sequence[Row], query: RowQuery) -> RowPage:
    """Return what the page of a query shows. Raises UnreadableError with 400."""
    labels = [label(each) for each in STATES]
    sort = choice("sort", query.sort or "state", tuple(_SORTS))
    state = query.state and choice("state", query.state, labels)
    found = [
        each
        for each in every
        if query.namespace in {"", each.namespace} and each.matches(query.words)
    ]
    counts = Counter(each.label for each in found)
    rows = sorted((each for each in found if state in {"", each.label}), key=_SORTS[sort])
    pages = max(1, -(-len(rows) // SIZE))
    number = 0
    if query.page:
        if not re.fullmatch("[1-9][0-9]{0,8}", query.page):
            raise UnreadableError(f"page={query.page}: must be a number from 1", status=400)
        number = min(int(query.page), pages)  # fewer rows than before: the last page
    return RowPage(
        rows=rows[(number - 1) * SIZE : number * SIZE] if number else rows,
        matching=len(rows),
        number=number,
        pages=pages,
        counts={each: counts[each] for each in labels},
        namespaces=sorted({each.namespace for each in every}),
        summary=_summary(every, len(rows) if query.link(sort="") != "?" else None),
    )


def choice(name: str, text: str, choices: Sequence[str]) -> str:
    """Return `text` if it is one of the choices. Raises UnreadableError with 400."""
    if text not in choices:
        raise UnreadableError(f"{name}={text}: must be one of {', '.join(choices)}", status=400)
    return text


def _summary(every: Sequence[Row], matching: int | None) -> str:
    counts = Counter(each.state for each in every)
    parts = [counted(counts[State.FAILURE], "failure"), counted(counts[State.WARNING], "warning")]
    if unknown := counts[State.SKIPPED]:
        parts.append(f"{unknown} unknown")
    summary = f"{counted(len(every), 'autoscaler')}: {', '.join(parts)}"
    return summary if matching is None else f"{summary}; {matching} match"
