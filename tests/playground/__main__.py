"""`make playground`: GPUs under load, an autoscaler that follows, and nothing needed for it.

A control plane, Prometheus, a fleet of GPUs with a kubelet's shadow, the adapter, BERT and its HPA,
until Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from adapter.demo.generations import DEFAULT, GENERATIONS, Generation
from tests.cluster import cluster
from tests.cluster.cluster import Cluster
from tests.control_plane import build, foreground, plane
from tests.control_plane.build import Programs
from tests.control_plane.plane import ControlPlane
from tests.playground import objects, screen
from tests.playground.view import Command
from tests.playground.watch import Watch
from tests.real.prometheus import wait_for

EVERY = 1.0
"""Seconds between two looks."""
GPUS = 4
"""Of each node."""
START_SECONDS = 3.0
"""Until a pod is ready: long enough to be seen."""
WOBBLE = 0.15
"""Of the recording's unsteadiness; an HPA, which tolerates 10 %, never rests with more of it."""
RAISED = 8
"""Replicas of the load once it is raised, which is 120 % of a GPU."""
METRIC = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/duty_cycle_current"
_PATIENCE = 60.0


def generations() -> dict[str, Generation]:
    """Those that know a GPU's pod, which the HPA asks for."""
    return {
        name: each
        for name, each in GENERATIONS.items()
        if each.preset != "gpu-node" and not each.mig
    }


def main(argv: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(argv)
    sys.stdout.reconfigure(errors="replace")
    programs = build.find()
    step = Steps()
    try:
        with tempfile.TemporaryDirectory(prefix="playground-") as folder:
            _run(asked, programs, Path(folder), step)
    finally:
        step.last("nothing of it is left")


def _count(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"a number from {least} to {most}, not {text!r}")
        return int(text)

    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.playground", description=__doc__)
    parser.add_argument(
        "--generation",
        choices=sorted(generations()),
        default=DEFAULT,
        help="whose exporter's format the fleet speaks; the matching preset goes with it",
    )
    parser.add_argument(
        "--load",
        type=_count(0, 100),
        default=1,
        help=f"replicas of {objects.LOAD} at first; each offers {objects.EACH:.0f} %% of a GPU",
    )
    parser.add_argument(
        "--nodes", type=_count(1, 100), default=3, help=f"nodes, of {GPUS} GPUs each"
    )
    return parser


class Steps:
    """Says what begins, and when that was."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def last(self, text: str) -> None:
        """The same on the way out, which goes on also where nobody listens any more."""
        try:
            self(text)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(asked: argparse.Namespace, programs: Programs, folder: Path, step: Steps) -> None:
    """Until it is told to stop."""
    generation = generations()[asked.generation]
    with contextlib.ExitStack() as stack:
        try:
            step(f"Kubernetes {programs.version}: etcd, API server, controllers")
            control = stack.enter_context(plane.running(folder, programs))
            step(f"Prometheus, and {asked.nodes} x {GPUS} GPUs: {generation.summary}")
            c = stack.enter_context(
                cluster.running(
                    control,
                    folder,
                    generation=asked.generation,
                    nodes=asked.nodes,
                    gpus=GPUS,
                    start_seconds=START_SECONDS,
                    wobble=WOBBLE,
                    tidy=False,
                )
            )
            step(f"Deployments {objects.BERT} and {objects.LOAD}")
            _deploy(c, asked.load, generation)
            step(f"gpu-metrics-adapter --preset={generation.preset}, behind the API server")
            flags = (f"--preset={generation.preset}", "--metrics-relist-interval=10s")
            stack.enter_context(c.adapter(*flags))
            step(f"HorizontalPodAutoscaler {objects.BERT}")
            control.kubectl("apply", "-f", "-", text=objects.hpa())
            step(f"everything runs; logs are in {folder}")
            watch = Watch(
                c,
                title="gpu-metrics-adapter playground",
                setting=f"Kubernetes {programs.version} · {generation.summary}",
                commands=commands(control, os.environ, load=asked.load),
            )
            with screen.choose(sys.stdout) as shown:
                while True:
                    shown.show(watch.look())
                    time.sleep(EVERY)
        finally:
            step.last("stopping")


def _deploy(c: Cluster, load: int, generation: Generation) -> None:
    """Returns once Prometheus knows of BERT's pod, so that the adapter does from its start."""
    c.plane.kubectl("apply", "-f", "-", text=f"{objects.bert()}---\n{objects.load(load)}")

    def scraped() -> bool:
        found = c.prometheus.get("/api/v1/query", query=generation.series[0].name)["result"]
        labels = {value for each in found for value in each["metric"].values()}
        return any(pod.name in labels for pod in c.fleet.pods)

    wait_for(scraped, f"{objects.BERT} has a GPU that is scraped", seconds=_PATIENCE)


def commands(control: ControlPlane, environ: Mapping[str, str], *, load: int) -> Iterator[Command]:
    """What to try. Where kubectl is ours alone, the first one puts it on the PATH."""
    kubectl = control.programs.kubectl
    on_path = shutil.which("kubectl", path=environ.get("PATH"))
    path = "" if on_path else f' PATH="{kubectl.parent}:$PATH"'
    config = shlex.quote(str(control.kubeconfig))
    scale = f"kubectl scale deployment {objects.LOAD} --replicas"
    yield Command(purpose="let kubectl in", text=f"export KUBECONFIG={config}{path}")
    yield Command(purpose="watch the HPA", text="kubectl get hpa -w")
    yield Command(purpose="ask as it does", text=f"kubectl get --raw '{METRIC}'")
    yield Command(purpose="raise the load", text=f"{scale}={max(RAISED, load + 4)}")
    yield Command(purpose="drop it", text=f"{scale}=0")


if __name__ == "__main__":
    with foreground.program():
        main()
