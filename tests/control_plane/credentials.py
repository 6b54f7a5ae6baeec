"""The authorities of a control plane and what they issued, also as files."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

from cryptography.x509.oid import ExtendedKeyUsageOID

from tests.certificates import Holder

FRONT_PROXY = "front-proxy-client"
"""Whom the aggregator is to the servers behind it."""

_YEAR = dt.timedelta(days=365)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Credentials:
    """`FOLDER/NAME.crt` and `.key` for each of `_files`.

    The front proxy has an authority of its own: whoever the other one vouches for is a user, and
    must not be able to speak for users.
    """

    folder: Path
    cluster_ca: Holder
    proxy_ca: Holder

    @classmethod
    def create(cls, folder: Path) -> Credentials:
        created = cls(folder=folder, cluster_ca=_ca("kubernetes"), proxy_ca=_ca("front-proxy"))
        folder.mkdir(parents=True)
        for name, holder in created._files().items():
            (folder / f"{name}.crt").write_bytes(holder.pem)
            (folder / f"{name}.key").write_bytes(holder.bundle.key_pem)
        return created

    def file(self, name: str) -> Path:
        return self.folder / name

    def user(self, name: str, *groups: str) -> Holder:
        """A certificate by which the API server knows someone."""
        return _client(name, self.cluster_ca, groups)

    def proxy(self, name: str = FRONT_PROXY) -> Holder:
        """A certificate by which someone may claim to be the aggregator."""
        return _client(name, self.proxy_ca, ())

    def _files(self) -> dict[str, Holder]:
        return {
            "cluster-ca": self.cluster_ca,
            "proxy-ca": self.proxy_ca,
            "front-proxy": self.proxy(),
            "service-accounts": Holder("service-accounts", now=_now()),
            "serving": Holder(
                "kube-apiserver",
                self.cluster_ca,
                usages=(ExtendedKeyUsageOID.SERVER_AUTH,),
                now=_now(),
                until=_YEAR,
                dns=("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
                addresses=("127.0.0.1", "10.0.0.1"),
            ),
        }


def _ca(name: str) -> Holder:
    return Holder(f"{name}-ca", ca=True, now=_now(), until=_YEAR)


def _client(name: str, issuer: Holder, groups: tuple[str, ...]) -> Holder:
    usages = (ExtendedKeyUsageOID.CLIENT_AUTH,)
    return Holder(name, issuer, usages=usages, now=_now(), until=_YEAR, groups=groups)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
