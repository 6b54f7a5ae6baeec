"""Replay: the controller's decisions over a past with known loads."""

from __future__ import annotations

import dataclasses
import random

import pytest

from rules.errors import UnreadableError
from rules.hpa import decision, proposal, replay, replay_report
from rules.hpa.autoscaler import DOWNSCALE_WINDOW
from rules.hpa.decision import History
from rules.hpa.proposal import PodValue
from rules.hpa.replay import MetricReading, Sync
from rules.hpa.replay_report import Replay
from tests.rules.hpa import documents

START = 1_800_000_000.0


def hpa(*metrics, minimum=1, maximum=10):
    metrics = metrics or [documents.pods_metric()]
    return documents.hpa(*metrics, minimum=minimum, maximum=maximum)


def sync(index, reading, pods, replicas=None):
    """Return a sync with so many ready pods, and as many replicas unless they are given."""
    return Sync(
        time=START + 15 * index,
        readings=(reading,),
        replicas=pods if replicas is None else replicas,
        present=pods,
        pods=pods,
        ready=pods,
    )


def past(*loads, pods=4, ceiling=100.0):
    """Return one sync for each load, which is that of all pods together."""
    readings = (
        MetricReading(milli=None)
        if load is None
        else MetricReading(milli=int(min(load, ceiling * pods) * 1000), counted=pods)
        for load in loads
    )
    return [sync(index, reading, pods) for index, reading in enumerate(readings)]


def run(settings, history, startup=0.0, **changes):
    variant = replay.variant(settings, **changes)
    return replay.simulate(
        "v", variant, history, startup=startup, step=15.0, totals=totals(variant)
    )


def recorded(settings, history):
    return replay.recorded(settings, history, step=15.0, totals=totals(settings))


def totals(settings):
    return [replay.is_load(each) for each in settings.metrics]


def test_replicas_follow_the_load_up_at_once_and_down_after_the_window():
    history = past(*[160] * 4, *[320] * 4, *[80] * 30)

    result = run(hpa(), history)

    assert result.replicas[:9] == (4, 4, 4, 4, 4, 8, 8, 8, 8)
    down = result.replicas.index(2)
    # The last recommendation of 8 is that of the last sync with a load of 320. It counts until it
    # is older than the window.
    assert history[down - 2].time - history[7].time == DOWNSCALE_WINDOW
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


@pytest.mark.parametrize("bounds", [(5, 4), (0, 0), (-1, 3), (1, 10_001)])
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(UnreadableError, match="must not be above"):
        replay.variant(hpa(), minimum=bounds[0], maximum=bounds[1])


def test_zero_replicas_need_a_metric_that_has_values_without_pods():
    with pytest.raises(UnreadableError, match="minReplicas 0 needs at least one Object or Extern"):
        replay.variant(hpa(), minimum=0)
    external = hpa(documents.pods_metric(), documents.external_metric(averageValue="10"))
    assert replay.variant(external, minimum=0).minimum == 0


def test_a_saturated_past_is_counted_and_no_value_is_above_the_ceiling():
    history = past(*[600] * 4)

    was = recorded(hpa(), history)
    two = run(hpa(maximum=2, minimum=2), history)

    assert (was.saturated, was.above) == (60, 60)
    assert two.saturated == 60


def test_without_values_nothing_is_decided():
    history = past(160, None, None, 320, 320)

    assert run(hpa(), history).replicas == (4, 4, 4, 4, 8)


def test_where_the_replicas_are_not_known_they_were_those_of_the_sync_before():
    known, gap = past(160, 160)
    gap = dataclasses.replace(gap, replicas=None, present=0)

    result = recorded(hpa(), [gap, known, gap, gap])

    assert result.replicas == (0, 4, 4, 4)


def test_an_external_total_does_not_follow_the_replicas_but_a_value_does():
    def history(value):
        return [sync(index, MetricReading(milli=value * 1000), 4) for index in range(30)]

    average = hpa(documents.external_metric(averageValue="10"))
    assert run(average, history(70)).replicas[-1] == 7
    # Twice the target with four replicas: eight replicas have half of the value.
    value = hpa(documents.external_metric(value="10"))
    assert run(value, history(20)).replicas[-1] == 8
    result = run(average, history(70))
    assert result.above == 15  # 70 are more than 10 for each of 4 replicas


@pytest.mark.parametrize(("target", "above"), [("value", 30), ("averageValue", 0)])
def test_only_an_average_value_is_compared_by_replica(target, above):
    """Also if the metric is the load of all pods: that of an object with `workloads: sum`."""
    settings = hpa(documents.object_metric(**{target: "100"}))
    history = [sync(index, MetricReading(milli=200_000), 4) for index in range(2)]

    assert replay.recorded(settings, history, step=15.0, totals=[True]).above == above


def test_start_up_time_is_the_median_of_the_scale_ups():
    rows = [(1, 1), (3, 1), (3, 2), (3, 3), (2, 3), (2, 2), (4, 2), (4, 4), (9, 4), (5, 5), (6, 5)]
    history = [
        sync(index, MetricReading(milli=1000 * pods, counted=pods), pods, replicas)
        for index, (replicas, pods) in enumerate(rows)
    ]

    assert replay.startup(history, 0) == (22.5, 2)  # 30 s and 15 s; the third one was given up
    assert replay.startup(history[:2], 0) is None


def test_values_are_facts_while_the_replicas_are_those_that_there_were():
    """With the present settings nothing differs, so the model is not used."""
    history = past(*[160] * 30)
    uneven = [
        dataclasses.replace(each, readings=(MetricReading(milli=150_000, counted=3, missing=1),))
        for each in history
    ]

    present = run(hpa(), uneven, startup=60.0)
    other = run(hpa(), uneven, startup=60.0, target=(0, 20_000))

    assert (present.modelled, set(present.replicas)) == (0, {4})
    # The first sync is a fact; after that there are eight replicas.
    assert other.modelled == 29 * 15


def test_a_replay_returns_to_facts_when_pods_have_had_time_to_start():
    history = past(*[160] * 20)
    history[2:4] = past(*[320] * 4)[2:4]  # for a while, there was more to do
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}

    result = run(hpa(), history, startup=30.0, behavior=behavior)

    assert result.replicas[:7] == (4, 4, 4, 8, 8, 4, 4)
    assert result.modelled == 15 * 3  # two syncs with 8 replicas, and the one after


def test_zero_replicas_are_left_when_there_is_something_to_do():
    rows = [(0, 1), *[(0, 0)] * 30, *[(25, 0)] * 3, *[(25, 3)] * 3]
    history = [
        sync(index, MetricReading(milli=value * 1000), pods)
        for index, (value, pods) in enumerate(rows)
    ]
    settings = hpa(documents.external_metric(averageValue="10"), minimum=0)

    decided = list(replay.decisions(settings, history))
    simulated = run(settings, history)

    assert decided[31] == 3
    assert 0 in simulated.replicas
    assert simulated.replicas[-1] == 3


@pytest.mark.parametrize(("minimum", "desired"), [(0, 3), (1, 0)])
def test_a_controller_that_starts_scales_from_zero_only_where_zero_is_allowed(minimum, desired):
    settings = hpa(documents.external_metric(averageValue="10"), minimum=minimum)

    assert list(replay.decisions(settings, [sync(0, MetricReading(milli=25_000), 0)])) == [desired]


def test_a_replay_begins_with_the_pods_if_the_replicas_are_not_known():
    first, *others = past(160, 160, 160)

    result = run(hpa(), [dataclasses.replace(first, replicas=None), *others])

    assert result.replicas == (4, 4, 4)


def test_decisions_are_those_of_the_controller_from_what_there_was():
    """The same by `decision.decide` alone, with all past recommendations and changes."""
    generator = random.Random(7)
    loads = [generator.choice([40, 80, 160, 320, 400]) for _ in range(200)]
    settings, history = hpa(), past(*loads)

    decided = list(replay.decisions(settings, history))

    recommendations = [(START, 4)]
    for sync, replicas in zip(history, decided, strict=True):
        pods = [replay._pod(number, "Running") for number in range(4)]
        share = PodValue(value=sync.readings[0].milli // 4)
        proposed = proposal.of_pods(
            settings.metrics[0],
            {each.name: share for each in pods},
            pods,
            current=4,
            tolerances=settings.tolerances,
        )
        found = decision.decide(
            settings,
            4,
            [proposed],
            now=sync.time,
            history=History(recommendations=tuple(recommendations)),
        )
        recommendations.append((sync.time, found.recommended))
        assert found.replicas == replicas


def test_the_fit_counts_syncs_by_the_distance_to_the_next_ones_replicas():
    history = [
        dataclasses.replace(each, replicas=replicas)
        for each, replicas in zip(past(1, 1, 1, 1, 1), (9, 4, 5, 9, None), strict=True)
    ]

    assert replay.fit([4, 4, 4, 4, 4], history) == replay.Fit(equal=1, near=1, different=1)


def report():
    history = past(*[160] * 4, *[320] * 4, *[80] * 400)
    settings = hpa()
    results = [
        recorded(settings, history),
        dataclasses.replace(run(settings, history), title="present settings"),
    ]
    decided = list(replay.decisions(settings, history))
    return Replay(
        hpa=settings,
        history=tuple(history),
        step=15.0,
        results=tuple(results),
        decided=tuple(decided),
        fit=replay.fit(decided, history),
        notes=("History: x",),
    )


def test_the_text_has_a_row_and_a_drawing_for_each_variant():
    lines = list(replay_report.lines(report()))

    period = "from 2027-01-15 08:00 to 2027-01-15 09:41 UTC"
    assert lines[0] == f"default/gpu-hpa {period}: 408 syncs, one every 15 s"
    assert lines[1] == "* History: x"
    assert lines[3].split("  ")[-1] == "largest step"
    assert lines[4].split() == [
        "as",
        "it",
        "was",
        *["0", "s", "6.8", "1", "min"],
        "0",
        "s",
        "0",
        "0",
        "0",
    ]
    assert lines[5].startswith("present settings  ")
    assert lines[7] == "Replicas, 0 to 8"
    assert lines[8] == f"as it was         {'▄' * 60}"
    assert lines[9] == f"present settings  {'█' * 5}{'▂' * 55}"
    assert lines[-1] == (
        "From the values and replicas that there were, the controller decides what it did at 4 of "
        "407 syncs; 0 differ by one, 403 by more"
    )


def test_the_document_has_replicas_as_runs():
    document = replay_report.document(report())

    assert [each["title"] for each in document["variants"]] == ["as it was", "present settings"]
    assert document["variants"][0]["replicas"] == [[0, 4]]
    assert document["variants"][1]["replicas"] == [[0, 4], [5, 8], [29, 2]]
    assert document["syncs"] == 408


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (45, "45 s"), (60, "1 min"), (3599, "1 h 00 min"), (11_100, "3 h 05 min")],
)
def test_durations_are_for_people(seconds, text):
    assert replay_report.duration(seconds) == text
