"""The rows of a page: filters, order and pages."""

from __future__ import annotations

import pytest

from adapter.cli.console import listing, rows
from adapter.cli.console.listing import RowQuery
from rules.errors import UnreadableError
from tests.adapter.cli.console.conftest import status
from tests.rules.hpa import documents

BROKEN = ("False", "Failed", "")


def row(name: str, value: str | None, namespace: str = "default", **fields: object) -> rows.Row:
    """Return the row of an HPA whose target is 40."""
    document = documents.document(documents.pods_metric(), name=name, namespace=namespace)
    conditions = {} if value else {"ScalingActive": BROKEN}
    return rows.row(document | {"status": status(value, **conditions) | fields})


EVERY = (row("b", "10"), row("a", "30", desiredReplicas=9), row("c", None, "team"))


@pytest.mark.parametrize(
    ("query", "names"),
    [
        (RowQuery(), ["c", "a", "b"]),
        (RowQuery(sort="name"), ["a", "b", "c"]),
        (RowQuery(sort="value"), ["a", "b", "c"]),
        (RowQuery(sort="replicas"), ["a", "c", "b"]),
        (RowQuery(state="ok"), ["a", "b"]),
        (RowQuery(namespace="team"), ["c"]),
        (RowQuery(search="DEFAULT a", page="1"), ["a", "b"]),
        (RowQuery(page="9"), ["c", "a", "b"]),
    ],
)
def test_rows_are_filtered_and_sorted(query: RowQuery, names: list[str]) -> None:
    assert [each.name for each in listing.page(EVERY, query).rows] == names


def test_counts_are_of_the_rows_that_match_whatever_state_is_chosen() -> None:
    found = listing.page(EVERY, RowQuery(namespace="default", state="failure"))

    assert found.counts == {"failure": 0, "warning": 0, "unknown": 0, "ok": 2}
    assert found.summary == "3 autoscalers: 1 failure, 0 warnings; 0 match"


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (RowQuery(sort="x"), "sort=x: must be one of state, name, value, replicas"),
        (RowQuery(state="x"), "state=x: must be one of failure, warning, unknown, ok"),
        (RowQuery(page="-1"), "page=-1: must be a number from 1"),
        (RowQuery(page="9" * 5_000), "must be a number from 1"),
    ],
)
def test_a_wrong_query_is_refused_with_what_is_right(query: RowQuery, problem: str) -> None:
    with pytest.raises(UnreadableError, match=problem) as refused:
        listing.page(EVERY, query)
    assert refused.value.status == 400
