from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.hpa import Hpa, Table

PODS = {"type": "Pods", "pods": {"target": {"type": "AverageValue", "averageValue": "40"}}}
OBJECT = {"type": "Object", "object": {"target": {"type": "Value", "value": "5"}}}


def hpa(
    *metrics: dict[str, Any], status: dict[str, Any] | None = None, cells: str = "a b 0/40 1 9 1 5s"
) -> Hpa:
    document = {"spec": {"metrics": [*metrics]}, "status": status or {}}
    return Hpa(document=document, cells=tuple(cells.split()))


def current(kind: str, **value: str) -> dict[str, Any]:
    return {"type": kind.title(), kind: {"current": value}}


@pytest.mark.parametrize(
    ("asked", "told", "shown"),
    [
        ([PODS], None, ["<unknown>"]),
        ([PODS], [{"type": ""}], ["<unknown>"]),
        ([PODS], [current("pods", averageValue="42857m")], ["42857m"]),
        (
            [OBJECT, PODS],
            [current("object", value="12"), current("pods", averageValue="0")],
            ["12", "0"],
        ),
    ],
    ids=["no status", "empty status", "pods", "two"],
)
def test_values_are_those_of_the_status_in_the_order_of_the_metrics(
    asked: list[dict[str, Any]], told: list[dict[str, Any]] | None, shown: list[str]
) -> None:
    assert hpa(*asked, status={"currentMetrics": told}).metrics == shown


def test_condition_that_is_not_there_is_unknown() -> None:
    active = {"type": "ScalingActive", "status": "False", "reason": "Why", "message": "so"}
    found = hpa(status={"conditions": [active], "currentReplicas": 2, "desiredReplicas": 3})

    assert found.condition("ScalingActive").reason == "Why"
    assert found.condition("AbleToScale").status == "Unknown"
    assert (found.current_replicas, found.desired) == (2, 3)
    assert hpa().current_replicas == 0


def test_table_has_a_row_for_each_change_and_none_for_age() -> None:
    table = Table()
    lines = ("gpu D/bert 0/40 1 9 1 5s", "gpu D/bert 0/40 1 9 1 6s", "gpu D/bert 100/40 1 9 10 8s")

    assert [table.add(hpa(cells=line)) for line in lines] == [True, False, True]
    assert str(table) == (
        "NAME   REFERENCE   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE\n"
        "gpu    D/bert      0/40      1         9         1          5s\n"
        "gpu    D/bert      100/40    1         9         10         8s"
    )
