"""Models of a server whose limit is known, and the past of a workload of such pods."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rules.hpa.replay import MetricReading, Sync

STEP = 60.0
"""Seconds between syncs."""
WINDOW = 300.0
START = 1_800_000_000.0 // WINDOW * WINDOW
LIMIT = 500.0
"""Of the objective, in milliseconds."""
OBJECTIVE = "time_to_first_token_p95_milliseconds_over_time"
ACTIVE, RUNNING, WAITING = (f"requests_{each}_current" for each in ("active", "running", "waiting"))
DONE, TOKENS, KV, GPU = (
    "requests_per_second_over_time",
    "generation_tokens_per_second_over_time",
    "kv_cache_utilization_current",
    "duty_cycle_current",
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Server:
    """What a pod reports at a demand, in requests per second."""

    name: str
    metrics: Callable[[float], Mapping[str, float]]
    latency: Callable[[float], float]
    """Milliseconds."""
    noise: float
    """Standard deviation of the logarithm of the latency."""
    blur: Mapping[str, float]
    """Likewise of a metric; 0.02 for others."""
    most: float
    """The highest demand that one pod gets."""

    def sample(self, demand: float, luck: random.Random) -> tuple[dict[str, float], float]:
        """Return metrics and latency with noise."""
        values = {
            name: each * math.exp(luck.gauss(0, self.blur.get(name, 0.02)))
            for name, each in self.metrics(demand).items()
        }
        return values, self.latency(demand) * math.exp(luck.gauss(0, self.noise))

    def kept(self, demand: float) -> float:
        """Return the probability that the objective holds."""
        away = math.log(LIMIT / self.latency(demand)) / self.noise
        return 0.5 * (1 + math.erf(away / math.sqrt(2)))

    def limit(self) -> float:
        """Return the highest demand at which the objective holds in 95 % of windows, by search."""
        low, high = 0.0, self.most
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.kept(middle) >= 0.95 else (low, middle)
        return low


def _queue(demand: float) -> float:
    """Return the requests in a queue that saturates at 10 requests per second."""
    used = demand / 10
    return used / (1 - used) if used < 0.98 else 49 + 400 * (used - 0.98)


QUEUE = Server(
    name="saturating queue",
    metrics=lambda demand: {
        ACTIVE: _queue(demand),
        RUNNING: min(1.0, demand / 10),
        GPU: min(100.0, 10 * demand),
        DONE: min(10.0, demand),
    },
    latency=lambda demand: 60 * (1 + _queue(demand)),
    noise=0.15,
    blur={GPU: 0.1},
    most=12.0,
)


def _batch(demand: float) -> float:
    """Return the active requests: beyond a batch of 16 they wait."""
    return 4 * demand if demand <= 4 else 16 + 16 * (demand - 4)


BATCH = Server(
    name="batching with a knee",
    metrics=lambda demand: {
        ACTIVE: _batch(demand),
        RUNNING: min(16.0, _batch(demand)),
        DONE: min(4.3, demand),
        WAITING: max(0.0, _batch(demand) - 16),
        KV: min(100.0, 5 * min(16.0, _batch(demand)) + max(0.0, _batch(demand) - 16)),
    },
    latency=lambda demand: 120 + 4 * min(16, _batch(demand)) + 40 * max(0.0, _batch(demand) - 16),
    noise=0.2,
    blur={ACTIVE: 0.05, WAITING: 0.3},
    most=6.0,
)

THRASH = Server(
    name="throughput that falls beyond the knee",
    metrics=lambda demand: {
        # It says most of the load below the knee, and is not monotone.
        TOKENS: 200 * demand if demand <= 5 else max(300.0, 1000 - 350 * (demand - 5)),
        ACTIVE: 3 * demand if demand <= 5 else 15 + 12 * (demand - 5),
    },
    latency=lambda demand: 100 + 20 * demand if demand <= 5 else 200 + 500 * (demand - 5),
    noise=0.2,
    blur={ACTIVE: 0.1, TOKENS: 0.01},
    most=7.5,
)
SERVERS = (QUEUE, BATCH, THRASH)


def demands(seed: int, *, days: float, peak: float, scale: float = 1.0) -> Iterator[float]:
    """Yield a demand for each sync: days, a random walk, and bursts."""
    luck, walk, burst = random.Random(f"{seed} demand"), 0.0, 1.0
    for index in range(round(days * 86_400 / STEP)):
        day = 0.55 - 0.45 * math.cos(2 * math.pi * index * STEP / 86_400)
        walk = 0.995 * walk + luck.gauss(0, 0.01)
        burst = 1 + (burst - 1) * 0.97
        if luck.random() < 0.001:
            burst = luck.uniform(1.1, 1.6)
        yield max(0.02 * peak, scale * peak * day * math.exp(walk) * burst)


def past(
    server: Server, seed: int, *, days: float = 7, pods: int = 3, share: float = 1.0
) -> tuple[list[str], list[Sync]]:
    """Return the names of the metrics, the objective last, and the syncs of `pods` pods.

    The highest demand is about `share` of what the pods can get.
    """
    luck = random.Random(f"{server.name} {seed}")
    names = [*server.metrics(1.0), OBJECTIVE]
    peak, history, latency = share * server.most * pods / 1.3, [], 0.0
    for index, demand in enumerate(demands(seed, days=days, peak=peak)):
        values, worst = server.sample(min(share * server.most, demand / pods), luck)
        if index % (WINDOW / STEP) == WINDOW / STEP - 1:
            latency = worst
        readings = [
            MetricReading(milli=int(1000 * each) * pods, counted=pods) for each in values.values()
        ]
        history.append(
            Sync(
                time=START + STEP * index,
                readings=(*readings, MetricReading(milli=int(1000 * (latency or worst)))),
                replicas=pods,
                present=pods,
                pods=pods,
                ready=pods,
            )
        )
    return names, history
