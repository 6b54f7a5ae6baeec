"""A day with and without `ahead`, on a real control plane: `python -m tools.playground.ahead`.

The day lasts forty minutes, and pods take a minute to start. Two Deployments get the same load,
which is written to Prometheus; the HPA of one of them has a rule that looks ahead. Draws both at
the end. A shorter day would change faster than the means of five minutes that a forecast takes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools import documents
from tools.cluster import server
from tools.cluster.fleet import LiveFleet
from tools.cluster.kubelet import Kubelet
from tools.cluster.server import Server
from tools.control_plane import build, plane
from tools.control_plane.foreground import Steps, program
from tools.control_plane.plane import ControlPlane
from tools.playground import chart
from tools.real import prometheus
from tools.real.prometheus import Prometheus
from tools.waiting import repeated

DAY = 2400
"""Seconds of a day. The season is three days, because it is an hour at least."""
FIRST = 4
"""Hour of the day at which the drawing begins."""
SETUP = 120
"""Seconds before that in which everything starts."""
START_SECONDS = 60.0
TARGET = 50
"""Load of a pod."""
HOURS = (
    *((0, 1.0), (6, 1.0), (9, 6.0), (12, 5.0), (14, 6.5)),
    *((17, 5.0), (20, 8.0), (23, 1.5), (24, 1.0)),
)
"""Hour of the day and load in pods, with straight lines between them."""
STEP, PAST = 60, 15 * 86_400
"""Seconds between past samples, and of the past that is written."""
NOW, AHEAD = "web-now", "web-ahead"
RULE = """
- seriesQuery: load
  name: {{as: {name}}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{{<<.LabelMatchers>>}})
"""
RULES = "rules:" + RULE.format(name=NOW) + RULE.format(name=AHEAD) + "  ahead: {season: 2h}\n"
TOLERATED = 1.1
"""Part of its target up to which the controller leaves a value as it is."""
_SECOND = 1.0
_WIDTH, _ROWS = 96, 6


def load(at: float) -> float:
    """Return the load of all pods at a time in seconds; FIRST is at 0."""
    hour = (FIRST + at / DAY * 24) % 24
    for (begin, before), (end, after) in itertools.pairwise(HOURS):
        if hour <= end:
            return TARGET * (before + (after - before) * (hour - begin) / (end - begin))
    raise AssertionError


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What there was at one time."""

    seconds: float
    """Since FIRST."""
    load: float
    replicas: Mapping[str, tuple[int, int]]
    """Pods of each Deployment, and those that are ready."""


class Observer:
    """Writes the load of both Deployments, which their ready pods share, and notes what there is.

    `begin` is when it is FIRST, in Unix seconds.
    """

    def __init__(self, kubelet: Kubelet, running: Prometheus, begin: float) -> None:
        self._kubelet, self._prometheus, self._begin = kubelet, running, begin
        self._written: frozenset[str] = frozenset()
        self.moments: list[Moment] = []

    def __call__(self) -> None:
        """Write a sample of each ready pod."""
        seconds = time.time() - self._begin
        total, lines = load(seconds), dict[str, float]()
        replicas: dict[str, tuple[int, int]] = {}
        for name in (NOW, AHEAD):
            pods = [
                each
                for each in self._kubelet.objects.pods
                if each["metadata"]["labels"].get("app") == name
                and not each["metadata"].get("deletionTimestamp")
            ]
            ready = [each["metadata"]["name"] for each in pods if _is_ready(each["status"])]
            replicas[name] = len(pods), len(ready)
            for pod in ready:
                lines[f'load{{namespace="default",pod="{pod}"}}'] = total / len(ready)
        self.moments.append(Moment(seconds=seconds, load=total, replicas=replicas))
        if gone := self._written - lines.keys():
            self._prometheus.end(*(f"{each} 1" for each in gone))
        self._written = frozenset(lines)
        if lines:
            self._prometheus.put(*(f"{each} {value}" for each, value in lines.items()))


def lines(moments: Sequence[Moment]) -> Iterator[str]:
    """Yield the drawing of what was observed from FIRST on."""
    moments = [each for each in moments if each.seconds >= 0]
    most = chart.round_up(max(each.load for each in moments) / TARGET)
    yield "load, in pods"
    yield from _area(moments, [each.load / TARGET for each in moments], most)
    for name, title in ((NOW, "without `ahead`"), (AHEAD, "with `ahead`")):
        above = hours = 0.0
        for each, after in itertools.pairwise(moments):
            (pods, ready), lasted = each.replicas[name], after.seconds - each.seconds
            above += lasted * (each.load > TOLERATED * TARGET * ready)
            hours += lasted * pods / 3600
        yield f"ready pods {title}: {above:.0f} s above the target, {hours:.2f} pod-hours"
        yield from _area(moments, [float(each.replicas[name][1]) for each in moments], most)


def _is_ready(status: object) -> bool:
    conditions = status.get("conditions") or () if isinstance(status, dict) else ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _area(moments: Sequence[Moment], values: Sequence[float], top: float) -> list[str]:
    scale = (_WIDTH - 1) / moments[-1].seconds
    latest = {int(each.seconds * scale): value for each, value in zip(moments, values, strict=True)}
    return chart.area([*latest.values()], rows=_ROWS, top=top)


def _fill(running: Prometheus, begin: float) -> None:
    """Write the load of past days, which a pod of another name had."""
    now = int(time.time()) // STEP * STEP
    times = range(now - PAST, now, STEP)
    pod = f"{AHEAD}-6f7c9d5b4-x8k2p"
    labels = {"__name__": "load", "namespace": "default", "pod": pod}
    running.put_series([(labels, [(at * 1000, load(at - begin)) for at in times])])
    running.end(f'load{{namespace="default",pod="{pod}"}} 1', at=now)


def _objects(name: str) -> Iterator[documents.Document]:
    spec = {"containers": [{"name": "web", "image": "web"}]}
    yield documents.workload("Deployment", name, spec, replicas=1)
    metric = documents.pods_metric(name, str(TARGET))
    # A day is 36 times as short as a real one.
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    yield documents.hpa(name, metric, behavior=behavior, maxReplicas=12)


def _run(control_plane: ControlPlane, folder: Path, hours: float, step: Steps) -> list[Moment]:
    begin = time.time() + SETUP
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    with contextlib.ExitStack() as stack:
        step("Prometheus, with the load of the past")
        running = stack.enter_context(prometheus.run(folder))
        _fill(running, begin)
        kubelet = Kubelet(
            control_plane.admin, LiveFleet(["node"], gpus=4), start_seconds=START_SECONDS
        )
        stack.callback(kubelet.stop)
        kubelet.start()
        items = [each for name in (NOW, AHEAD) for each in _objects(name)]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        step("Deployments and HPAs; a pod takes a minute to start")
        control_plane.kubectl("apply", "-f", "-", text=text)
        observer = Observer(kubelet, running, begin)
        stack.enter_context(repeated(observer, every=_SECOND))
        step("gpu-metrics-adapter")
        server.install(control_plane)
        flags = (f"--config={rules}", f"--prometheus-url={running.url}", "--shutdown-delay=0s")
        adapter = Server(control_plane, folder / "adapter.log", flags)
        stack.callback(adapter.kill)
        adapter.start()
        step(f"{hours:g} hours of {DAY // 24} s")
        time.sleep(max(0.0, begin + hours * DAY / 24 - time.time()))
        print(*(line for line in adapter.log.splitlines() if "lookahead" in line), sep="\n")
    return observer.moments


def main(argv: Sequence[str] | None = None) -> None:
    """Run the day, and print its drawing."""
    parser = argparse.ArgumentParser(prog="python -m tools.playground.ahead", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help=f"to draw, from {FIRST} on")
    args = parser.parse_args(argv)
    step = Steps()
    with program(), tempfile.TemporaryDirectory() as folder:
        programs = build.ensure_programs()
        step("a real control plane")
        with plane.running(Path(folder), programs) as control_plane:
            moments = _run(control_plane, Path(folder), args.hours, step)
    print(*lines(moments), sep="\n")


if __name__ == "__main__":
    main()
