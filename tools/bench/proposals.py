"""CPU time of the proposed replicas of 1 000 HPAs of ten pods each.

    python -m tools.bench.proposals

What the controller sees is noted with each answer. Every five seconds, the event loop computes all
proposals; here one pod of each HPA is Pending.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from adapter.clients.value_index import Item, ValueIndex
from adapter.server.api.outcomes import Outcome
from adapter.server.autoscalers import proposals, watched_hpa
from adapter.server.autoscalers.proposals import Proposals
from adapter.server.cluster.contents import WorkloadIndex
from adapter.server.cluster.object_index import ObjectIndex
from rules.kinds import Kinds
from rules.query.aggregate import Value
from tools import documents
from tools.bench.workload import METRIC, Size

SIZE = Size(autoscalers=1000, pods=10_000, namespaces=40)
_REPETITIONS = 20


class _Cache:
    """Stands for watch caches that have everything."""

    def __init__(self, index: object) -> None:
        self._index = index

    def index(self, _: object) -> Any:
        return self._index


def run() -> tuple[list[dict[str, Any]], list[str]]:
    """Measure, print and return the only row, which has no limit."""
    kinds, pending = Kinds.builtin(), ValueIndex[bool]()
    caches: Any = {
        "pods": _Cache(ObjectIndex()),
        "pending": _Cache(pending),
        "workloads": _Cache(WorkloadIndex()),
    }
    value, noted = Value(milli=60_000, time=0, samples=1), Proposals(**caches)
    found = []
    for namespace, app in SIZE.apps():
        names = SIZE.pod_names(app)
        pending.put(Item(namespace, names[0], True))
        hpa = documents.hpa(app, documents.pods_metric(METRIC, "40"), namespace=namespace)
        hpa["metadata"]["uid"] = app
        watched = watched_hpa.parse({**hpa, "status": {"currentReplicas": 10}}).value
        assert watched is not None
        values = dict.fromkeys(names[1:], value)
        outcome = Outcome(at=0, resolved=True, values=values, selected=tuple(names))
        found.append((watched, watched.metrics[0], outcome))
    seen = [noted.note(*each, kinds) for each in found]
    assert proposals.replicas(*found[0][:2], seen[0]) == 14  # 9 values of 60 and one of 0, of 40
    note = _milliseconds(lambda: [noted.note(*each, kinds) for each in found])
    compute = _milliseconds(
        lambda: [
            proposals.replicas(hpa, metric, each)
            for (hpa, metric, _), each in zip(found, seen, strict=True)
        ]
    )
    print(
        f"proposed replicas of {SIZE.autoscalers} HPAs of {SIZE.pods_per_app} pods: "
        f"{compute:.0f} ms every 5 s, {note / SIZE.autoscalers * 1000:.1f} us a request"
    )
    return [{"autoscalers": SIZE.autoscalers, "compute_ms": compute, "note_ms": note}], []


def _milliseconds(act: Callable[[], object]) -> float:
    """Return the shortest of several durations."""
    times = []
    for _ in range(_REPETITIONS):
        started = time.process_time()
        act()
        times.append(time.process_time() - started)
    return min(times) * 1000


if __name__ == "__main__":
    run()
