from __future__ import annotations

import pytest

from adapter.demo.fleet import Pod
from tests.cluster.fleet import LiveFleet


def pod(name: str, *, app: str = "bert", namespace: str = "default") -> Pod:
    return Pod(namespace=namespace, name=name, container="serving", app=app, node="")


def fleet(*, nodes: int = 2, gpus: int = 2, wobble: bool = False) -> LiveFleet:
    return LiveFleet([f"node-{i}" for i in range(nodes)], gpus=gpus, wobble=wobble)


def run(fleet: LiveFleet, *names: str, gpus: int = 1, **more: str) -> None:
    for name in names:
        assert fleet.admit(name, pod(name, **more), gpus)
        fleet.started(name)


def utilisation(fleet: LiveFleet, seconds: float = 0) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for node in fleet.nodes:
        for gpu, reading in fleet.readings(node, seconds):
            found.setdefault(gpu.pod.name if gpu.pod else "", []).append(reading.utilization)
    return found


@pytest.mark.parametrize(
    ("pods", "offered", "each"),
    [(1, 60, 60), (1, 300, 100), (3, 300, 100), (4, 300, 75), (3, 200, 200 / 3), (2, 0, 0)],
)
def test_share_is_exact_and_at_most_all_of_a_gpu(pods: int, offered: float, each: float) -> None:
    live = fleet()
    run(live, *(f"bert-{i}" for i in range(pods)))

    live.offer("bert", offered)

    assert live.offered("bert") == offered
    found = utilisation(live)
    assert found.pop("", [0] * (4 - pods)) == [0] * (4 - pods)
    assert found == {f"bert-{i}": [each] for i in range(pods)}


def test_load_is_of_one_app_in_one_namespace_and_for_ready_pods_alone() -> None:
    live = fleet()
    run(live, "ours")
    run(live, "theirs", namespace="other")
    run(live, "another", app="cuda-test")
    live.admit("starting", pod("starting"), 1)

    live.offer("bert", 80)

    assert utilisation(live) == {"ours": [80], "theirs": [0], "another": [0], "": [0]}


def test_pod_has_its_gpus_on_one_node_or_waits() -> None:
    live = fleet()
    run(live, "one")
    run(live, "pair", gpus=2)

    assert live.admit("wide", pod("wide"), 2) is None
    live.left("one")
    assert live.admit("wide", pod("wide"), 2) == "node-0"
    assert {each.name: len(gpus) for each, gpus in live.pods.items()} == {"pair": 2}


def test_pods_without_gpus_are_spread_and_read_nothing() -> None:
    live = fleet()

    assert [live.admit(name, pod(name), 0) for name in "abc"] == ["node-0", "node-1", "node-0"]
    for name in "abc":
        live.started(name)

    assert live.pods == {}
    live.offer("bert", 50)
    assert utilisation(live) == {"": [0, 0, 0, 0]}


def test_other_readings_go_with_utilisation() -> None:
    live = fleet(nodes=1, gpus=3)
    run(live, "idle", app="idle")
    run(live, "calm", app="calm")
    run(live, "busy", app="busy")
    live.offer("calm", 30)
    live.offer("busy", 90)

    idle, calm, busy = (reading for _, reading in live.readings("node-0", 0))

    assert 100 < idle.power < calm.power < busy.power <= 700
    assert idle.temperature <= calm.temperature <= busy.temperature < 90
    assert idle.memory_used > 0


def test_wobble_follows_the_recording_about_the_share() -> None:
    live = fleet(wobble=True)
    run(live, "bert-0", "bert-1")
    live.offer("bert", 80)

    seen = [utilisation(live, second) for second in range(300)]

    values = [each["bert-0"][0] for each in seen]
    assert len(set(values)) > 5
    assert sum(values) / len(values) == pytest.approx(40, rel=0.25)
    assert any(each["bert-0"] != each["bert-1"] for each in seen)
