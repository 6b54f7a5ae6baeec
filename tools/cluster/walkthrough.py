"""Walkthrough of an operator: the commands they type, and the output of `kubectl get hpa --watch`.

    walkthrough = Walkthrough(cluster, hpa="cuda-test")
    walkthrough.apply("cuda-test.yaml", example("cuda-test"))
    walkthrough.wait_for_row("0/5", replicas=1)
    cluster.fleet.set_load("cuda-test", 12)
    walkthrough.wait_until_settled("5/5", replicas=3)

Everything is printed as it happens, for `make walkthroughs`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from adapter.cli import program
from tools import quantity
from tools.cluster.cluster import Cluster
from tools.cluster.hpa import HEADER, Hpa, Table
from tools.real.prometheus import wait_for

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples"
STEP_TIMEOUT = 90.0
"""Seconds that a step may take on a busy machine; on an idle one it takes a few."""

_FAST_BEHAVIOR = {
    "scaleDown": {"stabilizationWindowSeconds": 5},
    "scaleUp": {"policies": [{"type": "Pods", "value": 100, "periodSeconds": 15}]},
}
"""Replaces the default behavior: a window of five minutes before a scale-down, and at most twice
the replicas (or four more) every 15 seconds. The window is not below five seconds: until every node
has been scraped again, the mean mixes old and new values."""

_TARGETS, _REPLICAS = HEADER.index("TARGETS"), HEADER.index("REPLICAS")


def example(name: str) -> str:
    """Return manifests/examples/NAME.yaml with another `behavior`."""
    document = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    document["spec"]["behavior"] = _FAST_BEHAVIOR
    return yaml.safe_dump(document, sort_keys=False)


def recommended_config(name: str) -> Any:
    """Return the YAML that manifests/examples/NAME.yaml recommends in its comment.

    It is the first indented part of the comment.
    """
    lines = (EXAMPLES / f"{name}.yaml").read_text().splitlines()
    comment = (line[1:] for line in lines if line.startswith("#"))
    parts = itertools.groupby(comment, key=lambda line: line.startswith("   "))
    return yaml.safe_load("\n".join(next(part for indented, part in parts if indented)))


class Walkthrough:
    """Commands and checks around one HPA of namespace default and the Deployment it scales."""

    def __init__(self, cluster: Cluster, *, hpa: str) -> None:
        self.cluster = cluster
        self.hpa = hpa
        self.table = Table()

    def kubectl(self, *arguments: str) -> str:
        """Print a kubectl command, run it, and return its output."""
        echo(f"$ kubectl {' '.join(arguments)}")
        return self.cluster.control_plane.kubectl(*arguments)

    def explain(self, *arguments: str, until: str) -> tuple[int, str]:
        """Print `gpu-metrics-adapter explain`, run it, and return its exit code and last line.

        It is run until that line contains `until`: what a busy machine does not answer in time is
        left out. Raises TimeoutError.
        """
        echo(f"$ gpu-metrics-adapter explain {shlex.join(arguments)}")
        kubeconfig = f"--kubeconfig={self.cluster.control_plane.kubeconfig}"
        code, line = 0, ""

        def is_explained() -> bool:
            nonlocal code, line
            with contextlib.redirect_stdout(io.StringIO()) as output:
                code = program.main(["explain", *arguments, kubeconfig])
            line = output.getvalue().splitlines()[-1]
            echo(f"  {line}")
            return until in line

        wait_for(is_explained, f"the last line contains: {until}", seconds=STEP_TIMEOUT)
        return code, line

    def get_raw(self, path: str) -> Any:
        """Run `kubectl get --raw` and return the document."""
        return json.loads(self.kubectl("get", "--raw", path))

    def resources(self, group: str) -> set[str]:
        """Return the names of the resources in the discovery document of an API group."""
        return {each["name"] for each in self.get_raw(group)["resources"]}

    def metric_values(self, path: str) -> dict[str, float]:
        """Request a metric of several objects, and print and return the value of each object."""
        values = {
            each["describedObject"]["name"]: float(quantity.parse(each["value"]))
            for each in self.get_raw(path)["items"]
        }
        echo(", ".join(f"{name} {value:.10g}" for name, value in values.items()) or "no values")
        return values

    def wait_for_values(self, path: str, values: Mapping[str, float]) -> None:
        """Request a metric until it has these values: a busy machine misses scrapes."""
        wait_for(
            lambda: self.metric_values(path) == values,
            f"{path} has the values {values}",
            seconds=STEP_TIMEOUT,
        )

    def apply(self, name: str, text: str) -> None:
        """Print `kubectl apply -f NAME` and apply `text`."""
        echo(f"$ kubectl apply -f {name}")
        self.cluster.apply(text)

    def wait_for_row(self, *targets: str, replicas: int | tuple[int, ...]) -> Hpa:
        """Wait until `kubectl get hpa` shows one of these TARGETS and one of these REPLICAS.

        Raises TimeoutError with the table and the conditions.
        """
        allowed = (replicas,) if isinstance(replicas, int) else replicas
        return self.cluster.watch_hpa(
            self.hpa,
            until=lambda hpa: hpa.cells[_TARGETS] in targets and hpa.current_replicas in allowed,
            seconds=STEP_TIMEOUT,
            table=self.table,
        )

    def wait_for_replicas(self, replicas: int, *, waiting: Callable[[float], bool]) -> Hpa:
        """Wait until the HPA has so many replicas, and `waiting` accepts its first current value.

        For values that are never the same twice. Raises TimeoutError as `wait_for_row`.
        """

        def reached(hpa: Hpa) -> bool:
            current = hpa.cells[_TARGETS].partition("/")[0]
            known = current != "<unknown>" and waiting(float(quantity.parse(current)))
            return known and hpa.current_replicas == replicas

        return self.cluster.watch_hpa(
            self.hpa, until=reached, seconds=STEP_TIMEOUT, table=self.table
        )

    def wait_until_settled(self, *targets: str, replicas: int | tuple[int, ...]) -> Hpa:
        """Wait for such a row, then until as many pods of the Deployment are ready."""
        hpa = self.wait_for_row(*targets, replicas=replicas)
        self.wait_ready(hpa.document["spec"]["scaleTargetRef"]["name"], hpa.current_replicas)
        return hpa

    def assert_stable(self, *targets: str, replicas: int, seconds: float) -> Hpa:
        """Watch for `seconds`. Raises AssertionError if a row has other TARGETS or REPLICAS."""
        deadline = time.monotonic() + seconds
        rows = len(self.table.rows)
        hpa = self.cluster.watch_hpa(
            self.hpa,
            until=lambda _: time.monotonic() > deadline,
            seconds=STEP_TIMEOUT,
            table=self.table,
        )
        for row in self.table.rows[rows:]:
            assert row[_TARGETS] in targets, self.table
            assert int(row[_REPLICAS]) == replicas, self.table
        return hpa

    def check_scale_in(self, app: str, targets: str, *, replicas: int) -> None:
        """Remove the load, and check that the HPA scales from `replicas` to one."""
        echo("$ kill $(jobs -p)")
        self.cluster.fleet.set_load(app, 0)
        self.wait_for_row(targets, replicas=replicas)
        hpa = self.wait_until_settled(targets, replicas=1)
        assert hpa.condition("ScalingActive").reason == "ValidMetricFound"

    def wait_ready(self, deployment: str, replicas: int) -> None:
        """Wait until a Deployment has so many replicas and all are ready. Raises TimeoutError."""
        path = f"/apis/apps/v1/namespaces/default/deployments/{deployment}"

        def counts() -> Iterator[int]:
            document = self.cluster.control_plane.admin.get(path)
            yield document["spec"]["replicas"]
            yield from (document["status"].get(each, 0) for each in ("replicas", "readyReplicas"))

        wait_for(
            lambda: set(counts()) == {replicas},
            f"{deployment} has {replicas} replicas, all ready",
            seconds=STEP_TIMEOUT,
        )


def pod_values(cluster: Cluster, series: str) -> dict[str, float]:
    """Return the value of each pod that Prometheus has for an nvidia_gpu_* series."""
    samples = cluster.prometheus.query(f'{series}{{pod_name!=""}}')
    return {each["metric"]["pod_name"]: float(each["value"][1]) for each in samples}


def echo(line: str) -> None:
    """Print a line of the walkthrough at once."""
    print(line, flush=True)
