"""Replay: the controller's decisions over a past with known loads."""

from __future__ import annotations

import dataclasses
import random

import pytest

from rules.errors import UnreadableError
from rules.hpa import autoscaler, decision, proposal, replay, replay_report
from rules.hpa.decision import History
from rules.hpa.proposal import PodValue
from rules.hpa.replay import Sync, Variant
from rules.hpa.replay_report import Replay
from tests.rules.hpa import documents

START = 1_800_000_000.0


def hpa(*metrics, minimum=1, maximum=10, behavior=None):
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": minimum,
        "maxReplicas": maximum,
        "metrics": [*(metrics or [documents.pods_metric("40")])],
    }
    if behavior is not None:
        spec["behavior"] = behavior
    return autoscaler.autoscaler({"metadata": {"namespace": "n", "name": "h"}, "spec": spec})


def past(*loads, pods=4, ceiling=100.0):
    """Return one sync for each load, which is that of all pods together."""
    return [
        Sync(
            time=START + 15 * index,
            values=(None if load is None else min(load / pods, ceiling),),
            pods=(pods,),
            replicas=pods,
        )
        for index, load in enumerate(loads)
    ]


def run(settings, history, startup=0.0, **changes):
    variant = replay.variant(settings, "v", **changes)
    return replay.simulate(variant, history, startup=startup)


def test_replicas_follow_the_load_up_at_once_and_down_after_the_window():
    history = past(*[160] * 4, *[320] * 4, *[80] * 30)

    result = run(hpa(), history)

    assert result.replicas[:9] == (4, 4, 4, 4, 4, 8, 8, 8, 8)
    down = result.replicas.index(2)
    # The last recommendation of 8 is that of the last sync with a load of 320.
    assert history[down - 1].time - history[7].time == decision.DOWNSCALE_WINDOW
    assert (result.ups, result.downs, result.largest) == (1, 1, 6)
    assert result.pod_hours == sum(result.replicas) * 15 / 3600
    assert result.above == 15  # until the sync after the rise


def test_another_target_needs_other_replicas():
    history = past(*[160] * 30)

    assert run(hpa(), history, target=(0, 80_000)).replicas[-1] == 2
    assert run(hpa(), history, target=(0, 20_000)).replicas[-1] == 8
    assert run(hpa(), history, target=(0, 1_000)).replicas[-1] == 10
    assert run(hpa(), history, target=(0, 1_000), maximum=30).replicas[-1] == 30
    assert run(hpa(), history, target=(0, 80_000), minimum=3).replicas[-1] == 3


def test_a_pod_that_starts_has_no_value_and_counts_as_nothing_before_a_scale_up():
    history = past(*[320] * 12)

    slow = run(hpa(), history, startup=60.0)

    # Eight replicas, of which four have started: their 80 % become 40 % of all, which is enough.
    assert slow.replicas == (4, *[8] * 11)
    assert slow.above == 60
    assert run(hpa(), history).above == 15


def test_behavior_limits_the_speed_and_lengthens_windows():
    behavior = {
        "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
        "scaleDown": {"stabilizationWindowSeconds": 0},
    }
    history = past(*[320] * 16, *[40] * 2)

    result = run(hpa(), history, behavior=behavior)

    assert result.replicas == (4, *[5] * 4, *[6] * 4, *[7] * 4, *[8] * 4, 1)
    assert result.largest == 7


@pytest.mark.parametrize(
    ("behavior", "problem"),
    [
        ({"scaleUpp": {}}, "unknown key scaleUpp"),
        ({"scaleUp": {"selectPolicy": "Most"}}, "selectPolicy Most"),
        ({"scaleDown": {"stabilizationWindowSeconds": 3601}}, "stabilizationWindowSeconds 3601"),
        ({"scaleUp": {"policies": []}}, "policies need"),
        ({"scaleUp": {"policies": [{"type": "Pods", "value": 0, "periodSeconds": 1}]}}, "policies"),
        ({"scaleUp": {"policies": [{"type": "Pods"}]}}, "'value'"),
        ({"scaleUp": 7}, "not as `spec.behavior`"),
        ({"scaleUp": {"stabilizationWindowSeconds": "a"}}, "not as `spec.behavior`"),
    ],
)
def test_behavior_that_the_api_server_refuses_is_refused(behavior, problem):
    with pytest.raises(UnreadableError, match=problem):
        replay.variant(hpa(), "v", behavior=behavior)


@pytest.mark.parametrize("bounds", [(5, 4), (0, 0), (-1, 3), (1, 10_001)])
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(UnreadableError, match="must not be above"):
        replay.variant(hpa(), "v", minimum=bounds[0], maximum=bounds[1])


def test_a_saturated_past_is_counted_and_no_value_is_above_the_ceiling():
    history = past(*[600] * 4)

    was = replay.recorded(hpa(), history, 15)
    two = run(hpa(maximum=2, minimum=2), history)

    assert (was.saturated, was.above) == (60, 60)
    assert two.saturated == 60


def test_without_values_nothing_is_decided():
    history = past(160, None, None, 320, 320)

    assert run(hpa(), history).replicas == (4, 4, 4, 4, 8)


def test_where_the_replicas_are_not_known_they_were_those_of_the_sync_before():
    known, gap = past(160, 160)
    gap = dataclasses.replace(gap, replicas=None, pods=(0,))

    result = replay.recorded(hpa(), [gap, known, gap, gap], step=15)

    assert result.replicas == (0, 4, 4, 4)


def test_an_external_total_does_not_follow_the_replicas_but_a_value_does():
    def history(value):
        return [
            Sync(time=START + 15 * i, values=(value,), pods=(1,), replicas=4) for i in range(30)
        ]

    average = hpa(documents.external_metric(averageValue="10"))
    assert run(average, history(70.0)).replicas[-1] == 7
    # Twice the target with four replicas: eight replicas have half of the value.
    value = hpa(documents.external_metric(value="10"))
    assert run(value, history(20.0)).replicas[-1] == 8
    result = run(average, history(70.0))
    assert result.above == 15  # 70 are more than 10 for each of 4 replicas


def test_start_up_time_is_the_median_of_the_scale_ups():
    def sync(index, replicas, pods):
        return Sync(time=START + 15 * index, values=(1.0,), pods=(pods,), replicas=replicas)

    rows = [(1, 1), (3, 1), (3, 2), (3, 3), (2, 3), (2, 2), (4, 2), (4, 4), (9, 4), (5, 5), (6, 5)]
    history = [sync(index, *row) for index, row in enumerate(rows)]

    assert replay.startup(history, 0) == (22.5, 2)  # 30 s and 15 s; the third one was given up
    assert replay.startup(history[:2], 0) is None


def test_it_decides_as_the_controller_does_with_its_history():
    """The same steps by `decision.decide` alone, with all past recommendations and changes."""
    generator = random.Random(7)
    loads = [generator.choice([40, 80, 160, 320, 400]) for _ in range(200)]
    settings, history = hpa(), past(*loads)
    result = run(settings, history)

    recommendations, changes, current = [], [], 4
    for index, load in enumerate(loads):
        assert result.replicas[index] == current
        pods = [replay._pod(number) for number in range(current)]
        share = PodValue(value=int(min(load / current, 100) * 1000))
        proposed = proposal.of_pods(
            settings.metrics[0],
            {each.name: share for each in pods},
            pods,
            current=current,
            tolerances=settings.tolerances,
        )
        now = history[index].time
        decided = decision.decide(
            settings,
            current,
            [proposed],
            now=now,
            history=History(recommendations=tuple(recommendations), changes=tuple(changes)),
        )
        recommendations.append((now, decided.recommended))
        assert decided.replicas is not None
        if decided.replicas != current:
            changes.append((now, decided.replicas - current))
        current = decided.replicas


def test_the_fit_counts_syncs_by_their_distance():
    history = [
        dataclasses.replace(each, replicas=replicas)
        for each, replicas in zip(past(1, 1, 1, 1), (4, 5, 9, None), strict=True)
    ]
    result = dataclasses.replace(run(hpa(), history), replicas=(4, 4, 4, 4))

    assert replay.fit(result, history) == replay.Fit(equal=1, near=1, different=1)


def report():
    history = past(*[160] * 4, *[320] * 4, *[80] * 400)
    settings = hpa()
    results = [
        replay.recorded(settings, history, 15),
        replay.simulate(Variant(title="present settings", hpa=settings), history, startup=0.0),
    ]
    return Replay(
        hpa=settings,
        history=tuple(history),
        step=15.0,
        results=tuple(results),
        fit=replay.fit(results[1], history),
        notes=("History: x",),
    )


def test_the_text_has_a_row_and_a_drawing_for_each_variant():
    lines = list(replay_report.lines(report()))

    period = "from 2027-01-15 08:00 to 2027-01-15 09:41 UTC"
    assert lines[0] == f"n/h {period}: 408 syncs, one every 15 s"
    assert lines[1] == "* History: x"
    assert lines[3].split("  ")[-1] == "largest step"
    assert lines[4].split() == ["as", "it", "was", "6.8", "1", "min", "0", "s", "0", "0", "0"]
    assert lines[5].startswith("present settings  ")
    assert lines[7] == "Replicas, 0 to 8"
    assert lines[8] == f"as it was         {'▄' * 60}"
    assert lines[9] == f"present settings  {'█' * 5}{'▂' * 55}"
    assert lines[-1].startswith("Replayed with the present settings, ")


def test_the_document_has_replicas_as_runs():
    document = replay_report.document(report())

    assert [each["title"] for each in document["variants"]] == ["as it was", "present settings"]
    assert document["variants"][0]["replicas"] == [[0, 4]]
    assert document["variants"][1]["replicas"] == [[0, 4], [5, 8], [28, 2]]
    assert document["syncs"] == 408


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45, "45 s"), (60, "1 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min")],
)
def test_durations_are_for_people(seconds, text):
    assert replay_report.duration(seconds) == text
