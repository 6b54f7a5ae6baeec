from __future__ import annotations

from typing import Any

import pytest

from tools.cluster.hpa import Hpa, Table

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
    ("specs", "current_metrics", "values"),
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
def test_metrics_are_the_current_values_in_the_order_of_the_spec(
    specs: list[dict[str, Any]], current_metrics: list[dict[str, Any]] | None, values: list[str]
) -> None:
    assert hpa(*specs, status={"currentMetrics": current_metrics}).metrics == values


def test_missing_condition_is_unknown() -> None:
    active = {"type": "ScalingActive", "status": "False", "reason": "InvalidSelector"}
    state = hpa(status={"conditions": [active], "currentReplicas": 2, "desiredReplicas": 3})

    assert state.condition("ScalingActive").reason == "InvalidSelector"
    assert state.condition("AbleToScale").status == "Unknown"
    assert (state.current_replicas, state.desired_replicas) == (2, 3)
    assert hpa().current_replicas == 0


def test_table_gets_a_row_for_each_change_except_of_the_age() -> None:
    table = Table()
    lines = ("gpu D/bert 0/40 1 9 1 5s", "gpu D/bert 0/40 1 9 1 6s", "gpu D/bert 100/40 1 9 10 8s")

    assert [table.add(hpa(cells=line)) for line in lines] == [True, False, True]
    assert str(table) == (
        "NAME   REFERENCE   TARGETS   MINPODS   MAXPODS   REPLICAS   AGE\n"
        "gpu    D/bert      0/40      1         9         1          5s\n"
        "gpu    D/bert      100/40    1         9         10         8s"
    )
