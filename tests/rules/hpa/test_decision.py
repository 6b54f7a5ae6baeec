"""Limits, policies and stabilization, with and without what only the controller knows."""

from __future__ import annotations

from typing import Any

import pytest

from rules.hpa import decision, proposal
from rules.hpa.autoscaler import Autoscaler
from rules.hpa.decision import Decision, History
from rules.hpa.proposal import Proposal
from tests.rules.hpa.documents import external_metric, hpa, pods_metric

NOW = 1_000_000.0
FAST: dict[str, Any] = {
    "down": {"stabilizationWindowSeconds": 5},
    "up": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
}


def proposals(autoscaler: Autoscaler, *numbers: int | None) -> list[Proposal]:
    metric = autoscaler.metrics[0]
    return [
        proposal.failed(metric, "no metrics returned")
        if number is None
        else Proposal(metric=metric, replicas=number)
        for number in numbers
    ]


def decide(
    autoscaler: Autoscaler, current: int, *numbers: int | None, history: History | None = None
) -> Decision:
    found = proposals(autoscaler, *numbers)
    return decision.decide(autoscaler, current, found, now=NOW, history=history)


@pytest.mark.parametrize(
    ("current", "numbers", "desired"),
    [
        (1, (2,), 2),
        (1, (2, 5), 4),  # at most four, or twice as many
        (3, (9,), 6),
        (6, (20,), 10),
        (2, (2,), 2),
        (1, (0,), 1),
        (2, (None, 3), 3),  # a failing metric does not prevent a scale-up
    ],
)
def test_without_behavior_the_highest_proposal_is_limited(
    current: int, numbers: tuple[int | None, ...], desired: int
) -> None:
    assert decide(hpa(pods_metric()), current, *numbers).replicas == desired


@pytest.mark.parametrize("numbers", [(None,), (None, 1), (None, None)])
def test_a_failing_metric_prevents_a_scale_down(numbers: tuple[int | None, ...]) -> None:
    found = decide(hpa(pods_metric()), 3, *numbers)

    assert (found.replicas, found.recommended) == (3, None)
    assert found.inactive.startswith("Pods metric duty_cycle_current has no value")


@pytest.mark.parametrize(
    ("current", "desired", "limit"),
    [(12, 10, "TooManyReplicas"), (1, 2, "TooFewReplicas"), (0, 0, "")],
)
def test_metrics_do_not_count_outside_of_the_bounds(current: int, desired: int, limit: str) -> None:
    autoscaler = hpa(pods_metric(), minimum=2)

    assert not decision.needs_metrics(autoscaler, current)
    found = decide(autoscaler, current)
    assert (found.replicas, found.limit) == (desired, limit)
    assert found.inactive


def test_a_scale_down_is_a_range_for_those_who_do_not_know_past_recommendations() -> None:
    found = decide(hpa(pods_metric()), 3, 1)

    assert (found.low, found.high, found.replicas) == (1, 3, None)
    assert found.unknown == "the highest recommendation of the last 300 s"


def test_the_highest_recommendation_of_the_window_counts() -> None:
    history = History(recommendations=((NOW - 301, 9), (NOW - 299, 2), (NOW - 10, 1)))

    found = decide(hpa(pods_metric()), 3, 1, history=history)

    assert (found.replicas, found.limit) == (2, "Stabilized")


def test_windows_of_behavior_apply_in_both_directions() -> None:
    autoscaler = hpa(pods_metric(), up={"stabilizationWindowSeconds": 60}, down={})
    history = History(recommendations=((NOW - 61, 1), (NOW - 59, 3), (NOW - 299, 2)))

    assert decide(autoscaler, 2, 5, history=history).replicas == 3
    assert decide(autoscaler, 2, 1, history=history).replicas == 2
    unknown = decide(autoscaler, 2, 5)
    assert (unknown.low, unknown.high) == (2, 5)
    assert unknown.unknown == "the lowest recommendation of the last 60 s"


def test_a_window_of_zero_needs_no_history() -> None:
    autoscaler = hpa(pods_metric(), down={"stabilizationWindowSeconds": 0})

    assert decide(autoscaler, 3, 1).replicas == 1


@pytest.mark.parametrize(
    ("select", "changes", "desired"),
    [
        ("Max", (), 10),
        ("Min", (), 8),
        ("Disabled", (), 5),
        ("Max", ((NOW - 14, 4),), 6),  # of the four pods that one policy adds, four are there
        ("Max", ((NOW - 16, 4),), 10),
    ],
)
def test_policies_limit_a_scale_up(
    select: str, changes: tuple[tuple[float, int], ...], desired: int
) -> None:
    policies = [
        {"type": "Pods", "value": 3, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ]
    if changes:
        policies.pop()
        policies[0]["value"] = 5
    autoscaler = hpa(pods_metric(), maximum=20, up={"policies": policies, "selectPolicy": select})

    found = decide(autoscaler, 5, 20, history=History(changes=changes))

    assert (found.replicas, found.limit) == (desired, "ScaleUpLimit")


def test_a_percentage_is_computed_in_doubles_as_in_the_original() -> None:
    policy = {"type": "Percent", "value": 10, "periodSeconds": 60}
    autoscaler = hpa(pods_metric(), maximum=200, up={"policies": [policy]})

    assert decide(autoscaler, 100, 200).replicas == 111


@pytest.mark.parametrize(("select", "desired"), [("Max", 5), ("Min", 8), ("Disabled", 10)])
def test_policies_limit_a_scale_down(select: str, desired: int) -> None:
    policies = [
        {"type": "Pods", "value": 2, "periodSeconds": 60},
        {"type": "Percent", "value": 50, "periodSeconds": 60},
    ]
    down = {"stabilizationWindowSeconds": 0, "selectPolicy": select, "policies": policies}

    found = decide(hpa(pods_metric(), down=down), 10, 1)

    assert (found.replicas, found.limit) == (desired, "ScaleDownLimit")


def test_recent_changes_that_are_not_known_make_a_range() -> None:
    policy = {"type": "Pods", "value": 2, "periodSeconds": 60}
    status = {"lastScaleTime": "1970-01-12T13:46:20Z"}  # 20 s before NOW

    found = decide(hpa(pods_metric(), up={"policies": [policy]}, status=status), 4, 9)

    assert (found.low, found.high) == (4, 9)  # a recent scale-down allows a higher scale-up
    assert "policies of `spec.behavior`" in found.unknown


@pytest.mark.parametrize(
    ("limited", "numbers"),
    [
        (("False", "DesiredWithinRange"), (5, 5)),  # no recommendation was above the desired 4
        (("True", "TooFewReplicas"), (5, 5)),
        (("True", "ScaleUpLimit"), (5, 8)),
        (("True", "TooManyReplicas"), (5, 8)),
    ],
)
def test_the_last_sync_says_whether_a_past_peak_scales_up(
    limited: tuple[str, str], numbers: tuple[int, int]
) -> None:
    condition = {"type": "ScalingLimited", "status": limited[0], "reason": limited[1]}
    status = {"desiredReplicas": 4, "conditions": [condition]}

    found = decide(hpa(pods_metric(), status=status), 4, 5)

    assert (found.low, found.high) == numbers


@pytest.mark.parametrize(
    ("numbers", "desired"), [((-3,), 1), ((0, -3), 1), ((-(2**31), 2), 2), ((0, -3, 2), 2)]
)
def test_replicas_are_never_negative(numbers: tuple[int, ...], desired: int) -> None:
    history = History()

    found = decide(hpa(pods_metric()), 3, *numbers, history=history)

    assert (found.replicas, found.recommended) == (desired, max(0, *numbers))


def test_the_minimum_counts_on_the_way_from_zero() -> None:
    slept = {"conditions": [{"type": "ScaledToZero", "status": "True"}]}
    autoscaler = hpa(external_metric(type="Value", value="5"), minimum=3, status=slept)

    assert decide(autoscaler, 0, 1).replicas == 3
    assert not decision.needs_metrics(hpa(pods_metric(), minimum=0, status=slept), 0)


@pytest.mark.parametrize(
    ("settings", "age", "desired"),
    [
        ({}, 300, 3),
        ({}, 300.01, 1),
        ({"down": {"stabilizationWindowSeconds": 300}}, 299.99, 3),
        ({"down": {"stabilizationWindowSeconds": 300}}, 300, 2),  # half of them at a time
    ],
)
def test_a_recommendation_of_exactly_the_windows_age_counts_only_without_behavior(
    settings: dict[str, Any], age: float, desired: int
) -> None:
    history = History(recommendations=((NOW - age, 3),))
    policy = {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}
    given = {"down": {**settings["down"], **policy}} if settings else {}

    assert decide(hpa(pods_metric(), **given), 3, 1, history=history).replicas == desired


def test_the_last_outdated_recommendation_gives_its_place_to_a_new_one() -> None:
    autoscaler = hpa(pods_metric())
    history = History(recommendations=((0.0, 1), (5.0, 2), (6.0, 3)))

    kept = decision.remember(history, autoscaler, now=305.5, recommended=9)
    more = decision.remember(history, autoscaler, now=300.0, recommended=9)

    assert kept.recommendations == ((0.0, 1), (305.5, 9), (6.0, 3))
    assert more.recommendations == (*history.recommendations, (300.0, 9))
    assert decision.remember(history, autoscaler, now=305.5) is history


def test_an_outdated_change_counts_for_the_other_direction_until_its_place_is_taken() -> None:
    def policies(seconds: int) -> dict[str, Any]:
        return {"policies": [{"type": "Pods", "value": 2, "periodSeconds": seconds}]}

    down = {"stabilizationWindowSeconds": 0, **policies(60)}
    autoscaler = hpa(pods_metric(), maximum=20, up=policies(10), down=down)
    history = decision.scaled(History(), autoscaler, now=NOW - 30, before=4, after=8)

    # There were four a minute ago, so that two of them may go.
    assert decide(autoscaler, 8, 1, history=history).replicas == 2
    again = decision.scaled(history, autoscaler, now=NOW - 5, before=8, after=9)
    assert again.changes == ((NOW - 5, 1),)
    assert decide(autoscaler, 9, 1, history=again).replicas == 6
    down_first = decision.scaled(history, autoscaler, now=NOW - 5, before=8, after=7)
    assert down_first.changes == ((NOW - 30, 4), (NOW - 5, -1))


def test_without_behavior_no_change_is_kept() -> None:
    changed = decision.scaled(History(), hpa(pods_metric()), now=NOW, before=1, after=4)

    assert changed.changes == ()


def test_only_a_target_that_the_controller_scaled_to_zero_wakes() -> None:
    autoscaler = hpa(external_metric(averageValue="5"), minimum=0)
    slept = decision.scaled(History(), autoscaler, now=NOW, before=1, after=0)

    assert decide(autoscaler, 0, 3, history=slept).replicas == 3
    assert decide(autoscaler, 0, 3, history=History()).replicas == 0
    woken = decision.scaled(slept, autoscaler, now=NOW, before=0, after=3)
    assert woken.scaled_to_zero is False


def test_the_walkthroughs_go_to_their_maximum() -> None:
    autoscaler = hpa(pods_metric(), maximum=12, **FAST)

    steps = [decide(autoscaler, current, 2 * current, history=History()) for current in (1, 2, 8)]

    assert [each.replicas for each in steps] == [2, 4, 12]
    assert steps[-1].limit == "TooManyReplicas"
