"""What is concluded from names alone; what a real Prometheus shows is in tests/presets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from rules import presets, promql
from rules.document import config
from rules.exporters import detect, generations
from rules.exporters.detect import Observations
from rules.exporters.generations import GENERATIONS, Generation

UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
GR_ENGINE, SM = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"


def seen(names: Iterable[str], labels: str, **more: object) -> Observations:
    """Series that all carry the same labels, written with blanks between."""
    carried = frozenset(labels.split())
    return Observations(names=dict.fromkeys(names, carried), anything=True, **more)


def codes(report: detect.Report) -> set[str]:
    return {finding.code for each in report.sightings for finding in each.findings}


def rules_of(preset: str) -> tuple[config.Rule, ...]:
    found, problems = config.parse(presets.text(preset), file=preset)
    assert found is not None, problems
    return found.rules


def named(generation: Generation) -> list[tuple[str, Mapping[str, tuple[str, ...]]]]:
    """Each preset that reads a generation, with what it is said to need."""
    pairs = [(name, generation.fields) for name in {generation.preset, generation.podless} - {""}]
    if generation.name == "dcgm":
        pairs.append((generations.MIG, generation.fields))
    if generation.name == "dcgm-compat":
        pairs.append((generations.OLD_NAMES, generation.fields))
    if generation.profiling:
        pairs.append((generations.PROFILING, generation.profiling))
    return pairs


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_table_names_what_the_presets_read(generation: Generation) -> None:
    for preset, fields in named(generation):
        read = {
            (rule.name.as_, series)
            for rule in rules_of(preset)
            for series in generation.series
            if series in re.findall(r"\w+", f"{rule.series_query} {rule.metrics_query}")
        }
        for metric, needed in fields.items():
            assert {(f"{metric}_current", series) for series in needed} <= read, preset


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_table_knows_all_that_the_preset_gives(generation: Generation) -> None:
    if not generation.preset:
        return
    given = {
        rule.name.as_.removesuffix("_current")
        for rule in rules_of(generation.preset)
        if rule.name.as_.endswith("_current")
        and promql.pinned_name(rule.series_query) in generation.series
    }

    assert given == set(generation.fields)


def test_table_names_the_presets_node_labels() -> None:
    told = {each.preset: each.nodes for each in GENERATIONS if each.preset}
    told |= {
        generations.MIG: told["gpu-dcgm"],
        generations.NODE: generations.NODES_OF_NODE,
        generations.OLD_NAMES: generations.NODES_OF_OLD_NAMES,
    }

    for preset, labels in told.items():
        for rule in rules_of(preset):
            overrides = rule.resources.overrides
            nodes = [each.label for each in overrides if each.resource == "node"]
            assert tuple(nodes) == labels, preset


def test_every_preset_of_gpus_is_reachable() -> None:
    reachable = {name for each in GENERATIONS for name, _ in named(each)}

    assert reachable == {name for name in presets.names() if name.startswith("gpu-")}


PODS = "UUID exported_pod pod Hostname pci_bus_id"
CASES = [
    pytest.param(
        seen([UTIL, GR_ENGINE], f"{PODS} GPU_I_PROFILE"),
        (generations.MIG, generations.PROFILING),
        {"missing", "missing-profiling", "mig"},
        id="split GPUs with the engine's activity",
    ),
    pytest.param(
        seen([UTIL], f"{PODS} GPU_I_PROFILE"),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "mig-without-engine"},
        id="split GPUs without it",
    ),
    pytest.param(
        seen(["DCGM_FI_DEV_GPU_UTIL_RATIO"], f"{PODS} GPU_I_PROFILE"),
        ("gpu-dcgm49",),
        {"missing", "no-profiling", "mig-without-engine"},
        id="split GPUs of 4.9 without it",
    ),
    pytest.param(
        seen(["dcgm_gpu_utilization", "dcgm_fi_prof_gr_engine_active"], f"{PODS} GPU_I_PROFILE"),
        ("gpu-dcgm-compat", generations.PROFILING),
        {"missing", "missing-profiling", "mig-by-profiling"},
        id="split GPUs by the old names",
    ),
    pytest.param(
        seen([GR_ENGINE, SM], PODS),
        (generations.PROFILING,),
        {"missing", "missing-profiling"},
        id="profiling fields and nothing else",
    ),
    pytest.param(
        seen(["DCGM_FI_DEV_SM_CLOCK"], PODS),
        (),
        {"missing", "no-profiling"},
        id="no field that a preset reads",
    ),
    pytest.param(
        seen([UTIL], "UUID instance"),
        (generations.NODE,),
        {"no-pods", "missing", "no-profiling", "node-by-instance"},
        id="labels that managed Prometheus left",
    ),
    pytest.param(
        seen([UTIL], "UUID"),
        (generations.NODE,),
        {"no-pods", "missing", "no-profiling", "no-node"},
        id="no label at all",
    ),
    pytest.param(
        seen(["DCGM_FI_DEV_GPU_UTIL_RATIO"], "UUID pod hostname"),
        ("gpu-dcgm49",),
        {"no-pods", "missing", "no-profiling"},
        id="4.9 without pods, for its nodes",
    ),
    pytest.param(
        seen(["dcgm_gpu_utilization"], "uuid pod node"),
        ("gpu-dcgm-compat",),
        {"no-pods", "missing", "no-profiling"},
        id="old names without pods, for its nodes",
    ),
    pytest.param(
        seen(["dcgm_gpu_utilization"], "UUID uuid pod_name node"),
        ("gpu-dcgm-compat",),
        {"missing", "no-profiling"},
        id="both spellings of the GPU",
    ),
    pytest.param(
        seen(["hami_vgpu_memory_used_bytes"], "pod device_uuid"),
        ("gpu-hami",),
        {"no-pods", "missing"},
        id="a vGPU monitor's own pod only",
    ),
    pytest.param(
        seen(["vGPU_device_memory_usage_in_bytes"], "podname"),
        (),
        {"no-preset"},
        id="old names of HAMi alone",
    ),
    pytest.param(
        seen([UTIL], f"{PODS} vgpu dra_claim_name"),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "time-slicing", "dra"},
        id="shared in two more ways",
    ),
    pytest.param(
        seen([UTIL], PODS, named_after_exporter=frozenset({UTIL})),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "hostname-is-pod"},
        id="a Hostname that is the exporter's pod",
    ),
    pytest.param(
        seen([UTIL], f"{PODS} node", named_after_exporter=frozenset({UTIL})),
        ("gpu-dcgm",),
        {"missing", "no-profiling"},
        id="the same, and a node besides",
    ),
    pytest.param(
        seen(["duty_cycle", "memory_used"], "pod"),
        (),
        set(),
        id="names of GKE's plugin that somebody else uses",
    ),
    pytest.param(
        seen(["nvidia_gpu_duty_cycle"], "uuid node_name"),
        ("gpu-nvidia-alibaba",),
        {"no-pods", "missing"},
        id="Alibaba's exporter before any pod",
    ),
]


@pytest.mark.parametrize(("given", "fitting", "found"), CASES)
def test_names_and_labels_tell(
    given: Observations, fitting: tuple[str, ...], found: set[str]
) -> None:
    report = detect.judge(given)

    assert report.presets == fitting
    assert codes(report) == found


def test_metrics_are_those_that_the_presets_can_give() -> None:
    report = detect.judge(seen([UTIL, USED, GR_ENGINE], PODS))

    assert report.sightings[0].metrics == ("duty_cycle", "memory_used_bytes", "gr_engine_active")


def test_metrics_by_profiling_alone_are_no_others() -> None:
    report = detect.judge(seen([GR_ENGINE], PODS))

    assert report.sightings[0].metrics == ("gr_engine_active",)


def test_series_that_lack_are_told_together_save_those_with_a_remedy_of_their_own() -> None:
    report = detect.judge(seen([USED, GR_ENGINE], PODS))

    missing = [each for each in report.sightings[0].findings if each.code == "missing"]
    assert len(missing) == 2
    assert missing[0].text.startswith("DCGM_FI_DEV_GPU_UTIL: not there, and hence no duty_cycle_*;")
    assert "DCGM_FI_DEV_FB_FREE, DCGM_FI_DEV_GPU_TEMP" in missing[1].text


@pytest.mark.parametrize(
    ("labels", "release"),
    [
        ("pod", ""),
        ("pod Hostname", "before 3.5.0"),
        ("pod Hostname pci_bus_id", "3.5.0 to 4.8.2"),
        ("pod pci_bus_id", "3.5.0 or later"),
        ("pod hostname Hostname pci_bus_id", "4.8.3 or later"),
    ],
)
def test_release_shows_in_the_labels(labels: str, release: str) -> None:
    assert detect.judge(seen([UTIL], labels)).sightings[0].release == release


def test_report_in_words_and_flags() -> None:
    report = detect.judge(seen([UTIL, GR_ENGINE], PODS))

    assert report.flags == ("--preset=gpu-dcgm", "--preset=gpu-dcgm-prof")
    assert report.sentences[0].startswith(
        "dcgm-exporter 2.x to 4.8 (DCGM_FI_*): `exported_pod`: scraped without honor_labels"
    )
    assert len(report.sentences) == 1 + len(report.sightings[0].findings)


def test_nothing_and_no_series_at_all() -> None:
    assert [each.code for each in detect.judge(Observations()).findings] == ["empty"]


def test_exporter_that_ended_may_be_among_the_targets_that_are_down() -> None:
    gone = Observations(before={UTIL: frozenset({"pod"})}, targets=1, down=1, anything=True)

    assert [each.code for each in detect.judge(gone).findings] == ["ended", "targets-down"]
