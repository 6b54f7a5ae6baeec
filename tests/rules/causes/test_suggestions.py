from __future__ import annotations

import difflib

import pytest

from rules import presets, ruleset
from rules.causes import missing, suggestions
from rules.causes.reasons import summarize
from rules.kinds import PODS
from tests import world


@pytest.mark.parametrize(
    ("name", "similar"),
    [
        ("duty_cycel_now", ["duty_cycle_now", "duty_cycle_over"]),
        ("powr", ["power"]),
        ("queue", []),
        ("", []),
    ],
)
def test_similar_names_are_suggested(name, similar):
    assert (
        suggestions.similar_names(name, {"power", "duty_cycle_now", "duty_cycle_over"}) == similar
    )


@pytest.fixture
def compared(monkeypatch):
    """The names that were compared so far."""
    names = []
    set_seq1 = difflib.SequenceMatcher.set_seq1

    def record(matcher, name):
        if name:  # the matcher itself sets an empty one
            names.append(name)
        set_seq1(matcher, name)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", record)
    return names


@pytest.mark.parametrize("typed", ["app_metric_1717_totl", "apq_metric_1717_total"])
def test_the_most_similar_of_very_many_names_is_found_with_few_comparisons(typed, compared):
    known = {f"app_metric_{number}_total" for number in range(20_000)}

    assert suggestions.similar_names(typed, known)[0] == "app_metric_1717_total"
    assert len(compared) <= 200


def test_a_very_long_name_is_compared_with_none(compared):
    assert suggestions.similar_names("a" * 1_000_000, {"a" * 1000}) == []
    assert compared == []


def suggestion(metric, *, preset="gpu-dcgm", resource=PODS):
    """The suggestion where one preset is loaded and its series are not listed."""
    loaded = ruleset.load([(preset, presets.text(preset))])
    inventory = world.generation(loaded).inventory(now=0.0)
    return suggestions.suggest(inventory, loaded.rules, metric, resource).text


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpu_utilization", "duty_cycle_current"),
        ("nvidia_gpu_duty_cycle", "duty_cycle_current"),
        ("gpu_util_percent", "duty_cycle_current"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "memory_used_bytes_current"),
        ("gpu_memory_used", "memory_used_bytes_current"),
        ("gpu_mem_util", "memory_utilization_current"),
        ("gpu_temp", "temperature_celsius_current"),
        ("gpu_power_usage", "power_usage_milliwatts_current"),
    ],
)
def test_a_usual_name_leads_to_the_metric_of_the_same_meaning(typed, meant):
    assert f"; did you mean {meant} (" in suggestion(typed)


@pytest.mark.parametrize("name", ["cpu_utilization", "gpu", "queue_length", "http_requests", ""])
def test_a_name_with_another_meaning_leads_to_no_metric_of_a_gpu(name):
    assert suggestion(name) == ""


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        ("sm_active_current", "; it is in the presets gpu-dcgm-prof: `gpu-metrics-adapter presets"),
        ("sm_active", "; did you mean sm_active_current? It is in the presets gpu-dcgm-prof: "),
        ("tensr_activ_curent", "; did you mean tensor_active_current? It is in the presets gpu-"),
        ("gpu_memory_total", "memory_total_bytes_current? It is in the presets "),
    ],
)
def test_a_metric_of_a_preset_that_is_not_loaded_leads_to_the_preset(typed, text):
    assert text in suggestion(typed)


def test_the_condition_of_an_hpa_names_what_was_meant_and_nothing_that_changes():
    loaded = ruleset.load([("gpu-dcgm", presets.text("gpu-dcgm"))])
    inventory = world.generation(loaded).inventory(now=0.0)

    (cause,) = missing.of_metric(inventory, "duty_cycle_curent", PODS, {})

    assert "did you mean duty_cycle_current (of " in cause.sentence
    assert summarize(cause) == (
        "WrongName: no rule produces a metric named duty_cycle_curent; did you mean "
        "duty_cycle_current, duty_cycle_over_time?"
    )


def test_an_external_metric_leads_to_no_preset():
    assert suggestion("sm_active_current", resource=None) == ""
