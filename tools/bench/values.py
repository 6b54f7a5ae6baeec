"""Compare every value of a large fleet while load and pods change: `python -m tools.bench.values`.

    python -m tools.bench.values [AUTOSCALERSxPODSxNAMESPACES] [SECONDS]

By default 5 000 autoscalers over 50 000 pods, for 90 s. Every 15 s each pod gets another value, and
ten times a second one pod is replaced by another one, while all autoscalers request their metric
again and again. Each item of an answer must have the value that Prometheus had at its timestamp; no
pod may be missing that had a value, and none may be there that was gone two seconds before.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from tools.bench import api_server, client, processes, testbed, workload
from tools.bench.testbed import Running, Testbed
from tools.bench.workload import Size
from tools.waiting import until

_DEFAULT = "5000x50000x100"
_PERIOD, _REPLACEMENT = 15.0, 0.1
"""Seconds between two changes of all values, and between two replaced pods."""
_SEEN = 2.0
"""Seconds after which a change of the pods must show."""
_CONNECTIONS = 10
_USER = {"X-Remote-User": "hpa", "X-Remote-Group": "system:authenticated"}
_BATCH = 5_000


@dataclass(slots=True, kw_only=True)
class _Pod:
    """A pod. Times are in Unix seconds."""

    number: int
    began: float = 0.0
    ended: float = float("inf")
    first_round: int = 0
    """First change of the values that has one for this pod."""


@dataclass(kw_only=True)
class Fleet:
    """All pods and all changes of their values so far."""

    size: Size
    apps: dict[tuple[str, str], dict[str, _Pod]] = field(default_factory=dict)
    rounds: list[list[float]] = field(default_factory=list)
    """Of each change, the timestamp of its samples, and when all were written (Unix seconds)."""

    def __post_init__(self) -> None:
        numbers = itertools.count()
        for app in self.size.apps():
            self.apps[app] = {
                name: _Pod(number=next(numbers)) for name in self.size.pod_names(app[1])
            }
        self._numbers = numbers

    def replace(self, rng: random.Random) -> tuple[str, str, str, str]:
        """Replace a pod; return namespace, application, its name and that of the new one."""
        (namespace, app), pods = rng.choice(list(self.apps.items()))
        name = rng.choice([name for name, pod in pods.items() if pod.ended > time.time()])
        number = next(self._numbers)
        new = f"{app}-5c9f7b6d4c-n{number:04x}"
        pods[name].ended = time.time()
        pods[new] = _Pod(number=number, began=time.time(), first_round=len(self.rounds))
        return namespace, app, name, new

    def samples(self) -> Iterator[tuple[dict[str, str], float]]:
        """Yield the sample of each present pod in the next round."""
        change = len(self.rounds)
        for (namespace, app), pods in self.apps.items():
            for name, pod in pods.items():
                if pod.ended > time.time() and pod.first_round <= change:
                    labels = workload.labels("GPU_UTIL", namespace, app, name, pod.number)
                    yield labels, _value(pod, change)

    def possible(self, at: float) -> list[int]:
        """Return the rounds whose samples an evaluation in the second after `at` may have seen."""
        written = [number for number, (_, end) in enumerate(self.rounds) if end <= at]
        begun = [number for number, (begin, _) in enumerate(self.rounds) if begin <= at + 1]
        return list(range(max(written, default=0), max(begin for begin in begun) + 1))


def _value(pod: _Pod, change: int) -> float:
    return float((pod.number + 37 * change) % 101)


class Comparison:
    """Compares answers with the fleet, and counts what is right and what is not."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    def compare(
        self, app: tuple[str, str], document: dict[str, Any], began: float, ended: float
    ) -> None:
        """Compare the answer to a request that took from `began` to `ended` (Unix seconds)."""
        pods = self._fleet.apps[app]
        self.counts["answers"] += 1
        items = {each["describedObject"]["name"]: each for each in document["items"]}
        seconds = 0.0
        for name, item in items.items():
            seconds = dt.datetime.fromisoformat(item["timestamp"]).timestamp()
            pod = pods[name]
            expected = {
                f"{_value(pod, change):.0f}"
                for change in self._fleet.possible(seconds)
                if change >= pod.first_round
            }
            self._note("values", item["value"] in expected, f"{name}: {item} not in {expected}")
            self._note("gone", pod.ended > began - _SEEN, f"{name} is gone since {pod.ended}")
            self.counts["oldest"] = max(self.counts["oldest"], round(ended - seconds))
        for name, pod in pods.items():
            present = pod.began < began - _SEEN and pod.ended > ended
            if present and seconds and pod.first_round <= self._fleet.possible(seconds)[0]:
                self._note("present", name in items, f"{name} is missing")

    def _note(self, what: str, right: bool, problem: str) -> None:
        self.counts[what] += right
        if not right:
            self.counts[f"{what}, wrong"] += 1
            self.wrong.append(problem)


async def _change_values(bed: Testbed, fleet: Fleet) -> None:
    while True:
        begin = time.time()
        samples = list(fleet.samples())
        fleet.rounds.append([begin, float("inf")])
        for first in range(0, len(samples), _BATCH):
            batch = samples[first : first + _BATCH]
            await asyncio.to_thread(bed.prometheus.write, batch, at=begin)
        fleet.rounds[-1][1] = time.time()
        await asyncio.sleep(max(0.0, begin + _PERIOD - time.time()))


async def _replace_pods(url: str, fleet: Fleet, session: aiohttp.ClientSession) -> None:
    rng = random.Random(7)
    while True:
        async with session.post(url, json=fleet.replace(rng)) as response:
            response.raise_for_status()
        await asyncio.sleep(_REPLACEMENT)


async def _ask(
    running: Running,
    apps: Iterator[tuple[tuple[str, str], str]],
    session: aiohttp.ClientSession,
    comparison: Comparison,
) -> None:
    for app, path in apps:
        began = time.time()
        url = f"https://127.0.0.1:{running.endpoint.port}{path}"
        async with session.get(url) as response:
            document: dict[str, Any] = {"items": ()}
            if response.status != 404:  # none of the pods has a value yet
                response.raise_for_status()
                document = orjson.loads(await response.read())
        comparison.compare(app, document, began, time.time())


async def compare(bed: Testbed, seconds: float) -> Comparison:
    """Run the adapter, and compare its answers for this time."""
    fleet = Fleet(size=bed.size)
    comparison = Comparison(fleet)
    changes = asyncio.create_task(_change_values(bed, fleet))
    await until(lambda: fleet.rounds and fleet.rounds[0][1] < time.time(), seconds=60)
    with bed.start(testbed.ADAPTER) as running:
        bed.wait_until_quiet()
        port = processes.read_result(bed.folder, "kubernetes")
        connector = aiohttp.TCPConnector(ssl=running.endpoint.context())
        headers = {"Accept": client.JSON, **_USER}
        async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
            url = f"http://127.0.0.1:{port}{api_server.REPLACE}"
            apps = zip(itertools.cycle(fleet.apps), itertools.cycle(bed.paths), strict=True)
            tasks = [
                changes,
                asyncio.create_task(_replace_pods(url, fleet, session)),
                *(
                    asyncio.create_task(_ask(running, apps, session, comparison))
                    for _ in range(_CONNECTIONS)
                ),
            ]
            done, _ = await asyncio.wait(
                tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION
            )
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for task in done:
                task.result()
    return comparison


def main(argv: list[str]) -> int:
    """Print what was compared; return 1 if a value is wrong or missing."""
    size, seconds, *_ = [*argv, *(_DEFAULT, "90")[len(argv) :]]
    with testbed.running(Size.parse(size)) as bed:
        bed.write_series()
        comparison = asyncio.run(compare(bed, float(seconds)))
    counts = comparison.counts
    print(
        f"{counts['answers']} answers, up to {counts['oldest']} s old\n"
        f"{counts['values']} values were those that Prometheus had at their timestamps, "
        f"{counts['values, wrong']} were not\n"
        f"{counts['present']} present pods were there, {counts['present, wrong']} were not; "
        f"{counts['gone, wrong']} were there that were gone"
    )
    print("\n".join(comparison.wrong[:20]))
    return 1 if comparison.wrong or not counts["values"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
