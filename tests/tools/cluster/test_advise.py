"""`advise hpa` on a real control plane, with four days of vLLM's series in Prometheus."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.cli import program
from rules import quantity
from tests.rules.hpa import model_servers
from tests.rules.hpa.model_servers import ACTIVE, BATCH, OBJECTIVE, RUNNING, WAITING
from tests.tools.cluster import workload
from tools import documents
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus
from tools.real.prometheus import Prometheus, wait_for

DAYS, STEP = 4, 60
STEPS = DAYS * 24 * 3600 // STEP
PODS = ("web-bbbbb", "web-ccccc", "web-ddddd")
BOUNDS = (50, 100, 150, 200, 250, 300, 400, 500, 600, 800, 1000, 2000, 5000)
"""Of the histogram, in milliseconds."""
ADVISE = ("advise", "hpa", "default/web", "--objective=time_to_first_token_p95 < 500ms")


def histogram(latency: float) -> list[float]:
    """Return the part of the requests up to each bound if the 95th percentile is `latency`."""
    rate = math.log(20) / latency
    return [1 - math.exp(-rate * bound) for bound in BOUNDS]


def fill(running: Prometheus) -> None:
    """Write the series of pods whose batch has a knee, as those of vLLM."""
    labels = {"namespace": "default", "model_name": "llama", "engine": "0"}
    luck, begin = random.Random(3), int(time.time()) // STEP * STEP - STEP * STEPS
    peak = len(PODS) * BATCH.most / 1.3
    demands = list(model_servers.demands(3, days=DAYS, peak=peak))
    gauges: dict[str, list[tuple[int, float]]] = {RUNNING: [], WAITING: []}
    buckets: dict[str, list[tuple[int, float]]] = {
        each: [] for each in (*(str(bound / 1000) for bound in BOUNDS), "+Inf")
    }
    counts = [0.0] * len(buckets)
    for index, demand in enumerate(demands):
        if not index % 5:  # as long as a percentile of the preset covers
            noise = math.exp(luck.gauss(0, BATCH.noise))
        at, each_gets = 1000 * (begin + STEP * index), min(BATCH.most, demand / len(PODS))
        for name, points in gauges.items():
            points.append((at, BATCH.metrics(each_gets)[name]))
        parts = [*histogram(noise * BATCH.latency(each_gets)), 1.0]
        counts = [old + STEP * each_gets * part for old, part in zip(counts, parts, strict=True)]
        for points, count in zip(buckets.values(), counts, strict=True):
            points.append((at, count))
    names = {f"vllm:num_{name.removesuffix('_current')}": points for name, points in gauges.items()}
    of_time = "vllm:time_to_first_token_seconds_bucket"
    rows: list[tuple[dict[str, str], list[tuple[int, float]]]] = [
        *(({"__name__": name}, points) for name, points in names.items()),
        *(({"__name__": of_time, "le": bound}, points) for bound, points in buckets.items()),
    ]
    # In one request: Prometheus refuses what is much older than its newest sample.
    running.put_series(
        (dict(sorted({**labels, **own, "pod": pod}.items())), points)
        for pod in PODS
        for own, points in rows
    )


@pytest.fixture
def url(control_plane: ControlPlane, tmp_path: Path) -> Iterator[str]:
    """The URL of a Prometheus whose series an adapter serves by the preset."""
    with prometheus.run(tmp_path) as running:
        fill(running)
        flags = ("--preset=inference-vllm", f"--prometheus-url={running.url}")
        metric = documents.pods_metric("requests_waiting_current", "5")
        with workload.running(control_plane, tmp_path, flags, PODS, metric):
            yield running.url


def test_the_target_that_keeps_the_objective_follows_from_the_past(
    control_plane: ControlPlane, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (f"--kubeconfig={control_plane.kubeconfig}", f"--prometheus-url={url}")
    outputs: list[str] = []

    def advised() -> bool:
        code = program.main([*ADVISE, *flags, f"--since={DAYS}d", "--sync-period=1m", "-o", "json"])
        outputs.append(capsys.readouterr().out)
        return code == 0

    wait_for(advised, "a target is advised")
    document = json.loads(outputs[-1])

    assert document["metric"] == ACTIVE
    assert document["objective"] == {"metric": OBJECTIVE, "below": "500"}
    (metric,) = document["hpa"]["spec"]["metrics"]
    assert metric["pods"]["metric"]["name"] == ACTIVE
    known = BATCH.metrics(BATCH.limit())[ACTIVE]
    assert float(quantity.parse(document["target"])) == pytest.approx(1000 * known, rel=0.15)
    was, _, target = document["variants"]
    assert target["aboveObjectiveSeconds"] < was["aboveObjectiveSeconds"] / 4
