"""Command lines of a control plane, which listens on the loopback address unless it has a node.

https://kubernetes.io/docs/reference/command-line-tools-reference/
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tools.control_plane.build import Programs
from tools.control_plane.credentials import FRONT_PROXY, Credentials

Command = list[str | Path]


class Ports(NamedTuple):
    """Ports of the loopback address."""

    etcd: int
    etcd_peers: int
    apiserver: int
    controller_manager: int


def etcd(programs: Programs, ports: Ports, data: Path) -> Command:
    """Return the command line of a single etcd member."""
    clients, peers = (f"http://127.0.0.1:{port}" for port in (ports.etcd, ports.etcd_peers))
    return [
        programs.etcd,
        f"--data-dir={data}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--unsafe-no-fsync",
    ]


def apiserver(
    programs: Programs, ports: Ports, files: Credentials, node: str | None = None
) -> Command:
    """Return the command line of kube-apiserver: RBAC, and the aggregation layer as in kubeadm.

    From 1.33 on, the front proxy also sends the UID of the user. `node` is the address of a node
    that runs pods; the API server then listens on it, too.
    """
    uid = ["--requestheader-uid-headers=X-Remote-Uid"] if _minor(programs) >= 33 else []
    return [
        programs.apiserver,
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        *(_with_node(files, node) if node else _WITHOUT_NODE),
        f"--secure-port={ports.apiserver}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        f"--tls-cert-file={files.file('serving.crt')}",
        f"--tls-private-key-file={files.file('serving.key')}",
        f"--client-ca-file={files.file('cluster-ca.crt')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.file('service-accounts.crt')}",
        f"--service-account-signing-key-file={files.file('service-accounts.key')}",
        f"--requestheader-client-ca-file={files.file('proxy-ca.crt')}",
        f"--requestheader-allowed-names={FRONT_PROXY}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        *uid,
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={files.file('front-proxy.crt')}",
        f"--proxy-client-key-file={files.file('front-proxy.key')}",
        *_feature_gates(programs),
    ]


_WITHOUT_NODE: Command = [
    "--bind-address=127.0.0.1",
    # Endpoints must not contain a loopback address, so none is published for the API server.
    "--advertise-address=192.0.2.1",
    "--endpoint-reconciler-type=none",
]


def _with_node(files: Credentials, node: str) -> Command:
    return [
        "--bind-address=0.0.0.0",
        f"--advertise-address={node}",
        "--allow-privileged=true",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={files.file('kubelet-client.crt')}",
        f"--kubelet-client-key={files.file('kubelet-client.key')}",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager(
    programs: Programs,
    ports: Ports,
    files: Credentials,
    kubeconfig: Path,
    node: str | None = None,
) -> Command:
    """Return the command line of kube-controller-manager, which syncs HPAs every two seconds.

    Without a node that has a kubelet, the node controllers are off: nobody renews the leases of
    the nodes, so they would evict pods.
    """
    return [
        programs.controller_manager,
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        f"--cert-dir={files.folder}",
        f"--root-ca-file={files.file('cluster-ca.crt')}",
        f"--service-account-private-key-file={files.file('service-accounts.key')}",
        # As in kubeadm: each controller runs with the rights of its own ServiceAccount.
        "--use-service-account-credentials=true",
        *([] if node else ["--controllers=*,-node-lifecycle-controller,-node-ipam-controller"]),
        "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=2s",
        # Log what each sync proposes.
        "--vmodule=horizontal=4",
        # At the default rate, the requests for forty ServiceAccount tokens take four seconds.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        *_feature_gates(programs),
    ]


def _feature_gates(programs: Programs) -> list[str]:
    """Return the flag that lets HPAs scale to zero, which is on by default from 1.37 on."""
    return ["--feature-gates=HPAScaleToZero=true"] if _minor(programs) < 37 else []


def _minor(programs: Programs) -> int:
    return int(programs.version.split(".")[1])
