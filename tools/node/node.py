"""The node of the cluster: pod network, containerd, kubelet, kube-proxy, scheduler and CoreDNS.

Everything runs in the namespaces of this process and in the root file system `tools.node.root`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.control_plane.client import RefusedError, is_true
from tools.control_plane.daemon import Daemon
from tools.control_plane.plane import ControlPlane
from tools.node import images
from tools.node.root import Root
from tools.real.prometheus import status

NAME = "gpu-node-0"
ADDRESS = "172.30.0.1"
_POD_CIDR = "10.244.0.0/24"
_DNS = "10.0.0.10"
"""Address of the Service in coredns.yaml."""
_COREDNS = Path(__file__).parent / "coredns.yaml"
_CONTAINERD = "unix:///run/containerd/containerd.sock"
_IMAGES = ("ctr", "--namespace=k8s.io", "images")
_BRIDGE_SYSCTL = Path("proc/sys/net/bridge/bridge-nf-call-iptables")
_CLONE_NEWNET = 0x40000000
_LINKS = """
link set lo up
link add node0 type veth peer name node1
link set node0 up
link set node1 up
address add {address}/24 dev node0
route add default dev node0
"""
"""Kernels may have no dummy links, so both ends of the pair are here. A packet to the address of a
Service needs a route before kube-proxy's rules see it."""
_CONTAINERD_TOML = """
version = 3

[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '{sandbox}'

[plugins.'io.containerd.cri.v1.runtime']
  # Without CAP_SYS_RESOURCE, as in many containers, runc cannot lower oom_score_adj.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['/usr/lib/cni']
    conf_dir = '/etc/cni/net.d'
"""
_CNI = {
    "cniVersion": "1.0.0",
    "name": "pods",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": _POD_CIDR}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


class Node:
    """Daemons of the node; `folder` holds their logs, and has the name of its cgroups."""

    def __init__(self, control_plane: ControlPlane, root: Root, folder: Path) -> None:
        self._control_plane = control_plane
        self._root = root
        self._folder = folder

    def enter_network(self) -> None:
        """Give this process and its children a network of their own.

        The API server stays reachable from outside: connections to its port are relayed.
        """
        port = self._control_plane.port
        listener = socket.create_server(("127.0.0.1", port))
        if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNET):
            raise RuntimeError(f"no new network namespace: {os.strerror(ctypes.get_errno())}")
        threading.Thread(target=asyncio.run, args=(_relay(listener, port),), daemon=True).start()
        for line in _LINKS.format(address=ADDRESS).strip().splitlines():
            self._root.run("ip", *line.split())
        # Without the second one, a response between two pods does not pass kube-proxy's rules.
        for name in ("proc/sys/net/ipv4/ip_forward", _BRIDGE_SYSCTL):
            (self._root.path / name).write_text("1")

    def load(self, archive: Path) -> None:
        """Import an image from an archive."""
        with archive.open("rb") as file:
            self._root.run(*_IMAGES, "import", "-", stdin=file)

    def name(self, image: str, names: Sequence[str]) -> None:
        """Give an image these names, too."""
        self._root.run(*_IMAGES, "tag", image, *names)

    def start_containerd(self) -> None:
        """Start containerd, which has no image yet."""
        toml = _CONTAINERD_TOML.format(sandbox=images.BUSYBOX)
        self._root.write("etc/containerd/config.toml", toml)
        self._root.write("etc/cni/net.d/10-pods.conflist", json.dumps(_CNI))
        self._daemon(("containerd",), self._containerd_responds).start()

    def start(self) -> None:
        """Start the other daemons and CoreDNS; return when the node is Ready."""
        for name, user, *groups in (
            ("kubelet", f"system:node:{NAME}", "system:nodes"),
            ("kube-proxy", "system:kube-proxy"),
            ("kube-scheduler", "system:kube-scheduler"),
        ):
            client = self._control_plane.user(user, *groups)
            (self._root.path / "etc/kubernetes").mkdir(exist_ok=True)
            client.write_kubeconfig(self._root.path / "etc/kubernetes" / f"{name}.kubeconfig")
        ca = self._control_plane.credentials.cluster_ca.pem.decode()
        self._root.write("etc/kubernetes/ca.crt", ca)
        self._config("kubelet", _kubelet(self._folder.name))
        self._config("kube-proxy", _KUBE_PROXY)
        kubelet = self._daemon(
            (
                "kubelet",
                "--config=/etc/kubernetes/kubelet.json",
                "--kubeconfig=/etc/kubernetes/kubelet.kubeconfig",
                f"--node-ip={ADDRESS}",
                f"--hostname-override={NAME}",
            ),
            self._ready,
        )
        proxy = self._daemon(
            ("kube-proxy", "--config=/etc/kubernetes/kube-proxy.json"),
            lambda: status("http://127.0.0.1:10256/healthz") == 200,
        )
        scheduler = self._daemon(
            (
                "kube-scheduler",
                "--kubeconfig=/etc/kubernetes/kube-scheduler.kubeconfig",
                "--leader-elect=false",
            ),
            lambda: True,
        )
        for daemon in (kubelet, proxy, scheduler):
            daemon.launch()
        self._control_plane.kubectl("apply", "-f", _COREDNS)
        for daemon in (kubelet, proxy):
            daemon.wait_ready()

    def _config(self, name: str, document: Mapping[str, object]) -> None:
        self._root.write(f"etc/kubernetes/{name}.json", json.dumps(document, indent=2))

    def _daemon(self, command: Sequence[str], ready: Callable[[], bool]) -> Daemon:
        name = command[0]
        return Daemon(name, self._root.command(*command), self._folder / f"{name}.log", ready)

    def _containerd_responds(self) -> bool:
        command = self._root.command("ctr", "version")
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _ready(self) -> bool:
        with contextlib.suppress(RefusedError):
            return is_true(self._control_plane.admin.get(f"/api/v1/nodes/{NAME}"), "Ready")
        return False


def _kubelet(cgroup: str) -> Mapping[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": "/etc/kubernetes/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": _CONTAINERD,
        "clusterDNS": [_DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        # An image that was removed could not be pulled again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
    }


_KUBE_PROXY = {
    "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
    "kind": "KubeProxyConfiguration",
    "clientConnection": {"kubeconfig": "/etc/kubernetes/kube-proxy.kubeconfig"},
    "mode": "nftables",
    "clusterCIDR": _POD_CIDR,
    "hostnameOverride": NAME,
    "oomScoreAdj": 0,
    # These settings belong to the first network namespace of the machine.
    "conntrack": {"maxPerCore": 0, "min": 0},
}


async def _relay(listener: socket.socket, port: int) -> None:
    """Relay connections of `listener`, of another network namespace, to a port of this one."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while content := await reader.read(1 << 16):
                writer.write(content)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", port)
        except OSError:  # the API server does not listen: the client has to see that
            writer.close()
            return
        await asyncio.gather(copy(reader, upstream), copy(upstream_reader, writer))

    server = await asyncio.start_server(relay, sock=listener)
    await server.serve_forever()
