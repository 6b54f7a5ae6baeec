"""Objects and watch caches as the server wires them."""

from __future__ import annotations

from adapter import settings
from adapter.server.app import cluster as connection
from adapter.server.app.host import Host
from rules.kinds import PODS
from rules.ruleset import RuleSet
from rules.selectors import selectors
from tools.fakes import kubernetes
from tools.waiting import until


async def test_lists_do_not_delay_the_watches(cluster, api_server, tmp_path):
    cluster.add("pods", "team-a", "web-1", phase="Running")
    flags = settings.parse(
        [
            "--prometheus-url=http://127.0.0.1:1",
            f"--lister-kubeconfig={kubernetes.kubeconfig(tmp_path, api_server)}",
            "--client-qps=0.001",
            "--client-burst=4",  # two for the discovery
        ]
    )
    async with Host.running(flags) as host:
        objects, _ = await connection.connect(host, RuleSet)
        watches = next(each for each in host.checks if each.name == "watch-caches")
        await until(lambda: objects.discovered)
        for _ in range(2):
            await objects.names(PODS, namespace="team-a", selector=selectors.parse(""))
        await until(lambda: "pods watched" in watches.run().fact)
