"""A View of two minutes in which the load rose, for tests."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.playground.view import Autoscaler, Command, Event, Moment, View

HEADER = ("NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE")
CELLS = ("bert", "Deployment/bert-intent-detection", "24/20", "1", "10", "5", "2m")
AUTOSCALER = Autoscaler(
    metric="duty_cycle_current",
    target=20.0,
    smallest=1,
    largest=10,
    header=HEADER,
    cells=CELLS,
)
RAW = "kubectl get --raw '/apis/custom.metrics.k8s.io/v1beta1/nodes/*/duty_cycle'"


def moments() -> list[Moment]:
    """15 % on one pod; 120 % from second 60 on; five pods wanted from 64 on, ready from 70 on."""
    found = []
    for second in range(120):
        askers = 1 if second < 60 else 8
        ready = 1 if second < 70 else 5
        value = None if second < 4 else min(100.0, 15.0 * askers / ready)
        found.append(
            Moment(
                seconds=float(second),
                load=15.0 * askers,
                askers=askers,
                value=value,
                wanted=1 if second < 64 else 5,
                ready=ready,
            )
        )
    return found


def view(**changes: Any) -> View:
    return dataclasses.replace(
        View(
            title="playground",
            setting="Kubernetes 1.36.3",
            moments=moments(),
            autoscaler=AUTOSCALER,
            gpus=((24.0, 25.0, 23.0, 24.0), (24.0, None, None, None)),
            events=(
                Event(seconds=60, text="load 15 % -> 120 %: 8 x bert-load"),
                Event(seconds=64, text="scaled to 5: above target"),
            ),
            commands=(
                Command(purpose="let kubectl in", text="export KUBECONFIG=/tmp/p/kubeconfig"),
                Command(purpose="ask as it does", text=RAW),
            ),
        ),
        **changes,
    )


def after(second: int, **changes: Any) -> View:
    """As it was at that second."""
    return view(moments=moments()[: second + 1], **changes)
