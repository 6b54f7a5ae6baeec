"""Compares what the real controller makes of an empty list and of a 404: `python -m ... [NUMBER]`.

Each random HPA with a metric without values exists twice. One gets `items: []` for this metric, its
twin a 404. Both must have the same replicas, one after the other, and the same conditions.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.control_plane import build, foreground, plane
from tools.hpa import controller
from tools.hpa import random_objects as objects
from tools.hpa.controller import SEED, Metrics, Testbed
from tools.hpa.random_objects import CUSTOM, EXTERNAL, Case

_TWIN = 1_000_000
"""What the number of a twin has more."""
_BATCH = 20
_SECONDS = 20.0
"""For which a batch is watched; the controller computes each HPA several times."""
_LATE = 15.0
"""Seconds by which one of a pair may be later."""
_LISTS = {f"{CUSTOM}/pods/": "Pods", f"{CUSTOM}/{objects.PLURAL}.": "Object", EXTERNAL: "External"}


class WithoutValues(Metrics):
    """Metrics API that has no values as an empty list, and for twins as a 404."""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, Any]:
        """Return status and document."""
        if path in self.replies and not self.replies[path]:
            is_twin = int(self.subject(path, query)[1:]) >= _TWIN
            self.replies[path] = None if is_twin else []
        return super().answer(path, query)


def pairs(number: int, seed: int) -> Iterator[tuple[Case, Case]]:
    """Yield this many HPAs with a metric without values, each with its twin."""
    found = 0
    for each in itertools.count():
        if found == number:
            return
        one = objects.case(each, seed)
        if kinds(one):
            found += 1
            yield one, objects.case(each, seed, named=each + _TWIN)


def kinds(case: Case) -> list[str]:
    """Return the types of the metrics that have no values."""
    return [
        kind
        for path, items in case.replies.items()
        for prefix, kind in _LISTS.items()
        if not items and path.startswith(prefix)
    ]


@dataclass(kw_only=True)
class Result:
    """What became of the pairs."""

    wrong: list[str] = field(default_factory=list)
    """Those that differ."""
    scaled: int = 0
    """Pairs whose replicas changed."""
    inactive: int = 0
    """Pairs for which the controller computed no number of replicas."""


def compare(bed: Testbed, every: Sequence[tuple[Case, Case]]) -> Result:
    """Create the pairs in batches, and compare the two of each."""
    result = Result()
    for start in range(0, len(every), _BATCH):
        batch = every[start : start + _BATCH]
        cases = [*itertools.chain.from_iterable(batch)]
        with bed.created(cases):
            replicas = {each.name: [int(each.target["spec"]["replicas"])] for each in cases}
            deadline = time.monotonic() + _SECONDS
            while True:
                hpas = _observe(bed, replicas)
                differing = [
                    text for one, twin in batch if (text := _difference(one, twin, replicas, hpas))
                ]
                late = time.monotonic() - deadline
                if late > _LATE or (late > 0 and not differing):
                    break
                time.sleep(0.2)
            result.wrong += differing
            for one, _ in batch:
                result.scaled += len(replicas[one.name]) > 1
                result.inactive += '"FailedGet' in _status(hpas[one.name], one.name)
    return result


def _observe(bed: Testbed, replicas: dict[str, list[int]]) -> dict[str, Any]:
    """Append to the replicas of each target those that are new, and return the HPAs."""
    for name, target in bed.targets().items():
        wanted = target["spec"]["replicas"]
        if name in replicas and replicas[name][-1:] != [wanted]:
            replicas[name].append(wanted)
    return bed.hpas()


def _difference(one: Case, twin: Case, replicas: dict[str, list[int]], hpas: dict[str, Any]) -> str:
    """Return what differs between the two of a pair; else empty."""
    first, second = (
        (replicas[each.name], _status(hpas[each.name], each.name)) for each in (one, twin)
    )
    return "" if first == second else f"{one.name} {kinds(one)}: {first} but with a 404 {second}"


def _status(hpa: Any, name: str) -> str:
    """Return what the controller computed, without names, times and the text of conditions."""
    status = hpa.get("status", {})
    keys = ("type", "status", "reason")
    conditions = [[each[key] for key in keys] for each in status.get("conditions", ())]
    shown = [status.get("desiredReplicas"), status.get("currentMetrics"), conditions]
    return json.dumps(shown).replace(name[1:], "")


def main(argv: Sequence[str]) -> int:
    """Compare the pairs, and print those that differ and how many there were."""
    parser = argparse.ArgumentParser(prog="python -m tools.hpa.empty_lists")
    parser.add_argument("number", nargs="?", type=int, default=200, help="pairs (default 200)")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    every = [*pairs(arguments.number, arguments.seed)]
    programs = build.ensure_programs()
    with (
        tempfile.TemporaryDirectory(prefix="hpas-") as folder,
        plane.running(Path(folder), programs) as control_plane,
        controller.running(control_plane, WithoutValues()) as bed,
    ):
        result = compare(bed, every)
    numbers = Counter(itertools.chain.from_iterable(kinds(one) for one, _ in every))
    metrics = ", ".join(f"{number} {kind}" for kind, number in sorted(numbers.items()))
    print("\n".join(result.wrong))
    print(
        f"{len(result.wrong)} of {len(every)} pairs differ; {result.scaled} scaled, "
        f"{result.inactive} had no number of replicas; metrics without values: {metrics}"
    )
    return 1 if result.wrong else 0


if __name__ == "__main__":
    with foreground.program(signal_status=130):
        sys.exit(main(sys.argv[1:]))
