"""What is detected of each exporter generation, and the values of its presets.

A real Prometheus scrapes each generation in each scheme; the values are read by the HTTPS API and
compared with golden.json.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import program
from rules.exporters import detect
from tools.presets import api, worlds
from tools.presets.table import EXPORTERS, GOLDEN, METRICS, PRESETS, SCHEMES, VARIANTS
from tools.real.prometheus import Prometheus

DCGM, PROF, NODE = "gpu-dcgm", "gpu-dcgm-prof", "gpu-node"

FITTING: Mapping[str, tuple[str, ...]] = {
    "a1-mindprince": (NODE,),
    "a2-alibaba": ("gpu-nvidia-alibaba",),
    "a3-gke-device-plugin": ("gpu-gke-plugin",),
    "b0-compat-2.1.8-rc2": ("gpu-dcgm-compat", PROF),
    "b1-dcgm-1x": ("gpu-dcgm1x",),
    "b2-compat-2x": ("gpu-dcgm-compat", PROF),
    "b3-compat-oldns": ("gpu-dcgm1x", PROF),
    "c1-2.4.0-default": (DCGM,),
    "c10-dra": (DCGM,),
    "c2-2.6-default": (DCGM,),
    "c3-3.6.1-dcp": (DCGM, PROF),
    "c4-4.8.2-default": (DCGM, PROF),
    "c4-4.8.2-helm": (DCGM, PROF),
    "c4-4.8.2-sm-uid-podlabels": (DCGM, PROF),
    "c5-4.8.3-hostname": (DCGM, PROF),
    "c6-no-k8s": (NODE,),
    "c7-mig": ("gpu-dcgm-mig", PROF),
    "c8-timeslicing/4.0-4.7.prom": (DCGM, PROF),
    "c8-timeslicing/4.8.2-broken-zero.prom": (DCGM, PROF),
    "c8-timeslicing/4.8.2-hostpid.prom": (DCGM, PROF),
    "c8-timeslicing/off.prom": (DCGM, PROF),
    "c9-spurious": (DCGM,),
    "d1-4.9.0-renamed": ("gpu-dcgm49", PROF),
    "e1-hami": ("gpu-hami",),
    "e2-nvidia-smi": (NODE,),
}
"""Variant -> fitting presets, with every scrape scheme."""

OWN_NAMES = {"a2-alibaba", "b1-dcgm-1x", "b3-compat-oldns"}
PODLESS = {"a1-mindprince", "c6-no-k8s", "e2-nvidia-smi"}
SCHEME_OF: Mapping[str, detect.Scheme] = {
    "exported": "exported",
    "honored": "honored",
    "bare": "direct",
}

FINDINGS: Mapping[str, set[str]] = {
    "a1-mindprince": {"no-pods"},
    "b1-dcgm-1x": {"no-profiling"},
    "c1-2.4.0-default": {"missing", "no-profiling"},
    "c10-dra": {"missing", "no-profiling", "dra"},
    "c2-2.6-default": {"no-profiling"},
    "c3-3.6.1-dcp": {"missing-profiling"},
    "c4-4.8.2-default": {"missing-profiling"},
    "c4-4.8.2-helm": {"missing-profiling"},
    "c5-4.8.3-hostname": {"missing-profiling"},
    "c6-no-k8s": {"no-pods"},
    "c7-mig": {"missing-profiling", "mig"},
    "c8-timeslicing/4.0-4.7.prom": {"missing", "missing-profiling", "time-slicing"},
    "c8-timeslicing/4.8.2-broken-zero.prom": {"missing", "missing-profiling", "time-slicing"},
    "c8-timeslicing/4.8.2-hostpid.prom": {"missing", "missing-profiling", "time-slicing"},
    "c8-timeslicing/off.prom": {"missing", "missing-profiling"},
    "c9-spurious": {"missing", "no-profiling"},
    "d1-4.9.0-renamed": {"missing-profiling"},
    "e2-nvidia-smi": {"no-pods"},
}
"""Variant -> codes of findings, with every scrape scheme."""

NODE_FINDINGS: Mapping[str, str] = {
    "a1-mindprince": "node-by-instance",
    "b0-compat-2.1.8-rc2": "hostname-is-pod",
    "b1-dcgm-1x": "no-node",
    "b2-compat-2x": "hostname-is-pod",
    "b3-compat-oldns": "no-node",
    "c1-2.4.0-default": "hostname-is-pod",
    "c2-2.6-default": "hostname-is-pod",
    "e2-nvidia-smi": "node-by-instance",
}
"""Variant -> code of the finding about nodes, except with `bare`, which adds a `node` label."""

RELEASES: Mapping[str, str] = {
    "c1-2.4.0-default": "before 3.5.0",
    "c2-2.6-default": "before 3.5.0",
    "c4-4.8.2-helm": "3.5.0 to 4.8.2",
    "c5-4.8.3-hostname": "4.8.3 or later",
}


def together(names: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield groups of presets that have no metric in common: one server can have a group."""
    left = list(names)
    while left:
        group: list[str] = []
        for name in left:
            if not {each for other in group for each in PRESETS[other]} & {*PRESETS[name]}:
                group.append(name)
        left = [each for each in left if each not in group]
        yield tuple(group)


CASES = [
    (variant, group)
    for variant, recorded in VARIANTS.items()
    for group in together(recorded.presets)
]
SPECIAL_CASES: Mapping[str, Mapping[str, Any]] = {
    f"{case['variant']}-{case['preset']}": case for case in GOLDEN["cases"]
}
WORLDS = {*FITTING, *(case["variant"] for case in GOLDEN["cases"])}


@pytest.fixture(scope="module", params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def servers(real_servers, scheme, tmp_path_factory):
    """Yield a Prometheus for each variant; all tests of one scheme share them."""
    with worlds.exporters() as port:
        configs = {
            each: worlds.configuration(dict.fromkeys(worlds.files(each), scheme), port, seconds=5)
            for each in WORLDS
        }
        with worlds.scraping(tmp_path_factory.mktemp("prometheus"), configs) as running:
            yield running


def test_the_table_has_every_variant() -> None:
    folders = {each.name for each in EXPORTERS.iterdir()}
    files = {f"c8-timeslicing/{each.name}" for each in (EXPORTERS / "c8-timeslicing").iterdir()}

    assert set(FITTING) == folders - {"c8-timeslicing"} | files


@pytest.mark.parametrize("variant", FITTING)
async def test_a_variant_is_detected(variant, scheme, servers):
    detected = await api.detected(servers[variant].url)

    assert detected.presets == FITTING[variant]
    [exporter] = detected.exporters
    own: detect.Scheme = "own names"
    naming = own if variant in OWN_NAMES else SCHEME_OF[scheme]
    assert exporter.schemes == (() if variant in PODLESS else (naming,))
    expected = set(FINDINGS.get(variant, ()))
    if scheme != "bare" and variant in NODE_FINDINGS:
        expected.add(NODE_FINDINGS[variant])
    assert {finding.reason for finding in exporter.findings} == expected
    assert exporter.release == RELEASES.get(variant, exporter.release)
    assert detected.provisional == (variant == "c6-no-k8s")


@pytest.mark.parametrize(("variant", "group"), CASES, ids=str)
async def test_presets_provide_the_expected_value_of_every_pod_and_node(
    variant: str,
    group: tuple[str, ...],
    scheme: str,
    servers: Mapping[str, Prometheus],
    tmp_path: Path,
) -> None:
    objects = api.manifests(GOLDEN["pods"], GOLDEN["nodes"])
    flags = [f"--preset={preset}" for preset in group]
    metrics = [metric for preset in group for metric in PRESETS[preset]]

    async with api.serving(tmp_path, servers[variant].url, objects, flags) as served:
        pods = {metric: await every_pod(served, metric) for metric in metrics}
        nodes = await served.nodes("duty_cycle_current")

    recorded = VARIANTS[variant]
    assert pods == {
        metric: expected_pods(metric) if metric in recorded.metrics else {} for metric in metrics
    }
    expected = scheme in recorded.schemes and "duty_cycle_current" in metrics
    assert nodes == (_expected_nodes() if expected else {})


@pytest.mark.parametrize("case", SPECIAL_CASES)
async def test_a_special_case_has_its_expected_values(case, scheme, servers, tmp_path):
    expected = SPECIAL_CASES[case]
    schemes = [expected["scheme"]] if "scheme" in expected else ["exported", "honored"]
    if scheme not in schemes:
        return  # the case does not say what this scheme gives
    objects = api.manifests(expected["pods"], GOLDEN["nodes"])
    flags = (f"--preset={expected['preset']}",)

    async with api.serving(tmp_path, servers[expected["variant"]].url, objects, flags) as served:
        pods = {pod: await _values(served, pod, values) for pod, values in expected["pods"].items()}
        nodes = {
            node: {metric: (await served.nodes(metric)).get(node) for metric in values}
            for node, values in expected["nodes"].items()
        }

    assert (pods, nodes) == (_round_all(expected["pods"]), _round_all(expected["nodes"]))


async def _values(served: api.Api, pod: str, metrics: Iterable[str]) -> dict[str, Fraction | None]:
    namespace, name = pod.split("/")
    return {metric: (await served.pods(namespace, metric)).get(name) for metric in metrics}


def _round_all(
    expected: Mapping[str, Mapping[str, float | None]],
) -> dict[str, dict[str, Fraction | None]]:
    return {
        name: {metric: None if value is None else _round(value) for metric, value in values.items()}
        for name, values in expected.items()
    }


async def every_pod(served: api.Api, metric: str) -> dict[str, Fraction]:
    """Return the value of each pod in all namespaces."""
    return {
        f"{namespace}/{name}": value
        for namespace in sorted({pod.split("/")[0] for pod in GOLDEN["pods"]})
        for name, value in (await served.pods(namespace, metric)).items()
    }


def expected_pods(metric: str) -> dict[str, Fraction]:
    """Return the value of each pod, which is the same with every generation."""
    key = METRICS[metric].golden
    return {pod: _round(values[key]) for pod, values in GOLDEN["pods"].items()}


def _expected_nodes() -> dict[str, Fraction]:
    return {
        node: _round(values["dcgm_gpu_utilization_avg"]) for node, values in GOLDEN["nodes"].items()
    }


def _round(value: float) -> Fraction:
    return Fraction(round(value * 1000), 1000)


@pytest.mark.usefixtures("real_servers")
def test_memory_of_hami_is_the_sum_of_pods_and_containers_that_share_a_gpu(tmp_path, capsys):
    """The numbers of virtual devices begin with 0 in each container. Two scrapes are one."""
    own = 'exported_namespace="ml",device_uuid="g",vdevice_index="0"'
    scraped = (
        'exported_pod="{}",pod="old",container="{}"',
        'exported_pod="{}",pod="new",exported_container="{}",container="vgpu-monitor"',
    )
    series = [
        {"series": f"hami_vgpu_memory_{name}_bytes{{{own},{labels}}}", "values": values}
        for scrape in scraped
        for pod, each, used in (("p", "a", 1000), ("p", "b", 3000), ("q", "a", 2000))
        for labels in [scrape.format(pod, each)]
        for name, values in (("used", f"{used}x20"), ("limit", "4000x20"))
    ]
    cases = [
        {"eval_time": "3m", "metric": metric, "namespace": "ml", "exp_values": values}
        | ({"resource": "namespaces"} if "ml" in values else {})
        for metric, values in (
            ("memory_used_bytes_current", {"p": 4000, "q": 2000}),
            ("memory_used_bytes_over_time", {"p": 4000, "q": 2000}),
            ("memory_utilization_current", {"p": 50, "q": 50}),
            ("memory_used_bytes_current", {"ml": 6000}),
            ("memory_utilization_current", {"ml": 50}),
        )
    ]
    file = tmp_path / "tests.yaml"
    test = {"interval": "15s", "input_series": series, "custom_metric_test": cases}
    file.write_text(json.dumps({"presets": ["gpu-hami"], "tests": [test]}))

    code = program.main(["test", str(file)])

    assert code == 0, capsys.readouterr().out
