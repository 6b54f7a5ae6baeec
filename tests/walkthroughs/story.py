"""A walkthrough as its operator lives it: what they type, and what `kubectl get hpa --watch` shows.

    story = Story(cluster, hpa="cuda-test")
    story.apply("cuda-test.yaml", example("cuda-test"))
    story.shows("0/5", replicas=1)
    cluster.fleet.offer("cuda-test", 12)
    story.settles("5/5", replicas=3)

All of it is printed as it happens, for `make walkthroughs` to show.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.cluster import Cluster
from tests.cluster.hpa import HEADER, Hpa, Table
from tests.real.prometheus import wait_for

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
STEP_TIMEOUT = 90.0
"""Seconds that a step may take on a busy machine; on an idle one it takes a few."""

_QUICK = {
    "scaleDown": {"stabilizationWindowSeconds": 5},
    "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
}
"""Instead of the five minutes for which a load that is gone might come back, and of the quarter of
a minute for which twice the replicas must do. Not less than five seconds: until every node has been
scraped anew, the mean is of old and new values."""

_TARGETS, _REPLICAS = HEADER.index("TARGETS"), HEADER.index("REPLICAS")


def example(name: str) -> str:
    """manifests/examples/NAME.yaml, of which nothing but `behavior` is another."""
    document = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    document["spec"]["behavior"] = _QUICK
    return yaml.safe_dump(document, sort_keys=False)


def advised(name: str) -> Any:
    """What the comment of that file says to configure: its first lines that are indented."""
    lines = (EXAMPLES / f"{name}.yaml").read_text().splitlines()
    comment = (line[1:] for line in lines if line.startswith("#"))
    parts = itertools.groupby(comment, key=lambda line: line.startswith("   "))
    return yaml.safe_load("\n".join(next(part for indented, part in parts if indented)))


class Story:
    """What happens to one HPA of namespace default, and to the Deployment that it scales."""

    def __init__(self, cluster: Cluster, *, hpa: str) -> None:
        self.cluster = cluster
        self.hpa = hpa
        self.table = _Screen()

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints, which is not shown."""
        tell(f"$ kubectl {' '.join(arguments)}")
        return self.cluster.plane.kubectl(*arguments)

    def apply(self, name: str, text: str) -> None:
        """`kubectl apply` of what the operator has in the file `name`."""
        tell(f"$ kubectl apply -f {name}")
        self.cluster.apply(text)

    def shows(self, *targets: str, replicas: int | tuple[int, ...]) -> Hpa:
        """Wait for a line with one of these TARGETS and one of these REPLICAS.

        Raises TimeoutError with the table and the conditions.
        """
        allowed = (replicas,) if isinstance(replicas, int) else replicas
        return self.cluster.watch_hpa(
            self.hpa,
            until=lambda hpa: hpa.cells[_TARGETS] in targets and hpa.current_replicas in allowed,
            seconds=STEP_TIMEOUT,
            table=self.table,
        )

    def settles(self, *targets: str, replicas: int | tuple[int, ...]) -> Hpa:
        """Wait for such a line, and until the Deployment has as many ready pods as it says."""
        hpa = self.shows(*targets, replicas=replicas)
        self.ready(hpa.document["spec"]["scaleTargetRef"]["name"], hpa.current_replicas)
        return hpa

    def stays(self, *targets: str, replicas: int, seconds: float) -> Hpa:
        """Look on as nothing else is shown. Raises AssertionError with what was."""
        until = time.monotonic() + seconds
        rows = len(self.table.rows)
        hpa = self.cluster.watch_hpa(
            self.hpa,
            until=lambda _: time.monotonic() > until,
            seconds=STEP_TIMEOUT,
            table=self.table,
        )
        for row in self.table.rows[rows:]:
            assert row[_TARGETS] in targets, self.table
            assert int(row[_REPLICAS]) == replicas, self.table
        return hpa

    def ready(self, deployment: str, replicas: int) -> None:
        """Wait until a Deployment wants, and has, so many pods. Raises TimeoutError."""
        path = f"/apis/apps/v1/namespaces/default/deployments/{deployment}"

        def counts() -> Iterator[int]:
            found = self.cluster.plane.admin.get(path)
            yield found["spec"]["replicas"]
            yield from (found["status"].get(each, 0) for each in ("replicas", "readyReplicas"))

        wait_for(
            lambda: set(counts()) == {replicas},
            f"{deployment} has {replicas} pods, and all are ready",
            seconds=STEP_TIMEOUT,
        )


def tell(line: str) -> None:
    print(line, flush=True)


class _Screen(Table):
    """Prints each row as it comes."""

    def add(self, hpa: Hpa) -> bool:
        changed = super().add(hpa)
        if changed:
            if len(self.rows) == 1:
                tell("$ kubectl get hpa --watch &")
                tell(self._line(HEADER))
            tell(self._line(self.rows[-1]))
        return changed

    def _line(self, cells: Sequence[str]) -> str:
        """In columns as wide as those of the first row, with room for any target."""
        first = list(self.rows[0])
        first[_TARGETS] = max(first[_TARGETS], "<unknown>/99", key=len)
        widths = (max(len(a), len(b)) + 3 for a, b in zip(HEADER, first, strict=True))
        return "".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()
