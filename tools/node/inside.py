"""The cluster, in a process that `tools.node` has put into namespaces of its own."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import yaml

from adapter.cli.local_prometheus import binary
from tools import helm
from tools.backends.programs import PROMETHEUS_ADAPTER, ensure
from tools.cluster import hpa
from tools.control_plane import build, foreground
from tools.control_plane.foreground import Steps
from tools.control_plane.plane import ControlPlane
from tools.node import images, node, programs
from tools.node.node import Node
from tools.node.root import Root
from tools.real.prometheus import wait_for
from tools.workload import objects

EMPTY = "--empty"
"""Argument for a cluster without adapter."""
_NAMESPACE = "default"
"""That of Prometheus in the defaults of the chart."""
_RELEASE = "gpu-metrics-adapter"
_LOAD = 15
"""Load for which the HPA wants one replica."""
_SECONDS = 120.0


def main(folder: Path, *, empty: bool) -> None:
    """Start everything and wait. Nothing is stopped: it ends with the namespaces.

    An `empty` cluster has the image of the original and names of exporters, and no adapter.
    """
    plane_programs = build.ensure_programs()
    names = [images.BUSYBOX, images.COREDNS, images.PROMETHEUS]
    files = programs.node_programs(plane_programs.version)
    if empty:
        names.append(images.ORIGINAL)
        files.append(ensure(PROMETHEUS_ADAPTER))
    else:
        ensure(helm.HELM)  # from the network of the node, it could not be built
    if not images.registry_responds():
        names.append(images.BASE)
        files.append(programs.base(folder))
    root = Root(folder, programs.node_root(folder))
    step = Steps()
    step(f"images: {', '.join(names)}, {images.ADAPTER}")
    store = binary.cache(os.environ) / "images"
    root.mount(files, store)
    archives = images.build(root, store, folder, *names, images.ADAPTER)
    control_plane = ControlPlane(folder, plane_programs, node=node.ADDRESS)
    the_node = Node(control_plane, root, folder)
    the_node.enter_network()
    step(f"Kubernetes {plane_programs.version}: etcd, API server, controller manager")
    control_plane.start()
    step("containerd and its images")
    the_node.start_containerd()
    for each in archives:
        the_node.load(each)
    if empty:
        the_node.name(images.ADAPTER, images.SERVING)
    step("kubelet, kube-proxy, scheduler, CoreDNS")
    the_node.start()
    step(f"the node is Ready: export KUBECONFIG={control_plane.kubeconfig}")
    if not empty:
        _install(control_plane, step)
    step("everything is running; Ctrl-C stops it, and nothing is left. In another terminal:")
    print(_commands(control_plane, empty=empty), flush=True)
    while True:
        signal.pause()


def _install(control_plane: ControlPlane, step: Steps) -> None:
    step(f"Prometheus, {objects.EXPORTER} with simulated GPUs, {objects.APP} and its HPA")
    documents = [
        *objects.prometheus(_NAMESPACE),
        *objects.gpus(_NAMESPACE, image=images.ADAPTER),
        *objects.app(_NAMESPACE, image=images.ADAPTER, load=_LOAD),
    ]
    control_plane.kubectl("apply", "--filename=-", text=yaml.safe_dump_all(documents))
    arguments = ("--namespace=monitoring", "--create-namespace")
    step(f"helm upgrade --install {_RELEASE} manifests/chart {' '.join(arguments)}")
    config = f"--kubeconfig={control_plane.kubeconfig}"
    helm.run("upgrade", "--install", _RELEASE, helm.CHART, *arguments, config)
    step(f"waiting for the metric of the HPA {objects.APP}")
    wait_for(
        lambda: hpa.read(control_plane.admin, objects.APP, _NAMESPACE).metrics != [hpa.UNKNOWN],
        f"HPA {objects.APP} has a metric",
        seconds=_SECONDS,
    )


def _commands(control_plane: ControlPlane, *, empty: bool) -> str:
    """Return the commands to try; of an empty cluster, those that need no adapter."""
    program = Path(sys.executable).with_name("gpu-metrics-adapter")
    folder = control_plane.programs.kubectl.parent
    path = "" if shutil.which("kubectl") else f' PATH="{folder}:$PATH"'
    commands = [
        f"export KUBECONFIG={control_plane.kubeconfig}{path}",
        "kubectl get pods -A -o wide",
    ]
    if not empty:
        commands += [
            "kubectl get hpa -w",
            f"kubectl annotate --overwrite deployment/{objects.APP} {objects.LOAD}=120",
            f"{program} explain hpa {_NAMESPACE}/{objects.APP}",
            f"{program} doctor",
        ]
    return "".join(f"\n  {each}" for each in commands) + "\n"


if __name__ == "__main__":
    with foreground.program():
        main(Path(sys.argv[1]), empty=EMPTY in sys.argv)
