"""Conclusions from names of series and labels; tests/presets has those of a real Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import pytest

from rules import presets, promql
from rules.document import config
from rules.exporters import detect, generations
from rules.exporters.detect import Observations
from rules.exporters.generations import GENERATIONS, ExporterGeneration
from tools.presets.table import DEVICES

UTIL, USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
GR_ENGINE, SM = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"


def observations(names: Iterable[str], labels: str, **more: object) -> Observations:
    """Live series with the same labels, which are separated by blanks."""
    live = dict.fromkeys(names, frozenset(labels.split()))
    return Observations(live=live, anything=True, **more)


def codes(report: detect.Detection) -> set[str]:
    return {finding.reason for each in report.exporters for finding in each.findings}


def rules_of(preset: str) -> tuple[config.Rule, ...]:
    parsed, problems = config.parse(presets.text(preset), file=preset)
    assert parsed is not None, problems
    return (*parsed.rules, *parsed.external_rules)


def presets_of(generation: ExporterGeneration) -> list[tuple[str, Mapping[str, tuple[str, ...]]]]:
    """Each preset that reads a generation, with the series that the table names for it."""
    own = {generation.preset, generation.podless_preset} - {""}
    pairs = [(name, generation.fields) for name in own]
    if generation.name == "dcgm":
        pairs.append((generations.MIG, generation.fields))
    if generation.name == "dcgm-compat":
        pairs.append((generations.OLD_NAMES, generation.fields))
    if generation.profiling:
        pairs.append((generations.PROFILING, generation.profiling))
    return pairs


@pytest.mark.slow
@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_presets_read_the_series_of_the_table(generation: ExporterGeneration) -> None:
    for preset, fields in presets_of(generation):
        read = {
            (rule.name.as_, series)
            for rule in rules_of(preset)
            for series in generation.series
            if re.search(rf"(?<![\w:]){_stem(series)}", f"{rule.series_query} {rule.metrics_query}")
            or _selects(rule, series)
        }
        named = {metric.removesuffix("_over_time"): metric for metric, _ in read}
        for metric, needed in fields.items():
            name = named.get(metric, f"{metric}_current")
            assert {(name, series) for series in needed} <= read, preset


def _selects(rule: config.Rule, series: str) -> bool:
    """Return whether a pattern for names of the rule matches a series."""
    return any(
        each.label == "__name__" and each.operator == "=~" and re.fullmatch(each.value, series)
        for each in promql.selector(rule.series_query)
    )


def _stem(series: str) -> str:
    """Return a pattern for a series; a histogram is read by its buckets or its sum."""
    return re.sub("_count$", "_(count|bucket|sum)", series) + r"\b"


@pytest.mark.parametrize("generation", GENERATIONS, ids=lambda each: each.name)
def test_the_table_has_all_metrics_of_a_preset(generation: ExporterGeneration) -> None:
    if not generation.preset:
        return
    provided = {
        rule.name.as_.removesuffix("_current").removesuffix("_over_time")
        for rule in rules_of(generation.preset)
        if (generation.server or rule.name.as_.endswith("_current"))
        and (
            re.sub("_(bucket|sum)$", "_count", _pinned(rule)) in generation.series
            or any(_selects(rule, series) for series in generation.series)
        )
    }

    assert provided == set(generation.fields)


@pytest.mark.parametrize("preset", presets.names())
def test_node_labels_are_those_of_every_rule_that_is_not_for_pods_alone(preset: str) -> None:
    for rule in rules_of(preset):
        overrides = rule.resources.overrides
        nodes = tuple(each.label for each in overrides if each.resource == "node")
        pods = any(each.resource == "pod" for each in overrides)
        assert nodes == generations.node_labels(preset) or (pods and not nodes)


def test_names_are_unique_and_so_is_the_order() -> None:
    for key in ("name", "order"):
        values = [getattr(each, key) for each in GENERATIONS]
        assert len(values) == len(set(values))


def _pinned(rule: config.Rule) -> str:
    return promql.pinned_name(promql.selector(rule.series_query)) or ""


def test_every_preset_is_chosen_for_some_generation() -> None:
    reachable = {name for each in GENERATIONS for name, _ in presets_of(each)}

    assert reachable == {
        name for name in presets.names() if name.startswith((*DEVICES, "inference-", "gateway-"))
    }


PODS = "UUID exported_pod pod Hostname pci_bus_id"
CASES = [
    pytest.param(
        observations([UTIL, GR_ENGINE], f"{PODS} GPU_I_PROFILE"),
        (generations.MIG, generations.PROFILING),
        {"missing", "missing-profiling", "mig"},
        id="MIG with the activity of engines",
    ),
    pytest.param(
        observations([UTIL], f"{PODS} GPU_I_PROFILE"),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "mig-without-engine"},
        id="MIG without the activity of engines",
    ),
    pytest.param(
        observations(["DCGM_FI_DEV_GPU_UTIL_RATIO"], f"{PODS} GPU_I_PROFILE"),
        ("gpu-dcgm49",),
        {"missing", "no-profiling", "mig-without-engine"},
        id="MIG of 4.9 without the activity of engines",
    ),
    pytest.param(
        observations(
            ["dcgm_gpu_utilization", "dcgm_fi_prof_gr_engine_active"], f"{PODS} GPU_I_PROFILE"
        ),
        ("gpu-dcgm-compat", generations.PROFILING),
        {"missing", "missing-profiling", "mig-by-profiling"},
        id="MIG with old names",
    ),
    pytest.param(
        observations([GR_ENGINE, SM], PODS),
        (generations.PROFILING,),
        {"missing", "missing-profiling"},
        id="profiling fields only",
    ),
    pytest.param(
        observations(["DCGM_FI_DEV_SM_CLOCK"], PODS),
        (),
        {"missing", "no-profiling"},
        id="no series that a preset reads",
    ),
    pytest.param(
        observations([UTIL], "UUID instance"),
        (generations.NODE,),
        {"no-pods", "missing", "no-profiling", "node-by-instance"},
        id="labels of a managed Prometheus",
    ),
    pytest.param(
        observations([UTIL], "UUID"),
        (generations.NODE,),
        {"no-pods", "missing", "no-profiling", "no-node"},
        id="no labels",
    ),
    pytest.param(
        observations(["DCGM_FI_DEV_GPU_UTIL_RATIO"], "UUID pod hostname"),
        ("gpu-dcgm49",),
        {"no-pods", "missing", "no-profiling"},
        id="4.9 without pods",
    ),
    pytest.param(
        observations(["dcgm_gpu_utilization"], "uuid pod node"),
        ("gpu-dcgm-compat",),
        {"no-pods", "missing", "no-profiling"},
        id="old names without pods",
    ),
    pytest.param(
        observations(["dcgm_gpu_utilization"], "UUID uuid pod_name node"),
        ("gpu-dcgm-compat",),
        {"missing", "no-profiling"},
        id="both spellings of the GPU",
    ),
    pytest.param(
        observations(["hami_vgpu_memory_used_bytes"], "pod device_uuid"),
        ("gpu-hami",),
        {"no-pods", "missing", "no-node"},
        id="only the own pod of a vGPU monitor",
    ),
    pytest.param(
        observations(["vGPU_device_memory_usage_in_bytes"], "podname"),
        (),
        {"no-preset"},
        id="old names of HAMi alone",
    ),
    pytest.param(
        observations([UTIL], f"{PODS} vgpu dra_claim_name"),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "time-slicing", "dra"},
        id="time-slicing and resource claims",
    ),
    pytest.param(
        observations([UTIL], PODS, hostname_is_pod=frozenset({UTIL})),
        ("gpu-dcgm",),
        {"missing", "no-profiling", "hostname-is-pod"},
        id="a Hostname that is the exporter's pod",
    ),
    pytest.param(
        observations([UTIL], f"{PODS} node", hostname_is_pod=frozenset({UTIL})),
        ("gpu-dcgm",),
        {"missing", "no-profiling"},
        id="a Hostname that is the exporter's pod, and a node",
    ),
    pytest.param(
        observations(["duty_cycle", "memory_used"], "pod"),
        (),
        set(),
        id="series of another exporter with names of GKE's plugin",
    ),
    pytest.param(
        observations(["nvidia_gpu_duty_cycle"], "uuid node_name"),
        ("gpu-nvidia-alibaba",),
        {"no-pods", "missing"},
        id="Alibaba's exporter before the first pod",
    ),
]


@pytest.mark.parametrize(("observed", "fitting", "expected"), CASES)
def test_presets_and_findings(observed, fitting, expected):
    report = detect.analyze(observed)

    assert report.presets == fitting
    assert codes(report) == expected


def test_metrics_are_those_with_series() -> None:
    report = detect.analyze(observations([UTIL, USED, GR_ENGINE], PODS))

    assert report.exporters[0].metrics == ("duty_cycle", "memory_used_bytes", "gr_engine_active")


def test_profiling_fields_alone_provide_only_their_own_metrics() -> None:
    report = detect.analyze(observations([GR_ENGINE], PODS))

    assert report.exporters[0].metrics == ("gr_engine_active",)


def test_missing_series_share_a_finding_except_those_with_their_own_remedy() -> None:
    report = detect.analyze(observations([USED, GR_ENGINE], PODS))

    missing = [each for each in report.exporters[0].findings if each.reason == "missing"]
    assert len(missing) == 2
    assert missing[0].sentence.startswith(
        "missing DCGM_FI_DEV_GPU_UTIL: no duty_cycle_*. The default"
    )
    assert "DCGM_FI_DEV_FB_FREE, DCGM_FI_DEV_GPU_TEMP" in missing[1].fact


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
def test_the_release_is_derived_from_labels(labels: str, release: str) -> None:
    assert detect.analyze(observations([UTIL], labels)).exporters[0].release == release


def test_sentences_and_flags_of_a_report() -> None:
    report = detect.analyze(observations([UTIL, GR_ENGINE], PODS))

    assert report.flags == ("--preset=gpu-dcgm", "--preset=gpu-dcgm-prof")
    assert report.sentences[0].startswith(
        "dcgm-exporter 2.x to 4.8 (DCGM_FI_*): `exported_pod`: scraped without honor_labels"
    )
    assert len(report.sentences) == 1 + len(report.exporters[0].findings)


def test_series_of_an_unknown_exporter_that_look_like_utilization() -> None:
    names = frozenset({"RBLN_DEVICE_STATUS:UTILIZATION", "input_utilization", "gpu_memory_usage"})
    others = names | {UTIL, "DCGM_FI_DEV_ENC_GPU_UTIL", "cluster:gpu_utilization:avg"}

    alone = detect.analyze(Observations(others=names, targets=1, anything=True))
    beside = detect.analyze(observations([UTIL], PODS, others=others))

    assert [each.reason for each in alone.findings] == ["unknown-exporter"]
    assert alone.findings == beside.findings
    assert alone.findings[0].fact.endswith("no preset reads them: RBLN_DEVICE_STATUS:UTILIZATION")


NEW_UTIL = "DCGM_FI_DEV_GPU_UTIL_RATIO"
OLD_REPORT = detect.analyze(observations([UTIL], "pod exported_pod"))
NEW_REPORT = detect.analyze(observations([NEW_UTIL], "pod exported_pod"))
NOTHING = detect.analyze(observations([], ""))


def test_a_preset_stays_for_an_hour_after_its_series() -> None:
    kept = detect.absences(OLD_REPORT, {}, 0.0)
    assert kept == {"gpu-dcgm": None}

    kept = detect.absences(NEW_REPORT, kept, 10_000.0)
    assert list(kept.items()) == [("gpu-dcgm49", None), ("gpu-dcgm", 10_000.0)]

    kept = detect.absences(NEW_REPORT, kept, 10_000.0 + detect.KEPT - 1)
    assert list(kept) == ["gpu-dcgm49", "gpu-dcgm"]

    assert list(detect.absences(NEW_REPORT, kept, 10_000.0 + detect.KEPT)) == ["gpu-dcgm49"]


def test_a_preset_whose_series_return_stays() -> None:
    kept = detect.absences(NOTHING, {"gpu-dcgm": None}, 0.0)
    kept = detect.absences(OLD_REPORT, kept, detect.KEPT - 1)

    assert detect.absences(NOTHING, kept, detect.KEPT + 1) == {"gpu-dcgm": detect.KEPT + 1}


def test_the_default_preset_is_used_as_well_while_no_series_names_a_pod() -> None:
    podless = detect.analyze(observations([UTIL], "Hostname"))

    assert list(detect.absences(podless, {}, 0.0)) == ["gpu-dcgm", "gpu-node"]


def test_presets_for_the_same_series_are_combined_in_the_documented_order() -> None:
    before = dict.fromkeys(("gpu-node", "gpu-dcgm-prof", "gpu-dcgm", "inference-vllm"))
    mig = detect.analyze(observations([UTIL, GR_ENGINE], "exported_pod GPU_I_PROFILE"))

    names = ["gpu-dcgm-mig", "gpu-dcgm", "inference-vllm", "gpu-dcgm-prof", "gpu-node"]
    assert list(detect.absences(mig, before, 0.0)) == names
