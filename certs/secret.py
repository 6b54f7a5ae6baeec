"""What replicas share, as the data of a Kubernetes Secret.

    tls.crt, tls.key          the serving certificate with the authority behind it, and its key
    ca.crt, ca.key            the authority that issued it
    next-ca.crt, next-ca.key  the authority that will issue the next, where one is announced
    previous.crt              for each authority before: the last certificate that it issued, then
                              its own, as long as the former has not expired

The first three are those of the type `kubernetes.io/tls` and of cert-manager. All are in PEM.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding

from certs.bundle import UNREADABLE, Bundle, CertificateError
from certs.issue import Authority
from certs.renew import RetiredCA, State

KEYS = ("tls.crt", "tls.key", "ca.crt", "ca.key", "next-ca.crt", "next-ca.key", "previous.crt")


def document(state: State, *, name: str, namespace: str) -> dict[str, Any]:
    """A new Secret that holds `state`."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "gpu-metrics-adapter"},
        },
        "data": _encoded(state),
    }


def replaced(before: Mapping[str, Any], state: State) -> dict[str, Any]:
    """The Secret `before` with `state` in it; what else it holds stays, its version too."""
    data = before.get("data") or {}
    others = {key: value for key, value in data.items() if key not in KEYS}
    return {**before, "data": {**others, **_encoded(state)}}


def read(found: Mapping[str, Any]) -> State | None:
    """The state that a Secret holds; None where it holds nothing.

    Raises CertificateError for what cannot be read, or does not fit together.
    """
    data = found.get("data") or {}
    if not any(data.get(key) for key in KEYS):
        return None
    try:
        pem = {key: base64.b64decode(data.get(key) or "", validate=True) for key in KEYS}
    except (ValueError, TypeError) as error:
        raise CertificateError(f"its data is not base64: {error}") from error
    with _about("ca.crt and ca.key"):
        authority = Authority.parse(pem["ca.crt"], pem["ca.key"])
    with _about("tls.crt and tls.key"):
        serving = Bundle.parse(pem["tls.crt"], pem["tls.key"])
        try:
            serving.leaf.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, TypeError, ValueError) as error:
            raise CertificateError("not issued by ca.crt") from error
    next_ca = None
    if pem["next-ca.crt"]:
        with _about("next-ca.crt and next-ca.key"):
            next_ca = Authority.parse(pem["next-ca.crt"], pem["next-ca.key"])
    with _about("previous.crt"):
        former = _former(pem["previous.crt"])
    return State(authority=authority, serving=serving, next_ca=next_ca, former=former)


@contextlib.contextmanager
def _about(keys: str) -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        raise CertificateError(f"{keys}: {error}") from error


def _former(pem: bytes) -> tuple[RetiredCA, ...]:
    try:
        certificates = x509.load_pem_x509_certificates(pem) if pem.strip() else []
        pairs = tuple(zip(certificates[::2], certificates[1::2], strict=True))
    except UNREADABLE as error:
        raise CertificateError(f"no pairs of certificates can be read: {error}") from error
    return tuple(RetiredCA(last=last, certificate=certificate) for last, certificate in pairs)


def _encoded(state: State) -> dict[str, str]:
    former = (certificate for each in state.former for certificate in (each.last, each.certificate))
    held = {
        "tls.crt": state.serving.chain_pem,
        "tls.key": state.serving.key_pem,
        "ca.crt": state.authority.pem,
        "ca.key": state.authority.key_pem,
        "previous.crt": b"".join(each.public_bytes(Encoding.PEM) for each in former),
    }
    if state.next_ca is not None:
        held |= {"next-ca.crt": state.next_ca.pem, "next-ca.key": state.next_ca.key_pem}
    return {key: base64.b64encode(value).decode() for key, value in held.items() if value}
