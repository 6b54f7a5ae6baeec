"""What the watch of autoscalers costs: `python -m tools.bench.autoscalers [NUMBER]`.

Every HPA has two metrics, which the controller requests every 15 s: the looks send no request.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Mapping
from typing import Any, cast

from prometheus_client import CollectorRegistry, generate_latest

from adapter import telemetry
from adapter.clients.value_index import Item, ValueIndex
from adapter.clients.watch_cache import WatchCaches
from adapter.server.api.outcomes import Outcomes, key_of
from adapter.server.apimachinery import request_info
from adapter.server.autoscalers import questions
from adapter.server.autoscalers.events import Events
from adapter.server.autoscalers.questions import Watched
from adapter.server.autoscalers.watch import INTERVAL, Autoscalers
from adapter.server.cluster.shared_index import SharedIndex
from rules import limits
from rules.kinds import Kinds
from rules.selectors import selectors
from rules.selectors.selectors import Selector

_LOOKS = 20
_METRICS = ("requests_waiting_current", "kv_cache_utilization_current")


class _Cache:
    """Stands for the watch caches of one kind."""

    def __init__(self, index: ValueIndex[Any]) -> None:
        self._index = index

    def index(self, kind: object) -> ValueIndex[Any]:
        return self._index


def main() -> None:
    """Print memory, CPU of a look, and the most CPU for which nothing else ran."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    asyncio.run(_measure(number))


async def _measure(number: int) -> None:
    before = _resident()
    hpas: SharedIndex[Watched] = SharedIndex(limits.DEFAULT.hpa_metrics_all)
    workloads: ValueIndex[Selector] = ValueIndex()
    for at in range(number):
        hpas.put(questions.parse(_document(at)))
        name, namespace = f"llm-{at}", f"team-{at % 100}"
        workloads.put(Item(namespace, name, selectors.parse(f"app=llm-{at}")))
    outcomes, kinds = Outcomes(), Kinds.builtin()
    registry = CollectorRegistry()

    async def ask(info: request_info.RequestInfo) -> None:
        raise AssertionError(f"{info.path} is requested, although the controller does")

    autoscalers = Autoscalers(
        hpas=cast("WatchCaches[SharedIndex[Watched]]", _Cache(hpas)),
        workloads=cast("WatchCaches[ValueIndex[Selector]]", _Cache(workloads)),
        kinds=lambda: kinds,
        outcomes=outcomes,
        ask=ask,
        is_served=lambda *_: True,
        events=cast("Events", None),
        meter=telemetry.AutoscalerMetrics(registry),
    )
    stalls: list[float] = []
    watching = asyncio.create_task(_watch(stalls))
    async with asyncio.TaskGroup() as asking:
        await autoscalers.look(hpas, asking)
        infos = [
            request_info.parse(*_request(at, metric)) for at in range(number) for metric in _METRICS
        ]
        for info in infos:
            outcomes.note(info, resolved=True)
            assert outcomes.of(key_of(info)), info.path
        gc.freeze()
        await asyncio.sleep(0.01)
        stalls.clear()
        started = time.process_time()
        for _ in range(_LOOKS):
            await autoscalers.look(hpas, asking)
        seconds = (time.process_time() - started) / _LOOKS
    watching.cancel()
    exposed = len(generate_latest(registry))
    print(f"{number} HPAs, {number * len(_METRICS)} metrics")
    print(f"memory       {(_resident() - before) / 1024:8.1f} MiB")
    print(f"CPU a look   {seconds * 1000:8.1f} ms, {seconds / INTERVAL:.2%} of a core")
    print(f"longest slice{max(stalls) * 1000:8.1f} ms")
    print(f"exposed      {exposed / 1024:8.0f} KiB")


async def _watch(stalls: list[float]) -> None:
    while True:
        started = time.thread_time()
        await asyncio.sleep(0)
        stalls.append(time.thread_time() - started)


def _resident() -> float:
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _request(at: int, metric: str) -> tuple[str, str]:
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-{at % 100}/pods/*/{metric}"
    return path, f"labelSelector=app%3Dllm-{at}"


def _document(at: int) -> Mapping[str, Any]:
    target = {"type": "AverageValue", "averageValue": "5"}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"llm-{at}"}
    return {
        "metadata": {"namespace": f"team-{at % 100}", "name": f"llm-{at}", "uid": f"uid-{at}"},
        "spec": {
            "scaleTargetRef": reference,
            "maxReplicas": 10,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": metric}, "target": target}}
                for metric in _METRICS
            ],
        },
        "status": {"currentReplicas": 2},
    }


if __name__ == "__main__":
    main()
