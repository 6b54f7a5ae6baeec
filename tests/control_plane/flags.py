"""The command lines of a control plane that listens on the loopback address only.

https://kubernetes.io/docs/reference/command-line-tools-reference/
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from tests.control_plane.build import Programs
from tests.control_plane.credentials import FRONT_PROXY, Credentials

Command = list[str | Path]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ports:
    etcd: int
    peers: int
    apiserver: int
    controllers: int


def etcd(programs: Programs, ports: Ports, data: Path) -> Command:
    clients, peers = (f"http://127.0.0.1:{port}" for port in (ports.etcd, ports.peers))
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


def apiserver(programs: Programs, ports: Ports, files: Credentials) -> Command:
    """RBAC, and the aggregation layer with what kubeadm gives it; also UIDs, from 1.33 on."""
    minor = int(programs.version.split(".")[1])
    uid = ["--requestheader-uid-headers=X-Remote-Uid"] if minor >= 33 else []
    return [
        programs.apiserver,
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        # No address of this machine is published: an endpoint must not be a loopback address.
        "--advertise-address=192.0.2.1",
        "--endpoint-reconciler-type=none",
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
    ]


def controllers(programs: Programs, ports: Ports, files: Credentials, kubeconfig: Path) -> Command:
    """All but those that would end nodes whose leases nobody renews; HPAs are synced often."""
    return [
        programs.controllers,
        f"--kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controllers}",
        f"--cert-dir={files.folder}",
        f"--root-ca-file={files.file('cluster-ca.crt')}",
        f"--service-account-private-key-file={files.file('service-accounts.key')}",
        # As kubeadm has it: each controller has an account of its own, and that one's rights.
        "--use-service-account-credentials=true",
        "--controllers=*,-node-lifecycle-controller,-node-ipam-controller",
        "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=2s",
        # Else asking for the tokens of forty accounts takes four seconds.
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]
