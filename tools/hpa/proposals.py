"""Compares the series of proposed replicas with what the real controller proposes at each sync.

    python -m tools.hpa.proposals [NUMBER] [--seed=SEED]

The controller logs what the metrics of an HPA propose together, before limits and stabilization;
the adapter's own metrics are scraped each second. The walkthroughs do the same with their HPAs.

Random HPAs scale ReplicaSets, whose pods are Running, Pending, failed or being deleted, with and
without values. Pods that are being deleted are not Ready: Ready ones count for a target of type
Value in the controller, but not in the status of a ReplicaSet.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import dataclasses
import datetime as dt
import itertools
import random
import re
import ssl
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from adapter.cli.local_prometheus.remote_write import Labels
from tools import documents
from tools.cluster import server
from tools.control_plane import build
from tools.control_plane.client import MERGE_PATCH
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus as real
from tools.real.prometheus import wait_for
from tools.waiting import repeated

SEED = 25
SYNC = 15.0
ROUNDS = 2
"""How often all values and some pods change."""
_SYNCS = 3
"""Syncs of each round."""
_LOOK = 10.0
"""Seconds in which the adapter looks at each HPA, every five, on a busy machine."""
_FIRST_SHOWN = 3 * _LOOK
"""Seconds until an HPA is shown, likewise: after the first check with a watch of HPAs, the adapter
notes answers, and the next check shows them."""
_AHEAD = 2.0
"""Seconds before a sync is logged in which its metrics are requested, likewise."""
_NAMESPACE = "random"
_PODS = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_GAUGE = "gpu_metrics_adapter_autoscaler_proposed_replicas"
_KEPT = "test.example.com/kept"
_RULES = """
rules:
- seriesQuery: '{__name__=~"(load|queue)"}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum by (<<.GroupBy>>) (<<.Series>>{<<.LabelMatchers>>})
  workloads: avg
externalRules:
- seriesQuery: '{__name__=~"waiting.*"}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: sum by (part) (<<.Series>>{<<.LabelMatchers>>})
"""
_SYNC_LINE = re.compile(
    r'^[IE](\d{4} [\d:.]+) .*(?:"Proposing desired replicas" .*desiredReplicas=(-?\d+) '
    r'.*scaleTarget="|err="failed to compute desired number of replicas .*? for )'
    r'(\w+/[\w-]+/[\w.-]+)[":]'
)
_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.custom.metrics.k8s.io"
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"


@dataclasses.dataclass(kw_only=True)
class Result:
    """What the comparison found."""

    equal: int = 0
    """Number of syncs whose proposal the series show."""
    hpas: set[str] = dataclasses.field(default_factory=set)
    """HPAs of these."""
    values: set[int | None] = dataclasses.field(default_factory=set)
    wrong: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.equal} of {self.equal + len(self.wrong)} syncs of {len(self.hpas)} HPAs are "
            f"equal ({len(self.values)} different numbers)"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sync:
    """A sync of an HPA in the log of the controller."""

    at: float
    """Unix seconds."""
    proposed: int | None
    """None if it failed."""


class Recording:
    """What the adapter behind the APIService shows, and what the controller proposes meanwhile."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._plane = control_plane
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        assert control_plane.admin.holder
        control_plane.admin.holder.client(self._context, control_plane.folder)
        self._begun = time.time()
        self._targets: dict[str, str] = {}
        """HPA -> its target, as the controller logs it."""
        self._scrapes: list[tuple[float, Mapping[str, int]]] = []
        """Unix seconds, and what the metrics of each HPA propose together."""

    def scrape(self) -> None:
        """Note what the series show. Raises OSError if no adapter runs."""
        port = self._plane.admin.get(_SERVICE)["spec"]["service"]["port"]
        url = f"https://127.0.0.1:{port}/metrics"
        with urllib.request.urlopen(url, context=self._context, timeout=10) as response:
            text = response.read().decode()
        found: dict[str, int] = {}
        own = "\n".join(each for each in text.splitlines() if each.startswith(_GAUGE))
        for family in text_string_to_metric_families(f"{own}\n"):
            for each in family.samples:
                hpa = f"{each.labels['namespace']}/{each.labels['name']}"
                found[hpa] = max(int(each.value), found.get(hpa, int(each.value)))
        if found.keys() - self._targets.keys():
            for hpa in self._plane.admin.get(_HPAS)["items"]:
                namespace, target = hpa["metadata"]["namespace"], hpa["spec"]["scaleTargetRef"]
                name = f"{namespace}/{hpa['metadata']['name']}"
                self._targets[name] = f"{target['kind']}/{namespace}/{target['name']}"
        self._scrapes.append((time.time(), found))

    def result(self, *, sync: float, unsettled: Sequence[tuple[float, float]] = ()) -> Result:
        """Compare what is shown, from the first to the last time of each HPA, with its syncs.

        `sync` is the controller's period. Syncs within `unsettled` (Unix seconds) do not count, nor
        those beside which another number was proposed: as pods become ready, the status of their
        workload, which the adapter reads, follows them.
        """
        result, logged = Result(), self._syncs()
        for target in logged.keys() - {*self._targets.values()}:
            times = [each.at for each in logged[target] if each.proposed is not None]
            if times and times[-1] - times[0] > _FIRST_SHOWN:
                result.wrong.append(f"{target}: never shown")
        for hpa, target in self._targets.items():
            seen = [at for at, found in self._scrapes if hpa in found]
            # For each sync, the last of the scrapes after it.
            compared: dict[Sync, tuple[float, int | None]] = {}
            for at, found in self._scrapes:
                syncs = candidates(logged.get(target, []), at, sync)
                if not seen or not seen[0] <= at <= seen[-1]:
                    continue
                if len({each.proposed for each in syncs}) != 1:
                    continue
                if not any(begin < each.at < end for each in syncs for begin, end in unsettled):
                    compared[syncs[-1]] = at, found.get(hpa)
            for one, (at, number) in compared.items():
                if number == one.proposed:
                    result.equal += 1
                    result.hpas.add(hpa)
                    result.values.add(number)
                else:
                    result.wrong.append(f"{hpa}: {self._around(hpa, at, logged[target])}")
        return result

    def _around(self, hpa: str, at: float, syncs: Sequence[Sync]) -> str:
        """Return what was proposed and shown around a time, in seconds before and after it."""
        near = 2 * _LOOK
        proposed = [(each.at - at, each.proposed) for each in syncs if abs(each.at - at) < near]
        shown = [(time_ - at, found.get(hpa)) for time_, found in self._scrapes]
        changes = [
            after
            for before, after in itertools.pairwise(shown)
            if before[1] != after[1] and abs(after[0]) < near
        ]
        clock = time.strftime("%X", time.localtime(at))
        return f"{clock}: proposed {_timed(proposed)}; shown {_timed(changes)}"

    def _syncs(self) -> dict[str, list[Sync]]:
        """Return the syncs since the beginning by target, those that failed included."""
        found: dict[str, list[Sync]] = {}
        log = (self._plane.folder / "kube-controller-manager.log").read_text()
        year = time.localtime().tm_year
        for line in log.splitlines():
            if match := _SYNC_LINE.match(line):
                time_, proposed, target = match.groups()
                at = dt.datetime.fromisoformat(f"{year}{time_}".replace(" ", "T")).timestamp()
                if at > self._begun:
                    number = None if proposed is None else int(proposed)
                    found.setdefault(target, []).append(Sync(at=at, proposed=number))
        return found


def candidates(syncs: Sequence[Sync], at: float, period: float) -> Sequence[Sync]:
    """Return the syncs of which one is shown at a time; none if that is not certain.

    The adapter may have looked up to _LOOK seconds before. The next sync may follow in less than a
    period after the last one: the controller logs a sync at its end, and begins the next one a
    period after any event of the HPA.
    """
    times = [each.at for each in syncs]
    first = bisect.bisect(times, at - _LOOK) - 1
    if first < 0:  # what is shown may be of before the first sync
        return ()
    end = bisect.bisect(times, at + _AHEAD)
    # Without metrics, as while the target has more replicas than the maximum, nothing is logged.
    gaps = (after - before for before, after in itertools.pairwise([*times[first:end], at]))
    failed = any(each.proposed is None for each in syncs[first:end])
    return () if failed or any(gap > 1.5 * period for gap in gaps) else syncs[first:end]


def _timed(numbers: Sequence[tuple[float, int | None]]) -> str:
    return ", ".join(f"{number} at {seconds:+.1f} s" for seconds, number in numbers)


@contextlib.contextmanager
def recording(control_plane: ControlPlane) -> Iterator[Recording]:
    """Scrape the adapter each second until the context ends."""
    record = Recording(control_plane)
    with repeated(record.scrape, every=1):
        yield record


class Testbed:
    """A control plane with the adapter, and random HPAs."""

    def __init__(self, control_plane: ControlPlane, prometheus: real.Prometheus) -> None:
        self._plane = control_plane
        self._admin = control_plane.admin
        self._prometheus = prometheus

    def compare(self, number: int, *, sync: float, seed: int = SEED) -> Result:
        """Create so many HPAs, and compare all their syncs in which something was proposed."""
        draw = random.Random(seed)
        names = [f"h{each}" for each in range(number)]
        self._admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        account = f"/api/v1/namespaces/{_NAMESPACE}/serviceaccounts/default"
        wait_for(partial(self._admin.exists, account), "an account")
        for each in names:
            self._create_pods(draw, each)
        self._prometheus.write(self._values(draw, names))
        unsettled: list[tuple[float, float]] = []
        with recording(self._plane) as record:
            begun = time.time()
            for each in names:
                self._create_hpa(draw, each)
            # A new adapter begins to watch pods with the first answers, which may come late.
            time.sleep(2 * sync)
            for count in range(ROUNDS):
                if count:
                    begun = time.time()
                    self._change_pods(draw)
                self._prometheus.write(self._values(draw, names))
                # Until then, the status of ReplicaSets follows their pods.
                unsettled.append((begun, time.time() + _LOOK))
                time.sleep(_SYNCS * sync)
        return record.result(sync=sync, unsettled=unsettled)

    def _change_pods(self, draw: random.Random) -> None:
        for pod in self._admin.get(_PODS)["items"]:
            # A pod that has failed stays failed, and its ReplicaSet does not own it.
            is_live = "deletionTimestamp" not in pod["metadata"]
            if is_live and pod["status"]["phase"] != "Failed" and draw.random() < 0.2:
                self._set_status(draw, pod["metadata"]["name"])

    def _create_pods(self, draw: random.Random, name: str) -> None:
        """Create the pods, then the ReplicaSet that adopts them and replaces failed ones."""
        replicas = draw.randint(1, 5)
        for index in range(replicas):
            document = documents.pod(f"{name}-{index}", _NAMESPACE, labels={"app": name})
            if is_deleted := not index and draw.random() < 0.2:
                document["metadata"]["finalizers"] = [_KEPT]  # it stays while it is being deleted
            self._admin.call("POST", _PODS, document)
            if is_deleted:
                self._admin.call("DELETE", f"{_PODS}/{name}-{index}")
            else:
                self._set_status(draw, f"{name}-{index}")
        template = documents.pod(name)["spec"]
        target = documents.workload("ReplicaSet", name, template, _NAMESPACE, replicas=replicas)
        path = f"/apis/apps/v1/namespaces/{_NAMESPACE}/replicasets"
        self._admin.call("POST", path, target)

    def _set_status(self, draw: random.Random, name: str) -> None:
        phase = draw.choice(["Running"] * 6 + ["Pending", "Failed"])
        ready = "True" if phase == "Running" and draw.random() < 0.8 else "False"
        condition = {"type": "Ready", "status": ready}
        status = {"status": {"phase": phase, "conditions": [condition]}}
        path = f"{_PODS}/{name}/status"
        self._admin.request("PATCH", path, status, content_type=MERGE_PATCH)

    def _create_hpa(self, draw: random.Random, name: str) -> None:
        replicas = self._admin.get(f"/apis/apps/v1/namespaces/{_NAMESPACE}/replicasets/{name}")
        number = replicas["spec"]["replicas"]
        limits = (number, number) if draw.random() < 0.5 else (1, draw.randint(number, 12))
        target = draw.choice(["1", "5", "20", "20", "500m", "100"])
        metrics = draw.sample(
            [
                documents.pods_metric("load", target),
                documents.pods_metric("queue", draw.choice(["3", "30"])),
                documents.external_metric(f"waiting_{name}", target),
                documents.external_metric(f"waiting_{name}", target, "Value"),
                documents.object_metric("load", "apps/v1", "ReplicaSet", name, target),
            ],
            draw.choice([1, 1, 2, 3]),
        )
        fields: dict[str, Any] = dict(zip(("minReplicas", "maxReplicas"), limits, strict=True))
        if draw.random() < 0.4:
            tolerance = {"tolerance": draw.choice(["0", "500m", "1"])}
            fields["behavior"] = {"scaleUp": tolerance, "scaleDown": tolerance}
        path = f"/apis/autoscaling/v2/namespaces/{_NAMESPACE}/horizontalpodautoscalers"
        hpa = documents.hpa(name, *metrics, kind="ReplicaSet", namespace=_NAMESPACE, **fields)
        self._admin.call("POST", path, hpa)

    def _values(self, draw: random.Random, names: Sequence[str]) -> list[tuple[Labels, float]]:
        """Return values of most pods, and one or several of the external metric of each HPA."""
        pods = [each["metadata"]["name"] for each in self._admin.get(_PODS)["items"]]
        of_pods = [(series, each) for each in pods for series in ("load", "queue")]
        labels = [
            {"__name__": series, "namespace": _NAMESPACE, "pod": each}
            for series, each in of_pods
            if draw.random() < 0.8
        ]
        labels += [
            {"__name__": f"waiting_{name}", "namespace": _NAMESPACE, "part": str(part)}
            for name in names
            for part in range(draw.choice([1, 1, 2]))
        ]
        return [(each, draw.choice([0, 5, 19.5, 20, 21, draw.randint(0, 200)])) for each in labels]


@contextlib.contextmanager
def running(folder: Path, programs: build.Programs, *, sync: float = SYNC) -> Iterator[Testbed]:
    """Start a control plane, Prometheus, and the adapter."""
    control_plane = ControlPlane(folder, programs)
    manager = control_plane.controller_manager
    manager.command = [
        *manager.command,
        f"--horizontal-pod-autoscaler-sync-period={sync:g}s",
        "--concurrent-horizontal-pod-autoscaler-syncs=50",
    ]
    with contextlib.ExitStack() as stack:
        stack.callback(control_plane.stop)
        control_plane.start()
        server.install(control_plane)
        prometheus = stack.enter_context(real.run(folder))
        rules = folder / "rules.yaml"
        rules.write_text(_RULES)
        adapter = server.Server(
            control_plane,
            folder / "adapter.log",
            [
                f"--config={rules}",
                f"--prometheus-url={prometheus.url}",
                "--metrics-relist-interval=2s",
                "--metrics-max-age=10m",
            ],
        )
        stack.callback(adapter.kill)
        adapter.start()
        yield Testbed(control_plane, prometheus)


def main(argv: Sequence[str]) -> int:
    """Compare, and print what differs; return 1 if something does."""
    parser = argparse.ArgumentParser(prog="python -m tools.hpa.proposals", description=main.__doc__)
    parser.add_argument("number", nargs="?", type=int, default=100, help="HPAs (default 100)")
    parser.add_argument("--seed", type=int, default=SEED)
    arguments = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), build.ensure_programs()) as bed,
    ):
        result = bed.compare(arguments.number, sync=SYNC, seed=arguments.seed)
    print(*result.wrong, result, sep="\n")
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
