"""The Kubernetes Secret in which replicas share the rotation state.

    tls.crt, tls.key          serving certificate followed by its CA, and its key
    ca.crt, ca.key            CA that issued it
    next-ca.crt, next-ca.key  next CA, if one is announced
    previous.crt              for each retired CA: the last certificate that it issued, then the CA,
                              until that certificate expires

All values are PEM. The first three keys are those of cert-manager.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from certs.bundle import UNREADABLE, Bundle, CertificateError, pem_of
from certs.issue import Authority
from certs.renew import RetiredCA, SharedKeys

TYPES = ("Opaque", "kubernetes.io/tls")
"""Types of a Secret that may be used: the default, and the one that earlier versions created.

Kubernetes itself acts on the other types: it writes the token of an account into some of them.
"""
_KEYS = ("tls.crt", "tls.key", "ca.crt", "ca.key", "next-ca.crt", "next-ca.key", "previous.crt")


def name_of(service: str) -> str:
    """Return the name of the Secret that the replicas of a Service share."""
    return f"{service}-tls"


def document(state: SharedKeys, *, name: str, namespace: str) -> dict[str, Any]:
    """Return a Secret with `state`.

    It has no type, because the type of a Secret that exists cannot be changed.
    """
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "gpu-metrics-adapter"},
        },
        "data": _encoded(state),
    }


def updated(existing: Mapping[str, Any], state: SharedKeys) -> dict[str, Any]:
    """Return the existing Secret with `state`; other keys and the resourceVersion stay."""
    data = existing.get("data") or {}
    others = {key: value for key, value in data.items() if key not in _KEYS}
    return {**existing, "data": {**others, **_encoded(state)}}


def read(secret: Mapping[str, Any]) -> SharedKeys | None:
    """Return the state in a Secret; None if it has none of the keys.

    Raises CertificateError if the Secret has another type than `TYPES`, a value is invalid or the
    values do not belong together.
    """
    if (kind := secret.get("type", TYPES[0])) not in TYPES:
        raise CertificateError(f"type {kind} is not {TYPES[0]}")
    data = secret.get("data") or {}
    if not any(data.get(key) for key in _KEYS):
        return None
    try:
        pem = {key: base64.b64decode(data.get(key) or "", validate=True) for key in _KEYS}
    except (ValueError, TypeError) as error:
        raise CertificateError(f"data is not base64: {error}") from error
    with _prefix_errors("ca.crt and ca.key"):
        authority = Authority.parse(pem["ca.crt"], pem["ca.key"])
    with _prefix_errors("tls.crt and tls.key"):
        serving = Bundle.parse(pem["tls.crt"], pem["tls.key"])
        try:
            serving.leaf.verify_directly_issued_by(authority.certificate)
        except (InvalidSignature, TypeError, ValueError) as error:
            raise CertificateError("the certificate is not issued by ca.crt") from error
    next_ca = None
    if pem["next-ca.crt"]:
        with _prefix_errors("next-ca.crt and next-ca.key"):
            next_ca = Authority.parse(pem["next-ca.crt"], pem["next-ca.key"])
    with _prefix_errors("previous.crt"):
        retired = _retired(pem["previous.crt"])
    return SharedKeys(authority=authority, serving=serving, next_ca=next_ca, retired=retired)


@contextlib.contextmanager
def _prefix_errors(keys: str) -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        raise CertificateError(f"{keys}: {error}") from error


def _retired(pem: bytes) -> tuple[RetiredCA, ...]:
    try:
        certificates = x509.load_pem_x509_certificates(pem) if pem.strip() else []
        pairs = tuple(zip(certificates[::2], certificates[1::2], strict=True))
    except UNREADABLE as error:
        raise CertificateError(f"cannot read pairs of certificates: {error}") from error
    return tuple(RetiredCA(last_issued=last, certificate=ca) for last, ca in pairs)


def _encoded(state: SharedKeys) -> dict[str, str]:
    retired = (
        certificate
        for each in state.retired
        for certificate in (each.last_issued, each.certificate)
    )
    pem = {
        "tls.crt": state.serving.chain_pem,
        "tls.key": state.serving.key_pem,
        "ca.crt": state.authority.pem,
        "ca.key": state.authority.key_pem,
        "previous.crt": pem_of(retired),
    }
    if state.next_ca is not None:
        pem |= {"next-ca.crt": state.next_ca.pem, "next-ca.key": state.next_ca.key_pem}
    return {key: base64.b64encode(value).decode() for key, value in pem.items() if value}
