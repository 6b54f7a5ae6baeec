from __future__ import annotations

import json

from adapter.cli.demo.fleet import Pod
from adapter.cli.demo.serving import SERVERS
from tools.cluster.fleet import LiveFleet
from tools.cluster.servers import Servers


def test_every_ready_pod_has_a_server_until_it_is_gone() -> None:
    fleet = LiveFleet(["node-0"], gpus=2)
    servers = Servers(fleet, SERVERS["vllm"])
    for name in ("a", "b"):
        pod = Pod(namespace="default", name=name, container="c", app="llm", node="")
        fleet.schedule(name, pod, 1)
    fleet.mark_ready("a")

    assert [each["labels"]["pod"] for each in json.loads(servers.targets())] == ["a"]
    assert "vllm:num_requests_waiting{" in servers.render("a")
    assert servers.render("b") is None

    fleet.release("a")
    assert json.loads(servers.targets()) == []
    assert servers.render("a") is None
