"""`make react`: how soon HPAs show a change of load, on a real control plane.

    python -m tools.bench.react [--pods PODS] [NUMBER ...]

For each NUMBER a new control plane is started, with the adapter behind its API server, a real
Prometheus, and so many HPAs of Deployments. The controllers sync each HPA every 15 s, as by
default; their own limits are raised, so that the adapter is what is measured. One step of load
changes the metric of all pods. There is no kubelet: the Deployments are paused, and their pods are
objects that this program creates and reports as Ready. Progress is printed on standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

from tools import documents
from tools.bench import processes
from tools.bench.workload import LABEL, METRIC, Size
from tools.certificates import INSECURE
from tools.cluster import kubelet, server
from tools.cluster.hpa import Hpa
from tools.control_plane import build
from tools.control_plane.client import STRATEGIC_MERGE_PATCH, Client
from tools.control_plane.plane import ControlPlane
from tools.real import prometheus as real
from tools.real.prometheus import wait_for

NUMBERS = (300, 1000)
SYNC_SECONDS = 15.0
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Measurements of one number of HPAs."""

    autoscalers: int
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
    parser.add_argument("--pods", type=int, default=1, help="pods of each HPA (default 1)")
    parser.add_argument("--sync", type=float, default=SYNC_SECONDS, help="sync period in seconds")
    arguments = parser.parse_args(argv)
    programs = build.ensure_programs()
    print(
        f"{'HPAs':>6} {'half':>8} {'90 %':>8} {'all':>8} {'one pass':>10} {'one HPA':>9}"
        "   (seconds from the step; of the controller)",
        flush=True,
    )
    for number in arguments.numbers or NUMBERS:
        size = Size(
            autoscalers=number, pods=number * arguments.pods, namespaces=min(number, _NAMESPACES)
        )
        result = measure(size, programs, sync=arguments.sync)
        print(
            f"{number:>6} {result.half:>8.1f} {result.most:>8.1f} {result.all:>8.1f}"
            f" {result.one_pass:>10.1f} {result.reconciliation:>9.3f}",
            flush=True,
        )
    return 0


def measure(size: Size, programs: build.Programs, *, sync: float = SYNC_SECONDS) -> Result:
    """Start everything, make one step of load, and return when the HPAs showed it."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        processes.progress(f"{size.autoscalers} HPAs: starting a control plane")
        control_plane = _control_plane(folder, programs, sync)
        stack.callback(control_plane.stop)
        control_plane.start()
        server.install(control_plane)
        prometheus = stack.enter_context(real.run(folder))
        prometheus.write(size.series(BEFORE))
        adapter = server.Server(
            control_plane,
            folder / "adapter.log",
            ["--preset=gpu-dcgm", f"--prometheus-url={prometheus.url}"],
        )
        stack.callback(adapter.kill)
        adapter.start()
        _create_workloads(control_plane.admin, size)
        prometheus.write(size.series(BEFORE))
        _create_autoscalers(control_plane.admin, size, sync)
        _wait_for_value(control_plane.admin, size, BEFORE)
        processes.progress("measuring the controller in steady state")
        count, seconds = _reconciliations(control_plane)
        started = time.monotonic()
        time.sleep(2 * sync)
        count_after, seconds_after = _reconciliations(control_plane)
        elapsed = time.monotonic() - started
        processes.progress(f"one step of load, {BEFORE} to {AFTER}")
        step = time.monotonic()
        prometheus.write(size.series(AFTER))
        times = [each - step for each in _wait_for_value(control_plane.admin, size, AFTER)]
        return Result(
            autoscalers=size.autoscalers,
            half=times[math.ceil(0.5 * len(times)) - 1],
            most=times[math.ceil(0.9 * len(times)) - 1],
            all=times[-1],
            one_pass=elapsed * size.autoscalers / (count_after - count),
            reconciliation=(seconds_after - seconds) / (count_after - count),
        )


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


def _create_workloads(admin: Client, size: Size) -> None:
    """Create the Deployments and their running pods."""
    for number in range(size.namespaces):
        metadata = {"name": f"team-{number}"}
        admin.call("POST", "/api/v1/namespaces", {"metadata": metadata})
    admin.call("POST", "/api/v1/nodes", {"metadata": {"name": _NODE}})
    for number in range(size.namespaces):
        account = f"/api/v1/namespaces/team-{number}/serviceaccounts/default"
        wait_for(partial(admin.exists, account), f"{account} exists")

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
            pod = admin.call("POST", path, document)
            admin.call(
                "PATCH",
                f"{path}/{name}/status",
                {"status": kubelet.running_status(pod)},
                content_type=STRATEGIC_MERGE_PATCH,
            )

    _run_all("Deployments with their pods", create, size)


def _create_autoscalers(admin: Client, size: Size, sync: float) -> None:
    """Create the HPAs evenly over one sync period: the controller keeps these phases."""
    started = time.monotonic()
    interval = sync / size.autoscalers
    due = {app: started + number * interval for number, (_, app) in enumerate(size.apps())}

    def create(namespace: str, app: str) -> None:
        time.sleep(max(0.0, due[app] - time.monotonic()))
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        metric = documents.pods_metric(METRIC, str(BEFORE))
        replicas: Mapping[str, Any] = dict.fromkeys(
            ("minReplicas", "maxReplicas"), size.pods_per_app
        )
        admin.call("POST", path, documents.hpa(app, metric, namespace=namespace, **replicas))

    _run_all("HPAs", create, size)


def _run_all(what: str, create: Callable[[str, str], None], size: Size) -> None:
    with futures.ThreadPoolExecutor(_WORKERS) as executor:
        pending = [executor.submit(create, *app) for app in size.apps()]
        for number, future in enumerate(futures.as_completed(pending), 1):
            future.result()
            if number % 200 == 0 or number == len(pending):
                processes.progress(f"created {number} of {len(pending)} {what}")


def _wait_for_value(admin: Client, size: Size, value: int) -> list[float]:
    """Return when each HPA was first seen with `value`, sorted, as time.monotonic.

    Raises TimeoutError.
    """
    seen: dict[str, float] = {}
    deadline = time.monotonic() + _MAX_SECONDS
    while len(seen) < size.autoscalers:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"only {len(seen)} of {size.autoscalers} HPAs show {value}"
                f" after {_MAX_SECONDS:.0f} s"
            )
        # Without a resourceVersion, a watch begins with all objects as they are.
        events = admin.watch(f"{_HPAS}?watch=true&timeoutSeconds={_WATCH_SECONDS}")
        with contextlib.closing(events):
            for event in events:
                if event["type"] == "ERROR":
                    break  # the API server ends a watch that is too slow
                if Hpa(document=event["object"], cells=()).metrics == [str(value)]:
                    seen.setdefault(event["object"]["metadata"]["uid"], time.monotonic())
                    if len(seen) == size.autoscalers:
                        break
        processes.progress(f"{len(seen)} of {size.autoscalers} HPAs show {value}")
    return sorted(seen.values())


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
