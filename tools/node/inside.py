"""The cluster, in a process that `tools.node` has put into namespaces of its own."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from adapter.cli.local_prometheus import binary
from tools.control_plane import build, foreground
from tools.control_plane.plane import ControlPlane
from tools.node import images, node, programs
from tools.node.node import Node
from tools.node.root import Root


def main(folder: Path) -> None:
    """Start everything and wait. Nothing is stopped: it ends with the namespaces."""
    control_plane_programs = build.ensure_programs()
    node_programs = programs.node_programs(control_plane_programs.version)
    root = Root(folder, programs.node_root(folder))
    base = [] if images.registry_responds() else [programs.base(folder)]
    step = foreground.Steps()
    root.mount([*node_programs, *base], binary.cache(os.environ) / "images")
    step("images: Prometheus, CoreDNS, the adapter")
    archives = images.build(root, with_base=bool(base))
    control_plane = ControlPlane(folder, control_plane_programs, node=node.ADDRESS)
    the_node = Node(control_plane, root, folder)
    the_node.enter_network()
    step(f"Kubernetes {control_plane_programs.version}: etcd, API server, controller manager")
    control_plane.start()
    step("containerd")
    the_node.start_containerd()
    for each in archives:
        the_node.load(each)
    step("kubelet, kube-proxy, scheduler, CoreDNS")
    the_node.start()
    step(f"ready: export KUBECONFIG={control_plane.kubeconfig}")
    while True:
        signal.pause()


if __name__ == "__main__":
    with foreground.program():
        main(Path(sys.argv[1]))
