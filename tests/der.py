"""A DER encoder for X.509 certificates, including invalid ones that no library issues.

    name(("2.5.4.3", UTF8, b"jane"))          a Name; each attribute is its own RDN
    certificate(subject=..., issuer=..., key=..., signer=..., extensions=(...))

https://datatracker.ietf.org/doc/html/rfc5280#section-4.1
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tools.certificates import DAY, NOW

BITS, UTF8, PRINTABLE, T61, IA5, BMP = 0x03, 0x0C, 0x13, 0x14, 0x16, 0x1E
NUMERIC, UNIVERSAL = 0x12, 0x1C
CN, O, UID = "2.5.4.3", "2.5.4.10", "1.3.6.1.4.1.57683.2"  # noqa: E741 - the usual names
BASIC_CONSTRAINTS, KEY_USAGE, EXTENDED_KEY_USAGE = "2.5.29.19", "2.5.29.15", "2.5.29.37"
NAME_CONSTRAINTS, ALTERNATIVE_NAMES = "2.5.29.30", "2.5.29.17"

_INTEGER, _OCTETS, _OID, _SEQUENCE, _SET = 0x02, 0x04, 0x06, 0x30, 0x31
_UTC, _GENERALIZED = 0x17, 0x18
_ECDSA_SHA256 = "1.2.840.10045.4.3.2"

Attribute = tuple[str, int, bytes]
"""OID, tag of the string type, and encoded string."""
Extension = tuple[str, bool, bytes]
"""OID, criticality, and value in DER."""


def tlv(tag: int, *content: bytes) -> bytes:
    """Return tag, length and value."""
    body = b"".join(content)
    if len(body) < 0x80:
        return bytes((tag, len(body))) + body
    length = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + body


def sequence(*content: bytes) -> bytes:
    """Return a SEQUENCE."""
    return tlv(_SEQUENCE, *content)


def oid(dotted: str) -> bytes:
    """Return an OBJECT IDENTIFIER."""
    first, second, *rest = map(int, dotted.split("."))
    return tlv(_OID, b"".join(map(_base128, (40 * first + second, *rest))))


def _base128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def integer(number: int) -> bytes:
    """Return an INTEGER."""
    return tlv(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


def moment(at: dt.datetime) -> bytes:
    """Return a UTCTime, or a GeneralizedTime outside 1950 to 2049."""
    if 1950 <= at.year < 2050:
        return tlv(_UTC, at.strftime("%y%m%d%H%M%SZ").encode())
    return tlv(_GENERALIZED, at.strftime("%Y%m%d%H%M%SZ").encode())


def name(*attributes: Attribute) -> bytes:
    """Return a Name; each attribute is its own RDN."""
    return sequence(
        *(tlv(_SET, sequence(oid(kind), tlv(tag, text))) for kind, tag, text in attributes)
    )


def basic_constraints(*, ca: bool, length: int | None = None) -> bytes:
    """Return the value of basicConstraints."""
    limit = b"" if length is None else integer(length)
    return sequence(tlv(0x01, b"\xff") if ca else b"", limit)


def key_usage(bits: int) -> bytes:
    """Return the value of keyUsage: 0x80 is digitalSignature, 0x04 is keyCertSign."""
    return tlv(BITS, b"\x00", bytes((bits,)))


def extended_key_usage(purposes: Iterable[str]) -> bytes:
    """Return the value of extendedKeyUsage."""
    return sequence(*map(oid, purposes))


def certificate(
    *,
    subject: bytes,
    issuer: bytes,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extensions: Sequence[Extension] = (),
    version: int | None = 2,
    serial: int = 1,
    since: dt.datetime = NOW - DAY,
    until: dt.datetime = NOW + DAY,
) -> bytes:
    """Return a certificate for `key`, signed by `signer` whether its fields are valid or not."""
    algorithm_id = sequence(oid(_ECDSA_SHA256))
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    encoded = [
        sequence(oid(kind), tlv(0x01, b"\xff") if critical else b"", tlv(_OCTETS, value))
        for kind, critical, value in extensions
    ]
    tbs = sequence(
        b"" if version is None else tlv(0xA0, integer(version)),
        integer(serial),
        algorithm_id,
        issuer,
        sequence(moment(since), moment(until)),
        subject,
        public,
        tlv(0xA3, sequence(*encoded)) if encoded else b"",
    )
    signature = signer.sign(tbs, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))
    return sequence(tbs, algorithm_id, tlv(BITS, b"\x00", signature))
