"""The fleet: its GPUs and pods, their readings, and how they are exposed."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from adapter.cli.demo import series
from adapter.cli.demo.fleet import BOARD_POWER, MEMORY, Fleet
from adapter.cli.demo.generations import GENERATIONS
from adapter.cli.local_prometheus import process
from rules import presets, ruleset
from rules.exporters import generations as exporters


def fleet(*, load: float = 3, mig: bool = False, nodes: int = 3) -> Fleet:
    return Fleet.of(nodes=nodes, load=load, mig=mig)


def utilization(fleet: Fleet, seconds: float) -> list[float]:
    return [
        reading.utilization
        for node in fleet.nodes
        for gpu, reading in fleet.readings(node, seconds)
        if gpu.pod is not None
    ]


def test_the_fleet_has_four_gpus_per_node_and_a_pod_with_two() -> None:
    gpus = fleet().gpus
    by_pod = [[gpu for gpu in gpus if gpu.pod == pod] for pod in fleet().pods]

    assert len(gpus) == 12
    assert sorted(len(gpus) for gpus in by_pod) == [1, 1, 1, 1, 2]
    assert len({gpu.board.uuid for gpu in gpus}) == 12
    assert any(gpu.pod is None for gpu in gpus)


def test_values_follow_the_recording_and_differ_between_pods() -> None:
    moving = fleet()

    assert utilization(moving, 0) != utilization(moving, 60)
    assert len(set(utilization(moving, 0))) > 1


def test_load_scales_utilization_and_power_up_to_the_maximum() -> None:
    calm, wild = fleet(load=1), fleet(load=1000)

    for node in calm.nodes:
        for (gpu, one), (_, other) in zip(
            calm.readings(node, 0), wild.readings(node, 0), strict=True
        ):
            assert one.utilization <= other.utilization <= 100
            assert one.power <= other.power <= BOARD_POWER
            assert one.memory_used + one.memory_free == pytest.approx(MEMORY, abs=1)
            assert gpu.pod is not None or other.utilization == 0


def test_mig_splits_the_last_gpu_of_each_node_between_two_pods() -> None:
    instances = [gpu for gpu in fleet(mig=True).gpus if gpu.instance is not None]

    assert len(instances) == 6
    assert len({gpu.board.uuid for gpu in instances}) == 3
    assert len({gpu.pod for gpu in instances}) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", GENERATIONS)
def test_every_generation_is_well_formed_and_matches_its_preset(name: str) -> None:
    generation = GENERATIONS[name]
    simulated = fleet(mig=generation.mig)
    text = generation.render(simulated.readings("gpu-node-0", 5))

    families = list(text_string_to_metric_families(text))
    samples = [sample for family in families for sample in family.samples]
    rules = ruleset.load([(generation.preset, presets.text(generation.preset))]).rules
    mapped = {
        rule.config.series_query.split("{")[0]: [
            each.label for each in rule.config.resources.overrides
        ]
        for rule in rules
    }
    found = {each.labels.get(label) for each in samples for label in mapped.get(each.name, ())}

    read = [
        exporters.needed(each.fields)
        for each in exporters.GENERATIONS
        if each.preset == generation.preset and generation.preset != "gpu-node"
    ]
    assert all(each <= {sample.name for sample in samples} for each in read)
    assert len(families) == len(generation.series)
    assert any(each.name in mapped for each in samples)
    assert generation.preset == "gpu-node" or {pod.name for pod in simulated.pods} & found


def test_label_values_are_escaped() -> None:
    text = GENERATIONS["dcgm"].render(fleet().readings("gpu-node-0", 0))

    assert series.label_set({"a": 'x"y\\z'}) == '{a="x\\"y\\\\z"}'
    assert 'hostname="gpu-node-0"' in text


def test_the_manifests_contain_every_pod_and_node() -> None:
    items = fleet().objects()["items"]

    names = [(item["kind"], item["metadata"]["name"]) for item in items]
    assert {name for kind, name in names if kind == "Node"} == set(fleet().nodes)
    assert {name for kind, name in names if kind == "Pod"} == {pod.name for pod in fleet().pods}
    assert ("Deployment", "bert-intent-detection") in names


def test_the_scrape_configuration_has_a_target_for_each_node() -> None:
    text = process.config(("a-1", "a-2"), 1234, honor_labels=True)

    assert text.count("127.0.0.1:1234") == 2
    assert "honor_labels: true" in text
