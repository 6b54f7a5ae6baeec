from __future__ import annotations

import pytest

from adapter.cli.demo.fleet import Pod
from tools.cluster.fleet import LiveFleet


def pod(name: str, *, app: str = "bert", namespace: str = "default") -> Pod:
    return Pod(namespace=namespace, name=name, container="serving", app=app, node="")


def fleet(*, nodes: int = 2, gpus: int = 2, noise: float = 0.0) -> LiveFleet:
    return LiveFleet([f"node-{i}" for i in range(nodes)], gpus=gpus, noise=noise)


def run(fleet: LiveFleet, *names: str, gpus: int = 1, **fields: str) -> None:
    for name in names:
        assert fleet.schedule(name, pod(name, **fields), gpus)
        fleet.mark_ready(name)


def utilisation(fleet: LiveFleet, seconds: float = 0) -> dict[str, list[float]]:
    by_pod: dict[str, list[float]] = {}
    for node in fleet.nodes:
        for gpu, reading in fleet.readings(node, seconds):
            by_pod.setdefault(gpu.pod.name if gpu.pod else "", []).append(reading.utilization)
    return by_pod


@pytest.mark.parametrize(
    ("pods", "load", "share"),
    [(1, 60, 60), (1, 300, 100), (3, 300, 100), (4, 300, 75), (3, 200, 200 / 3), (2, 0, 0)],
)
def test_load_is_divided_exactly_and_capped_at_one_gpu(
    pods: int, load: float, share: float
) -> None:
    live = fleet()
    run(live, *(f"bert-{i}" for i in range(pods)))

    live.set_load("bert", load)

    by_pod = utilisation(live)
    assert by_pod.pop("", [0] * (4 - pods)) == [0] * (4 - pods)
    assert by_pod == {f"bert-{i}": [share] for i in range(pods)}


def test_load_applies_to_ready_pods_of_one_app_in_one_namespace() -> None:
    live = fleet()
    run(live, "bert-0")
    run(live, "other-namespace", namespace="other")
    run(live, "other-app", app="cuda-test")
    live.schedule("starting", pod("starting"), 1)

    live.set_load("bert", 80)

    assert utilisation(live) == {
        "bert-0": [80],
        "other-namespace": [0],
        "other-app": [0],
        "": [0],
    }


def test_pod_waits_until_one_node_has_all_its_gpus() -> None:
    live = fleet()
    run(live, "one")
    run(live, "pair", gpus=2)

    assert live.schedule("wide", pod("wide"), 2) is None
    live.release("one")
    assert live.schedule("wide", pod("wide"), 2) == "node-0"
    assert {each.name: len(gpus) for each, gpus in live.pods.items()} == {"pair": 2}


def test_pods_without_gpus_are_spread_over_the_nodes_and_use_no_gpu() -> None:
    live = fleet()

    assert [live.schedule(name, pod(name), 0) for name in "abc"] == ["node-0", "node-1", "node-0"]
    for name in "abc":
        live.mark_ready(name)

    assert live.pods == {}
    live.set_load("bert", 50)
    assert utilisation(live) == {"": [0, 0, 0, 0]}


def test_noise_fluctuates_around_the_share() -> None:
    live = fleet(noise=1.0)
    run(live, "bert-0", "bert-1")
    live.set_load("bert", 80)

    seconds = [utilisation(live, second) for second in range(300)]

    values = [each["bert-0"][0] for each in seconds]
    assert len(set(values)) > 5
    assert sum(values) / len(values) == pytest.approx(40, rel=0.25)
    assert any(each["bert-0"] != each["bert-1"] for each in seconds)
