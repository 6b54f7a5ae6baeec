"""`make react`: how soon HPAs show a change of load, on a real control plane.

    python -m tools.bench.react [--pods PODS] [--scraped NUMBER] [NUMBER ...]

For each NUMBER a new control plane is started, with the adapter behind its API server, a real
Prometheus to which the samples are written, and so many HPAs of Deployments. For --scraped, each
pod has instead an exporter with an address of its own, and two real Prometheus servers scrape all
of them by the generated configuration: the one in the adapter's pod, and another every 30 s. Each
HPA has the same metric from both, so one step in the exporters is measured through both.

The controllers sync each HPA every 15 s, as by default; their own limits are raised, so that the
adapter is what is measured. One step of load changes the metric of all pods. There is no kubelet:
the Deployments are paused, and their pods are objects that this program creates and reports as
Ready. Progress is printed on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rules import presets
from rules.document.sources import EMBEDDED
from tools import documents, embedded
from tools.backends import programs as backends
from tools.bench import exporters, processes, workload
from tools.bench.exporters import Exporters
from tools.bench.workload import LABEL, Size
from tools.certificates import INSECURE
from tools.cluster import kubelet, server
from tools.cluster.hpa import Hpa
from tools.control_plane import build
from tools.control_plane.client import STRATEGIC_MERGE_PATCH, Client
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus as real
from tools.real.prometheus import wait_for

NUMBERS = (300, 1000)
SCRAPED = 300
SYNC_SECONDS = 15.0
INTERVAL, USUAL_INTERVAL = 2.0, 30.0
"""Seconds between two scrapes of the Prometheus in the pod, and of the other one."""
BEFORE, AFTER = 40, 60
"""Value of each pod before and after the step; the first is the target, too."""

_NAMESPACES = 20
_WORKERS = 8
"""Threads that create objects."""
_MAX_SECONDS = 300.0
"""Longest time until all HPAs show a value."""
_NODE = "gpu-node-0"
_POD: Mapping[str, Any] = {"automountServiceAccountToken": False}
_HPAS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_DURATION = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
_WATCH_SECONDS = 20
"""Below the 30 s after which the client gives up a silent connection."""
_USUAL_METRIC = f"{exporters.METRIC}_scraped_elsewhere"
"""The metric of the preset, by a rule that reads the other Prometheus."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """Where the values come from: flags of the adapter, metrics of the HPAs, and the step."""

    flags: Sequence[str]
    metrics: Mapping[str, str]
    """Metric -> how its samples get into Prometheus."""
    step: Callable[[], None]


Start = Callable[[Path, ControlPlane, Size], contextlib.AbstractContextManager[Source]]
"""Creates the pods and starts Prometheus; `written`, or `scraped` with its further arguments."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Measurements of one metric of so many HPAs."""

    autoscalers: int
    samples: str
    """How they get into Prometheus."""
    half: float
    """Seconds from the step until half of the HPAs show it; likewise the next two."""
    most: float
    all: float
    """Until the last HPA shows it."""
    one_pass: float
    """Seconds that the controller takes for one pass over all HPAs in steady state."""
    reconciliation: float
    """Mean seconds of one reconciliation."""


def main(argv: Sequence[str]) -> int:
    """Run the measurement for each number of HPAs and print the times."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.react", description=main.__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help="HPAs (default 300 and 1000)")
    parser.add_argument(
        "--scraped", type=int, default=SCRAPED, help=f"HPAs with exporters (default {SCRAPED})"
    )
    parser.add_argument("--pods", type=int, default=1, help="pods of each HPA (default 1)")
    parser.add_argument("--sync", type=float, default=SYNC_SECONDS, help="sync period in seconds")
    parser.add_argument(
        "--interval",
        type=float,
        default=INTERVAL,
        help=f"seconds between scrapes of the Prometheus in the pod (default {INTERVAL:g})",
    )
    arguments = parser.parse_args(argv)
    programs = build.ensure_programs()
    runs: list[tuple[int, Start]] = [(number, written) for number in arguments.numbers or NUMBERS]
    if arguments.scraped:
        program = backends.ensure(backends.PROMETHEUS_3)
        exporting = partial(scraped, program=program, interval=arguments.interval)
        runs.insert(0, (arguments.scraped, exporting))
    print(
        f"{'HPAs':>6} {'half':>8} {'90 %':>8} {'all':>8} {'one pass':>10} {'one HPA':>9}"
        "   (seconds from the step; of the controller)",
        flush=True,
    )
    for number, source in runs:
        size = Size(
            autoscalers=number, pods=number * arguments.pods, namespaces=min(number, _NAMESPACES)
        )
        for result in measure(size, programs, source, sync=arguments.sync):
            print(
                f"{number:>6} {result.half:>8.1f} {result.most:>8.1f} {result.all:>8.1f}"
                f" {result.one_pass:>10.1f} {result.reconciliation:>9.3f}   {result.samples}",
                flush=True,
            )
    return 0


def measure(
    size: Size,
    programs: build.Programs,
    source: Start,
    *,
    sync: float = SYNC_SECONDS,
) -> list[Result]:
    """Start everything, make one step of load, and return for each metric when HPAs showed it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes.progress(f"{size.autoscalers} HPAs: starting a control plane")
        control_plane = _control_plane(folder, programs, sync)
        stack.callback(control_plane.stop)
        control_plane.start()
        server.install(control_plane)
        values = stack.enter_context(source(folder, control_plane, size))
        adapter = server.Server(control_plane, folder / "adapter.log", values.flags)
        stack.callback(adapter.kill)
        adapter.start()
        _create_autoscalers(control_plane.admin, size, sync, [*values.metrics])
        _wait_for_value(control_plane.admin, size, values, BEFORE)
        if exporters.METRIC in values.metrics:
            processes.progress("waiting until the adapter reads the Prometheus in the pod")
            wait_for(
                partial(_reads_embedded, control_plane.admin, size),
                "the adapter reads the Prometheus in the pod",
                seconds=_MAX_SECONDS,
            )
        processes.progress("measuring the controller in steady state")
        count, seconds = _reconciliations(control_plane)
        started = time.monotonic()
        time.sleep(2 * sync)
        count_after, seconds_after = _reconciliations(control_plane)
        elapsed = time.monotonic() - started
        processes.progress(f"one step of load, {BEFORE} to {AFTER}")
        step = time.monotonic()
        values.step()
        seen = _wait_for_value(control_plane.admin, size, values, AFTER)
        return [
            Result(
                autoscalers=size.autoscalers,
                samples=samples,
                half=times[math.ceil(0.5 * len(times)) - 1] - step,
                most=times[math.ceil(0.9 * len(times)) - 1] - step,
                all=times[-1] - step,
                one_pass=elapsed * size.autoscalers / (count_after - count),
                reconciliation=(seconds_after - seconds) / (count_after - count),
            )
            for samples, times in zip(values.metrics.values(), seen, strict=True)
        ]


@contextlib.contextmanager
def written(folder: Path, control_plane: ControlPlane, size: Size) -> Iterator[Source]:
    """Create the pods, and write the samples of their GPUs to a Prometheus."""
    _create_workloads(control_plane.admin, size)
    with real.run(folder) as prometheus:
        prometheus.write(size.series(BEFORE))
        yield Source(
            flags=["--preset=gpu-dcgm", f"--prometheus-url={prometheus.url}"],
            metrics={workload.METRIC: "written at the step"},
            step=lambda: prometheus.write(size.series(AFTER)),
        )


@contextlib.contextmanager
def scraped(
    folder: Path,
    control_plane: ControlPlane,
    size: Size,
    *,
    program: Path,
    interval: float,
    usual: float = USUAL_INTERVAL,
) -> Iterator[Source]:
    """Create pods with exporters, which a Prometheus in the pod scrapes, and another one."""
    servers = Exporters()
    servers.show(BEFORE)
    with contextlib.ExitStack() as stack:
        stack.enter_context(servers.serving())
        _create_workloads(control_plane.admin, size, servers)
        running: list[real.Prometheus] = []
        for seconds in (interval, usual):
            place = folder / f"every-{len(running)}"
            place.mkdir()
            config = embedded.local(control_plane.kubeconfig, interval=seconds)
            prometheus = real.run(place, config, program=program, flags=embedded.flags())
            running.append(stack.enter_context(prometheus))
        processes.progress(f"waiting until each pod is scraped, every {interval:g} and {usual:g} s")
        for each in running:
            wait_for(partial(_all_up, each, size.pods), "each pod is scraped", seconds=_MAX_SECONDS)
        in_pod, other = running
        rules = folder / "rules.yaml"
        rules.write_text(yaml.safe_dump({"rules": [_usual_rule()]}))
        yield Source(
            flags=[
                f"--preset={exporters.PRESET}",
                f"--config={rules}",
                f"--prometheus-url={other.url}",
                f"--embedded-prometheus-url={in_pod.url}",
                f"--embedded-prometheus-interval={interval:g}s",
            ],
            metrics={
                exporters.METRIC: f"scraped every {interval:g} s by the Prometheus in the pod",
                _USUAL_METRIC: f"scraped every {usual:g} s by another Prometheus",
            },
            step=lambda: servers.show(AFTER),
        )


def _usual_rule() -> Mapping[str, Any]:
    """Return the preset's rule for the metric under another name; own rules read that one."""
    document = next(yaml.safe_load_all(presets.text(exporters.PRESET)))
    (rule,) = (each for each in document["rules"] if each["name"] == {"as": exporters.METRIC})
    return {**rule, "name": {"as": _USUAL_METRIC}}


def _all_up(prometheus: real.Prometheus, targets: int) -> bool:
    return [each["value"][1] for each in prometheus.query("sum(up)")] == [str(targets)]


def _reads_embedded(admin: Client, size: Size) -> bool:
    path = f"{size.paths(exporters.METRIC)[0]}&explain=true"
    return f'"source": "{EMBEDDED}"' in json.dumps(admin.get(path))


def _control_plane(folder: Path, programs: build.Programs, sync: float) -> ControlPlane:
    control_plane = ControlPlane(folder, programs)
    manager = control_plane.controller_manager
    manager.command = [
        *manager.command,
        f"--horizontal-pod-autoscaler-sync-period={sync:g}s",
        "--concurrent-horizontal-pod-autoscaler-syncs=50",
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
        "--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics",
    ]
    return control_plane


def _create_workloads(admin: Client, size: Size, servers: Exporters | None = None) -> None:
    """Create the Deployments and their running pods, which have these exporters."""
    for number in range(size.namespaces):
        metadata = {"name": f"team-{number}"}
        admin.call("POST", "/api/v1/namespaces", {"metadata": metadata})
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
    for number in range(size.namespaces):
        account = f"/api/v1/namespaces/team-{number}/serviceaccounts/default"
        wait_for(partial(admin.exists, account), f"{account} exists")

    numbers = {name: number for number, name in enumerate(size.all_pod_names())}

    def create(namespace: str, app: str) -> None:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
        deployment = documents.workload(
            "Deployment",
            app,
            documents.pod(app, **_POD)["spec"],
            namespace,
            paused=True,
            replicas=size.pods_per_app,
        )
        admin.call("POST", path, deployment)
        for name in size.pod_names(app):
            path = f"/api/v1/namespaces/{namespace}/pods"
            document = documents.pod(name, namespace, labels={LABEL: app}, nodeName=_NODE, **_POD)
            if servers:
                exporters.attach(document, numbers[name], servers.port)
            pod = admin.call("POST", path, document)
            admin.call(
                "PATCH",
                f"{path}/{name}/status",
                {"status": {**kubelet.running_status(pod), **document.get("status", {})}},
                content_type=STRATEGIC_MERGE_PATCH,
            )

    _run_all("Deployments with their pods", create, size)


def _create_autoscalers(admin: Client, size: Size, sync: float, metrics: Sequence[str]) -> None:
    """Create the HPAs evenly over one sync period: the controller keeps these phases."""
    started = time.monotonic()
    interval = sync / size.autoscalers
    due = {app: started + number * interval for number, (_, app) in enumerate(size.apps())}

    def create(namespace: str, app: str) -> None:
        time.sleep(max(0.0, due[app] - time.monotonic()))
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        targets = [documents.pods_metric(metric, str(BEFORE)) for metric in metrics]
        replicas: Mapping[str, Any] = dict.fromkeys(
            ("minReplicas", "maxReplicas"), size.pods_per_app
        )
        admin.call("POST", path, documents.hpa(app, *targets, namespace=namespace, **replicas))

    _run_all("HPAs", create, size)


def _run_all(what: str, create: Callable[[str, str], None], size: Size) -> None:
    with futures.ThreadPoolExecutor(_WORKERS) as executor:
        pending = [executor.submit(create, *app) for app in size.apps()]
        for number, future in enumerate(futures.as_completed(pending), 1):
            future.result()
            if number % 200 == 0 or number == len(pending):
                processes.progress(f"created {number} of {len(pending)} {what}")


def _wait_for_value(admin: Client, size: Size, values: Source, value: int) -> list[list[float]]:
    """Return for each metric when HPAs were first seen with `value`, sorted, as time.monotonic.

    Raises TimeoutError.
    """
    seen: list[dict[str, float]] = [{} for _ in values.metrics]
    deadline = time.monotonic() + _MAX_SECONDS

    def shown() -> int:
        return min(map(len, seen))

    while shown() < size.autoscalers:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"only {shown()} of {size.autoscalers} HPAs show {value} after {_MAX_SECONDS:.0f} s"
            )
        # Without a resourceVersion, a watch begins with all objects as they are.
        events = admin.watch(f"{_HPAS}?watch=true&timeoutSeconds={_WATCH_SECONDS}")
        with contextlib.closing(events):
            for event in events:
                if event["type"] == "ERROR":
                    break  # the API server ends a watch that is too slow
                shows = Hpa(document=event["object"], cells=()).metrics
                for of_metric, current in zip(seen, shows, strict=True):
                    if current == str(value):
                        of_metric.setdefault(event["object"]["metadata"]["uid"], time.monotonic())
                if shown() == size.autoscalers:
                    break
        processes.progress(f"{shown()} of {size.autoscalers} HPAs show {value}")
    return [sorted(each.values()) for each in seen]


def _reconciliations(control_plane: ControlPlane) -> tuple[float, float]:
    """Return the number of reconciliations of HPAs so far, and the seconds that they took."""
    (port,) = (
        str(each).partition("=")[2]
        for each in control_plane.controller_manager.command
        if str(each).startswith("--secure-port=")
    )
    url = f"https://127.0.0.1:{port}/metrics"
    # The controller manager issues its certificate itself.
    with urllib.request.urlopen(url, context=INSECURE) as response:
        text = response.read().decode()

    def total(suffix: str) -> float:
        samples = re.findall(rf"^{_DURATION}_{suffix}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, samples))

    return total("count"), total("sum")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
