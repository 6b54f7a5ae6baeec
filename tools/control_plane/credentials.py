"""Certificate authorities of a control plane and the certificates they issue."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from tools.certificates import Holder

FRONT_PROXY = "front-proxy-client"
"""Common name of the aggregator's client certificate."""

_YEAR = dt.timedelta(days=365)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """`FOLDER/NAME.crt` and `FOLDER/NAME.key` for each entry of `_files`.

    The front proxy has its own CA. Certificates of the cluster CA authenticate users, and a user
    must not be able to act as the front proxy.
    """

    folder: Path
    cluster_ca: Holder
    """Issues client certificates of users and the API server's serving certificate."""
    proxy_ca: Holder
    """Issues the front proxy's client certificate."""

    @classmethod
    def create(cls, folder: Path, *addresses: str) -> Credentials:
        """Issue all certificates and write them into `folder`, which must not exist.

        `addresses` are those at which the API server listens besides the loopback address.
        """
        credentials = cls(folder=folder, cluster_ca=_ca("kubernetes"), proxy_ca=_ca("front-proxy"))
        folder.mkdir(parents=True)
        for name, holder in credentials._files(addresses).items():
            (folder / f"{name}.crt").write_bytes(holder.pem)
            (folder / f"{name}.key").write_bytes(holder.bundle.key_pem)
        return credentials

    def file(self, name: str) -> Path:
        """Return the path of a file, such as "serving.crt"."""
        return self.folder / name

    def user(self, name: str, *groups: str) -> Holder:
        """Issue a client certificate for a user."""
        return _client(name, self.cluster_ca, groups)

    def _files(self, addresses: Sequence[str]) -> dict[str, Holder]:
        return {
            "cluster-ca": self.cluster_ca,
            "proxy-ca": self.proxy_ca,
            "front-proxy": _client(FRONT_PROXY, self.proxy_ca, ()),
            "kubelet-client": self.user("kube-apiserver-kubelet-client", "system:masters"),
            "service-accounts": Holder("service-accounts", now=_now()),
            "serving": Holder(
                "kube-apiserver",
                self.cluster_ca,
                usages=(ExtendedKeyUsageOID.SERVER_AUTH,),
                now=_now(),
                until=_YEAR,
                dns=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
                addresses=("127.0.0.1", "10.0.0.1", *addresses),
            ),
        }


def _ca(name: str) -> Holder:
    return Holder(f"{name}-ca", ca=True, now=_now(), until=_YEAR)


def _client(name: str, issuer: Holder, groups: tuple[str, ...]) -> Holder:
    usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    return Holder(name, issuer, usages=usages, now=_now(), until=_YEAR, groups=groups)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
