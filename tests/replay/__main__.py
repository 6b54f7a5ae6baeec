"""Compares replays with what really was: `python -m tests.replay [values]`.

`values` compares past values with the answers that the server gave then, for 200 random rules and
HPAs. Without it, decisions are compared with the real controller, for generated loads: twenty
Deployments of a simulated GPU cluster are scaled by kube-controller-manager, which syncs every two
seconds, for some minutes. Then each HPA is replayed with its own settings, over the same time. The
table says how many syncs have the replicas that there were, differ by one, or by more.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from adapter import settings
from adapter.app import sources
from adapter.doctor import replay
from adapter.doctor.client import connected
from adapter.doctor.replay import Wanted
from rules.hpa.replay_report import Replay
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.control_plane import build, plane
from tests.replay import values, worlds

SYNC = 2.0
START = 3.0
"""Seconds until a new pod is ready; it has a value a scrape later."""
_LAG = 4.0
_GPUS = 8
_MAX = 8
Load = Callable[[float], float]
"""Seconds since the start -> load of all pods together, in per cent of a GPU."""


def loads(seed: int, seconds: float) -> Load:
    """Return a load of one of four kinds: waves, steps, peaks, or a walk."""
    generator = random.Random(seed)
    high = generator.uniform(120, 500)
    if seed % 4 == 0:
        period = generator.uniform(60, 150)
        return lambda at: high / 2 * (1 + math.sin(2 * math.pi * at / period))
    if seed % 4 == 1:
        steps = [generator.uniform(0, high) for _ in range(math.ceil(seconds / 40) + 1)]
        return lambda at: steps[int(at // 40)]
    if seed % 4 == 2:
        peaks = sorted(generator.uniform(20, seconds - 30) for _ in range(3))
        return lambda at: high if any(0 <= at - each < 20 for each in peaks) else high / 5
    walk = [high / 2]
    for _ in range(math.ceil(seconds / 10) + 1):
        walk.append(min(max(walk[-1] + generator.uniform(-80, 80), 0.0), high))
    return lambda at: walk[int(at // 10)]


def objects(number: int) -> list[dict[str, Any]]:
    """Return a Deployment with one GPU for each pod, and its HPA."""
    generator, name = random.Random(1000 + number), f"replayed-{number}"
    labels = {"app": name}
    limits = {"nvidia.com/gpu": "1"}
    behavior = {
        "scaleDown": {
            "stabilizationWindowSeconds": generator.choice([0, 10, 30]),
            "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
        },
        "scaleUp": {
            "policies": [{"type": "Pods", "value": generator.choice([1, 2, 8]), "periodSeconds": 6}]
        },
    }
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "containers": [
                            {"name": "server", "image": "server", "resources": {"limits": limits}}
                        ]
                    },
                },
            },
        },
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": _MAX,
                "behavior": behavior,
                "metrics": [
                    {
                        "type": "Pods",
                        "pods": {
                            "metric": {"name": "duty_cycle_current"},
                            "target": {
                                "type": "AverageValue",
                                "averageValue": str(generator.choice([30, 50, 70])),
                            },
                        },
                    }
                ],
            },
        },
    ]


def main() -> int:
    """Run the loads, replay them, and print the table; return 1 if a replay fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=main.__doc__)
    parser.add_argument("what", nargs="?", choices=("loads", "values"), default="loads")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=240.0)
    arguments = parser.parse_args()
    if arguments.what == "values":
        return _values(arguments.cases)
    number, seconds = arguments.loads, arguments.seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = build.ensure_programs()
        with (
            plane.running(folder, programs) as control_plane,
            cluster.running(
                control_plane,
                folder,
                generation="dcgm",
                nodes=math.ceil(number * _MAX / _GPUS),
                gpus=_GPUS,
                start_seconds=START,
                clean_up=False,
            ) as running,
            running.adapter("--preset=gpu-dcgm"),
        ):
            running.apply(yaml.safe_dump_all(each for i in range(number) for each in objects(i)))
            _drive(running, number, seconds)
            replayed = asyncio.run(_replayed(running, number, seconds))
    _print(replayed)
    return 0


def _values(number: int) -> int:
    """Print how many past values equal the server's answers; return 1 if one does not."""
    rows = asyncio.run(values.run(number))
    print(f"{'kind':<12}{'cases':>6}{'syncs':>7}{'with a value':>13}{'different':>10}")
    for kind in (*worlds.KINDS, ""):
        those = [each for each in rows if kind in {each.case.kind, ""}]
        answers = [each for row in those for each in row.answers]
        known = sum(each.milli is not None for each in answers)
        wrong = sum(len(each.wrong) for each in those)
        print(f"{kind or 'all':<12}{len(those):>6}{len(answers):>7}{known:>13}{wrong:>10}")
    return int(any(each.wrong for each in rows))


def _drive(running: Cluster, number: int, seconds: float) -> None:
    """Set the loads for a while."""
    wanted = [loads(each, seconds) for each in range(number)]
    began = time.monotonic()
    while (at := time.monotonic() - began) < seconds:
        for index, load in enumerate(wanted):
            running.fleet.set_load(f"replayed-{index}", load(at))
        print(f"\r{at:.0f} of {seconds:.0f} s", end="", file=sys.stderr, flush=True)
        time.sleep(1)
    print(file=sys.stderr)


async def _replayed(running: Cluster, number: int, seconds: float) -> list[Replay]:
    connection = settings.parse([f"--prometheus-url={running.prometheus.url}"]).prometheus
    wanted = Wanted(since=seconds, step=SYNC, startup=START + _LAG)
    found = []
    async with (
        connected(str(running.control_plane.kubeconfig)) as client,
        sources.connect_prometheus(connection) as prometheus,
    ):
        for index in range(number):
            name = f"replayed-{index}"
            found.append(await replay.run(client, prometheus, "default", name, wanted))
    return found


def _print(replayed: list[Replay]) -> None:
    print(f"{'load':<16}{'syncs':>6}{'equal':>7}{'within 1':>9}{'different':>10}  steps of both")
    equal = near = syncs = 0
    for each in replayed:
        fit, (was, present) = each.fit, each.results
        total = fit.equal + fit.near + fit.different
        equal, near, syncs = equal + fit.equal, near + fit.near, syncs + total
        print(
            f"{each.hpa.name:<16}{total:>6}{fit.equal:>7}{fit.near:>9}{fit.different:>10}"
            f"  {was.ups + was.downs} and {present.ups + present.downs}"
        )
    print(
        f"{equal / syncs:.1%} of {syncs} syncs equal, {near / syncs:.1%} within one replica, "
        f"{(syncs - equal - near) / syncs:.1%} different"
    )


if __name__ == "__main__":
    sys.exit(main())
