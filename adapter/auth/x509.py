"""Who a certificate is about: the user that Kubernetes reads from its subject.

Pure. Whether it is to be believed is decided elsewhere.
"""

from __future__ import annotations

import hashlib
import warnings
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from adapter import errors
from adapter.auth import user as users
from adapter.auth.user import User

_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


def user(certificate: x509.Certificate) -> User | None:
    """None where the subject has no common name. Raises Unauthenticated for a strange UID.

    https://github.com/kubernetes/apiserver/blob/master/pkg/authentication/request/x509/x509.go
    """
    subject = _subject(certificate)
    name = _last(subject, NameOID.COMMON_NAME)
    if not name:
        return None
    digest = hashlib.sha256(certificate.public_bytes(Encoding.DER)).hexdigest()
    found = User(
        name=name,
        groups=_texts(subject, NameOID.ORGANIZATION_NAME),
        uid=_uid(subject),
        extra=MappingProxyType({_CREDENTIAL: (f"X509SHA256={digest}",)}),
    )
    return users.authenticated(found)


def common_name(certificate: x509.Certificate) -> str:
    """The last common name, as Go has it; empty where there is none."""
    return _last(_subject(certificate), NameOID.COMMON_NAME)


def _subject(certificate: x509.Certificate) -> x509.Name:
    with warnings.catch_warnings():
        # Kubernetes' names are longer than X.509 allows.
        warnings.simplefilter("ignore")
        try:
            return certificate.subject
        except (TypeError, ValueError) as error:
            raise errors.Unauthenticated(
                f"the certificate has no readable subject: {error}"
            ) from error


def _texts(subject: x509.Name, kind: x509.ObjectIdentifier) -> tuple[str, ...]:
    values = (attribute.value for attribute in subject if attribute.oid == kind)
    return tuple(value for value in values if isinstance(value, str))


def _last(subject: x509.Name, kind: x509.ObjectIdentifier) -> str:
    return (_texts(subject, kind) or ("",))[-1]


def _uid(subject: x509.Name) -> str:
    uids = [attribute.value for attribute in subject if attribute.oid == _UID]
    if not uids:
        return ""
    (uid,) = uids if len(uids) == 1 else ("",)
    if not isinstance(uid, str) or not uid:
        raise errors.Unauthenticated("the certificate's UID is not one text")
    return uid
