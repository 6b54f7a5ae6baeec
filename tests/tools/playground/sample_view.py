"""View of two minutes in which the load rises."""

from __future__ import annotations

import dataclasses
from typing import Any

from tools.playground.view import Autoscaler, Command, Event, Snapshot, View

CELLS = ("bert", "Deployment/bert-intent-detection", "24/20", "1", "10", "5", "2m")
AUTOSCALER = Autoscaler(
    metric="duty_cycle_current",
    target=20.0,
    min_replicas=1,
    max_replicas=10,
    cells=CELLS,
)
QUERY = "kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle'"


def snapshots() -> list[Snapshot]:
    """Return one snapshot per second.

    The load is 15 %, from second 60 on 120 %. Five replicas are desired from second 64 on and ready
    from second 70 on.
    """
    result = []
    for second in range(120):
        load_replicas = 1 if second < 60 else 8
        ready = 1 if second < 70 else 5
        value = None if second < 4 else min(100.0, 15.0 * load_replicas / ready)
        result.append(
            Snapshot(
                seconds=float(second),
                load=15.0 * load_replicas,
                load_replicas=load_replicas,
                value=value,
                desired=1 if second < 64 else 5,
                ready=ready,
            )
        )
    return result


def view(**changes: Any) -> View:
    """Return the view after all snapshots, with some fields replaced."""
    return dataclasses.replace(
        View(
            subtitle="Kubernetes 1.36.3",
            snapshots=snapshots(),
            autoscaler=AUTOSCALER,
            gpus=((24.0, 25.0, 23.0, 24.0), (24.0, None, None, None)),
            events=(
                Event(seconds=60, text="load 15 % -> 120 %: 8 x bert-load"),
                Event(seconds=64, text="scaled to 5: above target"),
            ),
            commands=(
                Command(purpose="set up kubectl", text="export KUBECONFIG=/tmp/p/kubeconfig"),
                Command(purpose="query metric", text=QUERY),
            ),
        ),
        **changes,
    )


def view_at(second: int, **changes: Any) -> View:
    """Return the view as of a second, with some fields replaced."""
    return view(snapshots=snapshots()[: second + 1], **changes)
