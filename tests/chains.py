"""Valid and invalid certificate chains of clients, as hypothesis strategies.

Whether a chain leads to a root is derived from how it was built, by the rules of Go's x509.Verify:
see `paths`. No library takes part in that.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import hashlib
import itertools
import ssl

from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import strategies as st

from adapter.server.auth.user import User
from tests import der

NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
DAY, SECOND = dt.timedelta(days=1), dt.timedelta(seconds=1)
CLIENT_AUTH, SERVER_AUTH, ANY = "1.3.6.1.5.5.7.3.2", "1.3.6.1.5.5.7.3.1", "2.5.29.37.0"
PROXY_NAME = "front-proxy-client"
PURPOSES = ([CLIENT_AUTH], [SERVER_AUTH, CLIENT_AUTH], [ANY], [SERVER_AUTH], ["1.2.3.4.5"])


def _key():
    return ec.generate_private_key(ec.SECP256R1())


CLIENT_KEY, PROXY_KEY, STRANGER_KEY, FIRST_KEY, SECOND_KEY, OWN_KEY = (_key() for _ in range(6))


def named(text):
    """Return a Name with this common name, in DER."""
    return der.name((der.CN, der.UTF8, text.encode()))


CLIENT_CA, PROXY_CA = named("client-ca"), named("front-proxy-ca")
BETWEEN, OTHER = named("between"), named("other")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Certificate:
    """The fields of a certificate, from which it is encoded and judged."""

    subject: bytes
    issuer: bytes
    key: ec.EllipticCurvePrivateKey = dataclasses.field(repr=False)
    signer: ec.EllipticCurvePrivateKey = dataclasses.field(repr=False)
    ca: bool | None = None
    length: int | None = None
    usage: int | None = None
    purposes: list[str] | None = None
    since: dt.datetime = NOW - DAY
    until: dt.datetime = NOW + DAY
    more: tuple[der.Extension, ...] = ()
    version: int | None = 2
    serial: int = 1

    @property
    def extensions(self):
        extensions = list(self.more)
        if self.ca is not None:
            constraints = der.basic_constraints(ca=self.ca, length=self.length)
            extensions.append((der.BASIC_CONSTRAINTS, True, constraints))
        if self.usage is not None:
            extensions.append((der.KEY_USAGE, True, der.key_usage(self.usage)))
        if self.purposes is not None:
            purposes = der.extended_key_usage(self.purposes)
            extensions.append((der.EXTENDED_KEY_USAGE, False, purposes))
        return extensions

    @functools.cached_property
    def der(self):
        return der.certificate(
            subject=self.subject,
            issuer=self.issuer,
            key=self.key,
            signer=self.signer,
            extensions=self.extensions,
            version=self.version,
            serial=self.serial,
            since=self.since,
            until=self.until,
        )

    @property
    def pem(self):
        return ssl.DER_cert_to_PEM_cert(self.der).encode()

    @property
    def is_good(self):
        """Whether a chain with it can be trusted."""
        kinds = [kind for kind, _, _ in self.extensions]
        return (
            self.since <= NOW <= self.until
            and self.version == 2
            and len(set(kinds)) == len(kinds)
            and (self.purposes is None or not {CLIENT_AUTH, ANY}.isdisjoint(self.purposes))
            and not any(each in CRITICAL for each in self.more)
        )

    @property
    def is_plain(self):
        """Whether it is good, and without anything that a verifier may reject all the same."""
        return self.is_good and not self.more and self.serial == 1

    @property
    def is_authority(self):
        """Whether it may issue certificates."""
        return bool(self.ca) and (self.usage is None or bool(self.usage & 0x04))


ROOTS = {
    "client": Certificate(
        subject=CLIENT_CA, issuer=CLIENT_CA, key=CLIENT_KEY, signer=CLIENT_KEY, ca=True
    ),
    "proxy": Certificate(
        subject=PROXY_CA, issuer=PROXY_CA, key=PROXY_KEY, signer=PROXY_KEY, ca=True
    ),
}


UNKNOWN = dataclasses.replace(ROOTS["client"], version=1)
"""A CA certificate of a version that does not exist."""


def paths(presented, root, below=()):
    """Yield each path to `root` that Go accepts, from the last of `below` or first `presented`."""
    below = below or presented[:1]
    child = below[-1]
    if not child.is_good:
        return
    for issuer in (root, *presented[1:]):
        if issuer in below or issuer.subject != child.issuer or issuer.key is not child.signer:
            continue
        length = sum(each.subject != each.issuer for each in below[1:])
        if not issuer.is_authority or not (issuer.length is None or length <= issuer.length):
            continue
        if issuer is root:
            yield (*below, root)
        else:
            yield from paths(presented, root, (*below, issuer))


# Names


USER_NAMES = (
    "jane",
    PROXY_NAME,
    "system:admin",
    "system:anonymous",
    "carol",
    "é\u2028\x00\n<b>",
    "",
)
GROUPS = ("gpu", "system:masters", "system:unauthenticated", "", "a,b")
_texts = st.sampled_from((*USER_NAMES, *GROUPS)) | st.text(max_size=12)
ENCODINGS = {
    der.UTF8: "utf-8",
    der.PRINTABLE: "ascii",
    der.IA5: "utf-8",
    der.T61: "utf-8",
    der.BMP: "utf-16-be",
    der.NUMERIC: "utf-8",
    der.UNIVERSAL: "utf-32-be",
}


@st.composite
def attributes(draw):
    """An attribute of a Name, sometimes malformed."""
    kind = draw(st.sampled_from((der.CN, der.CN, der.O, der.O, der.UID, "2.5.4.11", "1.2.3.4")))
    if draw(st.integers(0, 9)) == 0:
        tag = draw(st.sampled_from((*ENCODINGS, der.BITS, 0x01, 0x02, 0x04, 0x05, 0x30)))
        return kind, tag, draw(st.binary(max_size=8))
    usual = USER_NAMES if kind == der.CN else GROUPS
    text = draw(st.sampled_from(usual) | _texts)
    tag = draw(st.sampled_from((der.UTF8, der.UTF8, der.BMP, der.UNIVERSAL, der.T61)))
    try:
        encoded = text.encode(ENCODINGS[tag])
    except UnicodeEncodeError:
        return kind, der.UTF8, b"\xff"
    return kind, tag, encoded * draw(st.sampled_from((1, 1, 1, 1, 1, 300)))


@st.composite
def subjects(draw):
    """The attributes of a subject: usually a name and some groups in any order."""
    if draw(st.integers(0, 3)) == 0:
        return tuple(draw(st.lists(attributes(), max_size=5)))
    name = draw(st.sampled_from((*USER_NAMES, PROXY_NAME, PROXY_NAME, PROXY_NAME)))
    values = [(der.CN, der.UTF8, name.encode())]
    values += [(der.O, der.UTF8, draw(st.sampled_from(GROUPS)).encode()) for _ in range(2)]
    return tuple(draw(st.permutations(values[: draw(st.integers(1, 3))])))


def attribute_values(subject, kind):
    """Return the values of the attributes of one kind. Raises ValueError if one is not a string."""
    values = []
    for each, tag, content in subject:
        if each == kind:
            if tag not in ENCODINGS and tag != 0x04:
                raise ValueError
            values.append(content.decode(ENCODINGS.get(tag, "utf-8")))
    return values


def is_named(user, subject, certificate):
    """Return whether `user` has exactly the identity in the certificate."""
    name = attribute_values(subject, der.CN)[-1]
    groups = attribute_values(subject, der.O)
    if name != "system:anonymous" and {"system:authenticated", "system:unauthenticated"}.isdisjoint(
        groups
    ):
        groups = [*groups, "system:authenticated"]
    digest = hashlib.sha256(certificate).hexdigest()
    return bool(name) and user == User(
        name=name,
        groups=tuple(groups),
        uid="".join(attribute_values(subject, der.UID)),
        extra={"authentication.kubernetes.io/credential-id": (f"X509SHA256={digest}",)},
    )


# Chains


def constraint(tag, content):
    """Return nameConstraints with one permitted subtree."""
    return der.sequence(der.tlv(0xA0, der.sequence(der.tlv(tag, content))))


CRITICAL = (
    ("1.2.3.4", True, b"\x05\x00"),
    (der.NAME_CONSTRAINTS, True, constraint(0xA4, der.name((der.O, der.UTF8, b"gpu")))),
)
"""Extensions with which a certificate must be rejected."""
MORE = (
    *CRITICAL,
    ("1.2.3.4", False, b"junk"),
    ("1.2.3.5", False, b""),
    (der.NAME_CONSTRAINTS, True, constraint(0x82, b"example.com")),
    (der.NAME_CONSTRAINTS, True, b"junk"),
    (der.ALTERNATIVE_NAMES, False, der.sequence(der.tlv(0x82, b"front-proxy.example.com"))),
    (der.ALTERNATIVE_NAMES, True, der.sequence(der.tlv(0xA3, b"x400"))),
    (der.ALTERNATIVE_NAMES, False, b"junk"),
    (der.BASIC_CONSTRAINTS, True, der.sequence()),
    (der.KEY_USAGE, True, b"junk"),
    (der.EXTENDED_KEY_USAGE, True, b""),
    ("2.5.29.14", False, b"junk"),
    ("2.5.29.35", False, b"junk"),
)
AUTHORITIES = (
    (CLIENT_CA, CLIENT_KEY),
    (PROXY_CA, PROXY_KEY),
    (BETWEEN, FIRST_KEY),
    (BETWEEN, SECOND_KEY),
    (OTHER, SECOND_KEY),
)


VARIATIONS = (
    *({"since": at} for at in (NOW, NOW + SECOND)),
    *({"until": at} for at in (NOW, NOW - SECOND, dt.datetime(9999, 12, 31, tzinfo=dt.UTC))),
    *({"version": number} for number in (None, 1, 3, 4, 127)),
    *({"serial": number} for number in (0, -1, 2**159, 2**200)),
    *({"more": (each,)} for each in MORE),
    *({"more": pair} for pair in itertools.pairwise(MORE)),
    {"more": MORE[:1] * 2},
    *({"usage": bits} for bits in (0x04, 0x06, 0x80, 0x00)),
    *({"purposes": purposes} for purposes in PURPOSES),
    *({"ca": ca} for ca in (True, False, None)),
    *({"ca": True, "length": length} for length in (0, 1)),
    {"signer": STRANGER_KEY},
    {"signer": STRANGER_KEY},
)
"""Changes to a certificate; not all of them make it invalid."""


@st.composite
def certificates(draw, subject, own_key, **more):
    """A certificate with at most two variations."""
    issuer, signer = draw(st.sampled_from(AUTHORITIES))
    plain = Certificate(subject=subject, issuer=issuer, key=own_key, signer=signer, **more)
    count = draw(st.sampled_from((0, 0, 0, 0, 1, 1, 2)))
    for _ in range(count):
        plain = dataclasses.replace(plain, **draw(st.sampled_from(VARIATIONS)))
    return plain


@st.composite
def intermediates(draw):
    """The certificate of an intermediate CA."""
    return draw(certificates(*draw(st.sampled_from(AUTHORITIES)), ca=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chain:
    """The certificates that a client presents, its own first."""

    subject: tuple[der.Attribute, ...]
    """Subject of the first certificate."""
    presented: tuple[Certificate, ...]

    def leads_to(self, root):
        """Return whether Go accepts the chain for this root."""
        return any(True for _ in paths(self.presented, ROOTS[root]))

    def is_beyond_doubt(self, root):
        """Return whether every verifier must accept the chain for this root."""
        well_formed = all(
            each.version in {None, 2} and each.serial == 1 and not each.more
            for each in self.presented
        )
        simple = all(tag == der.UTF8 and content.isascii() for _, tag, content in self.subject)
        # Verifiers differ in whether a self-issued certificate counts towards a path length.
        return (
            well_formed
            and simple
            and any(
                all(each.is_plain for each in path)
                and all(each.subject != each.issuer for each in path[:-1])
                for path in paths(self.presented, ROOTS[root])
            )
        )


@st.composite
def chains(draw):
    """A chain with up to four intermediates and repeated certificates."""
    subject = draw(subjects())
    leaf = draw(certificates(der.name(*subject), OWN_KEY))
    others = draw(st.lists(intermediates(), max_size=4))
    again = draw(st.lists(st.sampled_from((leaf, *others, *ROOTS.values())), max_size=2))
    return Chain(subject=subject, presented=(leaf, *draw(st.permutations([*others, *again]))))


def simple(root, name, **more):
    """Return a chain of one certificate for the user `name`, issued by `root`."""
    issuer = ROOTS[root]
    leaf = Certificate(
        subject=named(name), issuer=issuer.subject, key=OWN_KEY, signer=issuer.key, **more
    )
    return Chain(subject=((der.CN, der.UTF8, name.encode()),), presented=(leaf,))
