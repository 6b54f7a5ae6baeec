"""`make playground`: an HPA that follows GPU load, without a cluster and without a GPU.

Runs a control plane, Prometheus, simulated GPUs and kubelets, the adapter, BERT and its HPA until
Ctrl-C.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from adapter.cli.demo.generations import DEFAULT, GENERATIONS, DemoGeneration
from tools.cluster import cluster
from tools.cluster.cluster import Cluster
from tools.control_plane import build, daemon, foreground, plane
from tools.control_plane.build import Programs
from tools.control_plane.foreground import Steps
from tools.control_plane.plane import ControlPlane
from tools.playground import manifests, screen
from tools.playground.observer import Observer
from tools.playground.view import Command
from tools.real.prometheus import wait_for

FRAME_SECONDS = 1.0
"""Seconds between two frames."""
GPUS_PER_NODE = 4
START_SECONDS = 3.0
"""Seconds until a pod is ready: long enough to be visible."""
NOISE = 0.15
"""With more noise the HPA, whose tolerance is 10 %, would never stop scaling."""
RAISED_LOAD = 8
"""Replicas of the load generator in the command that raises the load: 120 % of a GPU."""
PODS = "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*"
_ADDRESS = re.compile(r"^Console: (http://\S+)$", re.MULTILINE)


def generations() -> dict[str, DemoGeneration]:
    """Return the generations of exporters whose series name the pod, which the HPA needs."""
    return {
        name: each
        for name, each in GENERATIONS.items()
        if each.preset != "gpu-node" and not each.mig
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Run the playground until a signal."""
    args = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    programs = build.ensure_programs()
    step = Steps()
    try:
        with tempfile.TemporaryDirectory(prefix="playground-") as folder:
            _run(args, programs, Path(folder), step)
    finally:
        step("stopped; all processes and files are removed")


def _integer(minimum: int, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isdecimal() or not minimum <= int(text) <= maximum:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not an integer from {minimum} to {maximum}"
            )
        return int(text)

    return parse


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.playground", description=__doc__)
    parser.add_argument(
        "--generation",
        choices=sorted(generations()),
        default=DEFAULT,
        help="GPU exporter, or model server in the pods; the adapter gets the matching presets",
    )
    parser.add_argument(
        "--load",
        type=_integer(0, 100),
        default=1,
        help=(
            f"replicas of {manifests.LOAD} at the start; "
            f"each offers {manifests.LOAD_PER_REPLICA:.0f} %% of a GPU"
        ),
    )
    parser.add_argument(
        "--nodes",
        type=_integer(1, 100),
        default=3,
        help=f"number of nodes with {GPUS_PER_NODE} GPUs each",
    )
    return parser


def _run(
    args: argparse.Namespace, programs: Programs, folder: Path, step: foreground.Steps
) -> None:
    generation = generations()[args.generation]
    with contextlib.ExitStack() as stack:
        try:
            step(f"Kubernetes {programs.version}: etcd, API server, controller manager")
            control_plane = stack.enter_context(plane.running(folder, programs))
            step(f"Prometheus, and {args.nodes} x {GPUS_PER_NODE} GPUs: {generation.summary}")
            c = stack.enter_context(
                cluster.running(
                    control_plane,
                    folder,
                    generation=args.generation,
                    nodes=args.nodes,
                    gpus=GPUS_PER_NODE,
                    start_seconds=START_SECONDS,
                    noise=NOISE,
                    clean_up=False,
                )
            )
            step(f"Deployments {manifests.BERT} and {manifests.LOAD}")
            _deploy(c, args.load, generation)
            server = generation.server
            presets = [generation.preset, *([server.preset] if server else [])]
            flags = [f"--preset={name}" for name in presets]
            step(f"gpu-metrics-adapter {' '.join(flags)}, behind the API server")
            stack.enter_context(c.adapter(*flags, "--metrics-relist-interval=10s"))
            step(f"HorizontalPodAutoscaler {manifests.BERT}")
            control_plane.kubectl("apply", "-f", "-", text=manifests.hpa(server=server is not None))
            address = stack.enter_context(
                _console(control_plane, c.prometheus.url, folder / "console.log")
            )
            step(f"everything is running; Prometheus: {c.prometheus.url}; logs: {folder}")
            observer = Observer(
                c,
                subtitle=f"Kubernetes {programs.version} · {generation.summary}",
                commands=commands(
                    control_plane,
                    os.environ,
                    load=args.load,
                    metric="requests_waiting_current" if server else "duty_cycle_current",
                    prometheus=c.prometheus.url,
                    console=address,
                ),
            )
            with screen.choose(sys.stdout) as output:
                while True:
                    output.show(observer.observe())
                    time.sleep(FRAME_SECONDS)
        finally:
            step("stopping")


def _deploy(c: Cluster, load: int, generation: DemoGeneration) -> None:
    """Create both Deployments and wait until Prometheus has a series of BERT's pod.

    The adapter, started after this, thus has the metric from its first relist on.
    """
    c.control_plane.kubectl(
        "apply", "-f", "-", text=f"{manifests.bert()}---\n{manifests.load(load)}"
    )

    def scraped() -> bool:
        result = c.prometheus.query(generation.series[0].name)
        label_values = {value for each in result for value in each["metric"].values()}
        return any(pod.name in label_values for pod in c.fleet.pods)

    wait_for(scraped, f"the GPU of {manifests.BERT} is scraped")


@contextlib.contextmanager
def _console(control_plane: ControlPlane, prometheus: str, log: Path) -> Iterator[str]:
    """Run the console until the context ends; yield its first address, which has the token."""
    command = [
        *(sys.executable, "-m", "adapter", "console", "--no-browser", "--port=0"),
        f"--kubeconfig={control_plane.kubeconfig}",
        f"--prometheus-url={prometheus}",
    ]
    with daemon.running("console", command, log, lambda: bool(_ADDRESS.search(log.read_text()))):
        yield _ADDRESS.findall(log.read_text())[0]


def commands(
    control_plane: ControlPlane,
    environ: Mapping[str, str],
    *,
    load: int,
    metric: str,
    prometheus: str,
    console: str,
) -> Iterator[Command]:
    """Yield the commands to try. The first also sets PATH if kubectl is not on it."""
    kubectl = control_plane.programs.kubectl
    on_path = shutil.which("kubectl", path=environ.get("PATH"))
    path = "" if on_path else f' PATH="{kubectl.parent}:$PATH"'
    config = shlex.quote(str(control_plane.kubeconfig))
    scale = f"kubectl scale deployment {manifests.LOAD} --replicas"
    program = shlex.quote(str(Path(sys.executable).with_name("gpu-metrics-adapter")))
    # Other pods have no GPU, so a query of all pods has a Warning.
    selector = f"labelSelector=app%3D{manifests.BERT}"
    yield Command(purpose="set up kubectl", text=f"export KUBECONFIG={config}{path}")
    yield Command(purpose="watch the HPA", text="kubectl get hpa -w")
    yield Command(
        purpose="query the metric", text=f"kubectl get --raw '{PODS}/{metric}?{selector}'"
    )
    yield Command(purpose="explain the HPA", text=f"{program} explain hpa default/{manifests.BERT}")
    yield Command(
        purpose="check everything", text=f"{program} doctor --prometheus-url={prometheus}"
    )
    yield Command(purpose="open in a browser", text=console)
    yield Command(purpose="raise the load", text=f"{scale}={max(RAISED_LOAD, load + 4)}")
    yield Command(purpose="remove the load", text=f"{scale}=0")


if __name__ == "__main__":
    with foreground.program():
        main()
